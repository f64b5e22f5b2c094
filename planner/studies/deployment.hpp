// The cheapest replicas that keep a load's latency targets, found by playing it. planner/README.md [P35].
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/studies/request_service.hpp"

namespace shardline {

class Ranks;

/// Whether one pool computes prompts and answers, or one of them each.
enum class PoolsAsked : std::uint8_t { any, one, two };

/// Which replicas of which plan, on the fewest GPUs, keep the targets of a load.
struct DeploymentQuestion {
  /// An open loop with targets: a rate or a trace. Its plan, replicas and knobs are those of the candidates.
  ServiceQuestion load;
  int most_gpus = 0;
  /// Settings of an engine's knobs that are tried, each with every plan; one empty setting: its defaults.
  std::vector<std::vector<std::string>> knobs = {{}};
  PoolsAsked pools = PoolsAsked::any;
  /// Plays every candidate to its end, whatever bounds say: the oracle of the search.
  bool exhaustive = false;
  int threads = 0;
};

/// What shows that a candidate misses a target, in the order in which it is asked.
enum class RuledOut : std::uint8_t {
  ttft,     // a prompt alone takes longer
  tpot,     // a step for one request takes longer
  prompts,  // all replicas cannot compute the prompts in time
  answers,  // nor the tokens of answers
  early,    // a play in which more requests broke a target than may
  whole,    // a play to its end
};
inline constexpr std::size_t kRuledOut = 6;
std::string_view to_string(RuledOut by);  // "TTFT of a prompt alone"

/// A candidate that was played to its end.
struct PlayedDeployment {
  ServiceAnswer answer;
  /// What is measured over what is asked, of the target that is closest to being missed: at most 1 where all
  /// are met.
  double used = 0;

  int gpus() const {
    const ServiceQuestion& q = answer.question;
    return q.plan.gpus() * q.replicas + (q.prefill ? q.prefill->gpus() : 0);
  }
};

/// What was looked at. Candidates on more GPUs than the answer are not looked at: they cost more.
struct DeploymentCertificate {
  std::uint64_t plans = 0;       // shardings that the engine starts and that can be played
  std::uint64_t pairs = 0;       // of a plan for prompts, maybe for nothing else, and one for answers
  std::uint64_t candidates = 0;  // plans or pairs x knobs x replicas on at most so many GPUs as asked for
  std::uint64_t dearer = 0;      // on more GPUs than the answer
  std::array<std::uint64_t, kRuledOut> ruled_out{};
  std::uint64_t met = 0;       // of those on as many GPUs as the answer
  std::uint64_t beside = 0;    // on as many GPUs as the answer, that miss
  std::uint64_t requests = 0;  // that were answered in all plays, given up or not
};

/// The first of the cheapest, played again with other draws of the arrivals and lengths: of many candidates
/// that are tried with one draw the best is one that this draw favours.
struct OtherDraws {
  int draws = 0, kept = 0;  // in how many of them it keeps all targets
  int stops = 0;            // in how many its engine ends with an error
  double used = 0;          // the largest of PlayedDeployment::used among the others
};

/// Plays a deployment, which is told with its defaults, with the seeds that follow its own.
OtherDraws draw_again(const Study& study, ServiceQuestion question);

struct DeploymentAnswer {
  std::vector<PlayedDeployment> cheapest;  // all that meet, on the fewest GPUs; what has most room first
  /// Of none that meets: on as many GPUs as there are, of those whose plays lasted longest.
  std::optional<PlayedDeployment> nearest;
  DeploymentCertificate certificate;
  std::optional<OtherDraws> others =
      {};  // nothing: none is cheapest, or a trace is played, which is not drawn
  /// Plans that the engine starts and whose requests cannot be played, each with the reason.
  std::vector<std::pair<Plan, std::string>> not_played;
  /// Why no pair of pools was played, where none was and both could have been.
  std::string no_pairs;
  std::vector<std::vector<std::string>> knobs_refused;  // settings that no plan has
  /// Processes that were not heard of any more: others did what they had.
  std::vector<std::size_t> lost_ranks;
};

/// [P35] Plans are all shardings that the study's search lists on at most so many GPUs and its engine starts.
/// Bounds rest on two assumptions about step times, which its tests try: what is in a step beside some of it
/// makes it no shorter, and a prompt in more parts takes no less. The same for any number of threads.
/// `progress` in candidates, called by one thread at a time; it may throw to stop. `ranks`: processes that
/// are asked the same and share the work, of which this one is rank 0; the same for any number of them.
/// Throws UserError of settings and traces, and where no plan is left.
DeploymentAnswer cheapest_deployment(
    const Study& study, const DeploymentQuestion& question,
    const std::function<void(std::uint64_t done, std::uint64_t all)>& progress, Ranks* ranks = nullptr);

/// What every other rank does: a part of the same work, until rank 0 has its answer. Whether a rank was lost.
bool work_on_deployment(const Study& study, const DeploymentQuestion& question, Ranks& ranks);

/// Each of the settings that `knobs` lists, "max_num_seqs=64,256" twice with others: all their combinations.
std::vector<std::vector<std::string>> knob_settings(const std::vector<std::string>& knobs);

}  // namespace shardline
