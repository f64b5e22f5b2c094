// Requests served on a plan, one by one: the question of `shardline serve` and its answer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "planner/requests/cluster.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/studies/served_pair.hpp"
#include "planner/studies/service_knobs.hpp"
#include "sim/queue/statistics.hpp"

namespace shardline {

/// What is measured of a request; of inter-token times, of each of its tokens, or of each chunk where a step
/// with drafts yields several at once [R16].
enum class Latency : std::uint8_t { ttft, tpot, itl, e2e };
inline constexpr std::array kLatencies{Latency::ttft, Latency::tpot, Latency::itl, Latency::e2e};
std::string_view to_string(Latency latency);  // "TTFT"

/// At most so long in so many of 1: "ttft p99 2 s".
struct LatencyTarget {
  Latency of = Latency::ttft;
  double quantile = 0.99;
  Seconds most;
};
/// "ttft p99 2 s, tpot p99 40 ms"; empty: none. Throws UserError with the place of every fault in the text,
/// as of a file `name`.
std::vector<LatencyTarget> parse_targets(const std::string& name, const std::string& text);

/// Lengths of made-up requests. drawn: 80 to 100 % of the nominal ones, evenly, as InferenceX draws them
/// (25506e87c, --random-range-ratio 0.8).
enum class LengthLaw : std::uint8_t { equal, drawn };

struct ServiceQuestion {
  Plan plan;
  long long input = 0, output = 0;  // nominal, of made-up requests
  LengthLaw lengths = LengthLaw::equal;
  double rate = 0;      // requests/s, by Poisson; of a trace: that it is played at
  long long users = 0;  // of a closed loop, in place of a rate
  Seconds think;        // of each user between an answer and the next request, mean of exponential times
  std::optional<Seconds> path{};  // from a client to the engine and back; none: host.path of its profile
  std::string trace;              // a file; empty: made-up requests
  std::uint64_t requests = 0;     // at most; 0: 2,000, ten of each user of a closed loop, all of a trace
  std::vector<LatencyTarget> targets;
  bool largest_rate = false;  // that meets the targets, in place of a rate
  int replicas = 1;
  std::optional<PrefillQuestion> prefill{};  // then the plan above decodes only, both under one router
  Router router = Router::round_robin;
  std::vector<ReplicaFailure> failures = {};  // [R13], [R15]
  std::uint64_t seed = 1;
  bool pictures = false;           // whether the answer has a timeline and curves, too
  std::vector<std::string> knobs;  // "max_num_seqs=256"
};

/// Quantiles that are told, of 1.
inline constexpr std::array kToldQuantiles{0.5, 0.9, 0.99, 0.999};

/// Seconds. half_width: 95 %, by means of 20 parts of the requests in their order; nothing where a part has
/// not ten values beyond the quantile, and of inter-token times.
struct ToldLatency {
  double mean = 0;
  std::array<double, kToldQuantiles.size()> quantiles{};
  std::array<std::optional<double>, kToldQuantiles.size()> half_widths{};
  std::uint64_t count = 0;  // 0: nothing was measured, and all is 0
  /// {seconds, part of them that is as short}, up to the longest, for pictures.
  std::vector<std::pair<double, double>> curve{};
};

struct TargetResult {
  LatencyTarget target;
  double measured = 0;  // seconds, at its quantile
  bool met = false;
};

struct ServedLoadAnswer {
  std::array<ToldLatency, kLatencies.size()> latencies;  // in the order of kLatencies
  std::vector<TargetResult> targets;
  bool met = true;  // every target, nobody refused or left without a replica, and the load drains
  std::uint64_t sent = 0, answered = 0, refused = 0, preemptions = 0;
  std::uint64_t steps = 0;
  double seconds = 0;                                // from the first request to the end of the last
  double requests_per_s = 0;                         // answered, over `seconds`
  double goodput = 0;                                // a second, of those that keep every target but ITL's
  double sent_per_s = 0;                             // of an open loop
  double output_per_s_gpu = 0, input_per_s_gpu = 0;  // tokens
  double found = 0;                                  // of prompts' tokens, in the prefix cache
  // Of the replicas' time: steps with prompts, steps that decode alone, nothing to do.
  double prompting = 0, decoding = 0, idle = 0;
  double running = 0, kv_held = 0, kv_most = 0;      // means over steps of a replica; parts of the KV cache
  double waiting = 0;                                // requests, mean over arrivals
  BoardWatts watts;                                  // [R39] of a board, mean over `seconds`
  double down = 0;                                   // of the replicas' time, beside the above: dead
  std::uint64_t retried = 0, unserved = 0;           // as of ClusterRun
  ServedSeries series;                               // of all replicas, over time
  std::shared_ptr<const ServedTimeline> timeline{};  // nullptr unless pictures were asked for
  std::optional<ServedPair>
      pair{};  // of a pair of pools; of the rest what is of replicas is of those that decode
  std::optional<double> growth_per_s;  // of the requests that wait, of a load that does not drain
};

/// The largest rate that meets all targets, between one that does and one that does not; `low` 0: none does.
struct RateBracket {
  double low = 0, high = 0;
  int plays = 0;
};

struct ServiceAnswer {
  ServiceQuestion question;  // with its defaults
  ServiceKnobs knobs;
  std::optional<ServiceKnobs> prefill_knobs{};
  ServedLoadAnswer load;  // at the asked rate, or at bracket->low (high, where none meets)
  std::optional<RateBracket> bracket;
  std::optional<AcceptedLength> accepted{};  // that steps were drawn by, of a plan with drafts
  long long longest = 0;                     // tokens of a request and its answer, at most
  ErrorTerms step_errors;                    // of the prices of a step that decodes the mean batch
  double step_error = 0;           // of interpolated steps: largest of a cell that the (last) play used
  std::vector<Diagnostic> narrow;  // of that step: narrow_warnings()

  /// How far prices may put the rate of tokens off, where steps decide it: of a closed loop, at the largest
  /// rate, and of a load that does not drain. Nothing: tokens are as many as come.
  std::optional<ErrorRange> rate_error(const EngineProfile& engine) const;
};

/// Requests of an open loop in the order of their arrival; of a trace without those beyond the question's.
struct OfferedLoad {
  std::vector<double> arrivals;             // seconds
  std::vector<std::int64_t> input, output;  // tokens
  bool shared = false;  // some requests begin with text that others have: a prefix cache may find it
};

struct TraceSize;

/// What a server of a plan computes: prompts and answers; as a half of a pair either of both; prompts alone,
/// as its plan has no other steps.
enum class ServerOf : std::uint8_t { both, half, prompts };

/// A plan and a load, to be played as often as asked: times of steps are found once for all plays. One object
/// per thread.
class RequestService {
 public:
  /// Throws UserError as no_play(), service_knobs() and traces do. `step` is called now and then and may
  /// throw to stop; it lives as long as this. `size`: of the question's trace where it is known; one that has
  /// changed since it was read first is refused in the middle of a play, TraceChanged.
  RequestService(const Study& study, const ServiceQuestion& question,
                 const std::function<void(std::uint64_t done, std::uint64_t all)>& step,
                 const TraceSize* size = nullptr, ServerOf server = ServerOf::both);
  RequestService(const RequestService&) = delete;
  RequestService& operator=(const RequestService&) = delete;
  ~RequestService();

  /// The question's.
  ServiceAnswer answer();
  /// Replicas of the plan, all whose engines have such knobs, and beside them a pool that prefills.
  struct Pools {
    int replicas = 1;
    std::vector<std::string> knobs = {};
    int prefill_replicas = 0;                 // 0: one pool
    const RequestService* prefill = nullptr;  // of the plan that prefills, whose times of steps are taken
    TransferRates rates = {};                 // of hand-offs between both plans
  };
  /// Of an open loop on such pools. `gives_up`: nothing, as soon as more requests have broken a target than
  /// may break it, whatever the others will do. Throws UserError as PairPools.
  std::optional<ServiceAnswer> answer(const Pools& pools, bool gives_up);
  /// The same of a play whose load and step_error are known, from another process.
  ServiceAnswer of_play(const Pools& pools, ServedLoadAnswer load, double step_error);
  /// Requests that were answered in the last play, given up or not.
  std::uint64_t answered() const;
  /// What errors of prices do to the step that decodes the mean batch of an answer, and warnings of it.
  void look_at_prices(ServiceAnswer& answer) const;
  /// What comes, the same in all plays.
  OfferedLoad offered() const;
  const StepTimes& times() const;
  const Plan& plan() const;
  long long mean_prompt() const;  // tokens
  /// Under such knobs; of a half of a pair those of one of both.
  ServiceKnobs knobs(const std::vector<std::string>& overrides, PairRole role = PairRole::decodes) const;

 private:
  class Plays;
  std::unique_ptr<Plays> plays_;
};

/// The answer of a service that is played once.
ServiceAnswer serve_requests(const Study& study, const ServiceQuestion& question,
                             const std::function<void(std::uint64_t done, std::uint64_t all)>& step);

}  // namespace shardline
