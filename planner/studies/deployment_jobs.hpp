// What a search for the cheapest deployment plays, piece by piece, in this process or in another.
// planner/README.md [P35].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/studies/deployment.hpp"
#include "planner/studies/deployment_bounds.hpp"
#include "planner/studies/sized_trace.hpp"
#include "planner/studies/study_memory.hpp"

namespace shardline {

/// A piece of work, and of which plan. All pieces of one plan share its times of steps.
struct DeploymentJob {
  enum class What : std::uint8_t {
    settings,   // which of the question's settings the plan has, and bounds of each
    candidate,  // with one of them, and as many replicas as so many GPUs hold
    whole,      // likewise, played to its end
  };
  What what = What::settings;
  std::size_t server = 0;  // index of the server; of a pair of pools of the one that decodes
  int gpus = 0;
  std::size_t setting = 0;   // index among the question's
  int prefill_replicas = 0;  // 0: one pool
  std::size_t prefill = 0;   // index of the server that prefills
};

/// A plan, and what of it is played: of engines whose halves of pairs differ from whole servers both.
struct DeploymentServer {
  Plan plan;
  ServerOf of = ServerOf::both;
  bool in_pairs = false;  // as either half, unless it has prompts alone
};

/// What a plan is under one of the question's settings: by how many replicas at least each part of the work
/// may be done in time, as far as bounds say; nothing where no number is enough, and why.
struct BoundedSetting {
  std::size_t setting = 0;
  int prompts = 1, answers = 1;  // replicas that compute one of both alone
  int block = 0;                 // tokens of a KV block, equal in both pools of a pair
  std::optional<RuledOut> no_prompts = {}, no_answers = {};
};

/// A play to its end.
struct PlayedLoad {
  ServedLoadAnswer load;
  double step_error = 0;
};

/// What came of one candidate.
struct TriedDeployment {
  std::optional<RuledOut> by;  // nothing: it meets
  std::optional<PlayedLoad> played;
  std::uint64_t requests = 0;  // answered
};

/// Plans that can be played, and pieces of work on them. The same in every process that is asked the same.
class DeploymentJobs {
 public:
  /// Both live as long as this. Throws UserError where no plan is left.
  DeploymentJobs(const Study& study, const DeploymentQuestion& question);
  ~DeploymentJobs();

  const std::vector<DeploymentServer>& servers() const { return kinds_; }
  /// No server can be a half of a pair: no_pair_of() says why of each.
  bool none_in_pairs() const;
  /// Of each play.
  std::uint64_t requests() const;
  /// Of each play, as need_of_requests() asks for them.
  PlayedRequests played() const;
  /// Plans that the engine starts and whose requests cannot be played, each with the reason.
  std::vector<std::pair<Plan, std::string>> take_not_played() { return std::move(not_played_); }

  /// Of What::settings: those that the plan has.
  std::vector<BoundedSetting> settings(std::size_t server);
  /// Why the engine does not hand caches from servers of one plan to those of the other, or such pairs are
  /// not played; nothing where they are.
  std::optional<std::string> no_pair_of(std::size_t prefill, std::size_t decode) const;
  /// Throws what is wrong with a setting of a plan that has it not.
  [[noreturn]] void refuse_setting(std::size_t server, std::size_t setting);
  /// Of What::candidate and What::whole; the plan has the setting.
  TriedDeployment tried(const DeploymentJob& job);
  /// What was played, with its question and what its prices are off.
  PlayedDeployment told(const DeploymentJob& job, PlayedLoad play);
  void look_at_prices(std::size_t server, PlayedDeployment& played);

  /// Any job of another process, and its result, as bytes.
  std::string done(std::string_view job);
  static std::string bytes_of(const DeploymentJob& job);
  static std::vector<BoundedSetting> settings_in(std::string_view result);
  static TriedDeployment tried_in(std::string_view result);
  /// What processes must agree on before they share work: plans, the load with all of its trace, and what two
  /// steps take to the bit, which another processor or other data may change.
  std::string digest();

 private:
  struct Server;
  class Lease;

  std::unique_ptr<Server> made(std::size_t server) const;
  template <class Ask>
  auto on_pools(const DeploymentJob& job, Ask ask);
  const TransferRates& handoff(const DeploymentJob& job, long long prompt);
  void find_plans();
  void find_halves();
  std::vector<Plan> sharded() const;

  const Study& study_;
  const DeploymentQuestion& question_;
  std::vector<DeploymentServer> kinds_;
  std::vector<std::pair<Plan, std::string>> not_played_;
  std::function<void(std::uint64_t, std::uint64_t)> step_;
  std::optional<TraceSize> trace_;  // as all plays must find it
  // By plan, once it is asked for: as many as were played at once.
  struct Slot;
  std::vector<std::unique_ptr<Slot>> servers_;
  std::mutex handoffs_mutex_;
  std::map<std::tuple<std::size_t, std::size_t, ReplicaPlaces>, TransferRates> handoffs_;
};

}  // namespace shardline
