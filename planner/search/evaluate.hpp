// One plan, simulated.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "hardware/timing/lowering.hpp"
#include "planner/search/framework_times.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

/// What a sweep of steps compares that decode, whether they prefill too or not.
struct DecodeMetrics {
  Seconds ttl;                   // token-to-token latency of one user; of a mixed step, while such steps run
  double users = 0;              // served at once
  double tokens_per_s_user = 0;  // 1 / TTL
  double tokens_per_s_gpu = 0;   // decoded: users / (TTL * GPUs)
  double prefilled_per_s_gpu = 0;  // tokens of prompts beside them / (TTL * GPUs)
};
/// `decoding`: part of its time in which a user decodes, as of a point (pareto.hpp).
DecodeMetrics decode_metrics(const Case& c, Seconds ttl, const Plan& plan, double decoding = 1);
/// Requests that decode at once: those of the case's batch, in every attention group and microbatch.
long long users_of(const Case& c, const Plan& plan);

/// What a sweep of prefills compares: a plan runs every request of the case, once per entry of its batch.
struct PrefillMetrics {
  Seconds ttft;                        // time to the first token: of the whole prefill
  double requests = 0;                 // at once
  double new_tokens = 0;               // of them all
  double new_tokens_per_s_gpu = 0;     // new tokens / (TTFT * GPUs)
  double gpu_seconds_per_request = 0;  // TTFT * GPUs / requests
};
PrefillMetrics prefill_metrics(const Case& c, Seconds ttft, const Plan& plan);

/// Simulates or bounds plans of one case. Keeps its scratch memory: one object per thread.
class Evaluator {
 public:
  explicit Evaluator(const Case& c, AllReduceRule rule = AllReduceRule::fastest,
                     std::shared_ptr<FabricCache> cache = nullptr);

  /// By event simulation: TTL of a decode step, TTFT of a prefill. The plan must pass check.
  Seconds simulate(const Plan& plan);
  /// The same; but where it takes the events of all layers and bound() is not below `known`, that bound.
  Seconds simulate_below(Seconds known, const Plan& plan);
  /// A lower bound of simulate (closed form, no events).
  Seconds bound(const Plan& plan);
  /// [P16] The plan by the kernels of other frameworks, where the case leaves it open whose run.
  std::vector<FrameworkTime> by_other_frameworks(const Plan& plan);
  /// Of the last step: what the engine's host added to it, working beside its kernels.
  Seconds host_added() const { return host_added_; }
  Seconds host_work() const { return host_work_; }
  /// The schedule of the last plan that was simulated or bounded.
  const Schedule& schedule() const { return schedule_; }
  CostModel& cost() { return cost_; }
  AllReduceRule all_reduce() const { return rule_; }
  const Case& study() const { return *case_; }

 private:
  const Case* case_;
  AllReduceRule rule_;
  CostModel cost_;
  PassScratch scratch_;
  Schedule schedule_;
  Seconds host_work_, host_added_;
  double yielded_ = 1;                       // tokens of a step, of each request
  std::unique_ptr<OtherFrameworks> others_;  // once asked for

  void lower_step(const Plan& plan);
  Seconds step_time(const PassTime& pass);
};

/// Time of a decode step or of a prefill by part of the layer, and how much communication was hidden.
struct Breakdown {
  // Along the critical path; each array sums to the pass latency.
  std::array<Seconds, static_cast<std::size_t>(Part::count)> parts{};
  std::array<Seconds, kOpKinds> kinds{};
  std::array<Seconds, kBases> bases{};  // what the time rests on
  std::array<std::array<Seconds, static_cast<std::size_t>(Part::count)>, kBases>
      basis_parts{};  // the same, by part
  std::array<std::array<Seconds, static_cast<std::size_t>(Part::count)>, kLimits>
      limit_parts{};              // what bounds each part
  Seconds exposed_communication;  // on the critical path
  Seconds hidden_communication;   // busy, but not on it
  Seconds waiting;                // time minus the pass: a microbatch waits for the slowest stage
  Seconds time;                   // TTL or TTFT
  ErrorTerms errors;              // in parts of `time` [P12]
  /// [P16] By the kernels of other frameworks; empty where it is said whose run.
  std::vector<FrameworkTime> others;

  /// Time that an op on the critical path has `taken`, `runs` times; its latency is overhead.
  void add(const CostModel& model, const Op& op, const OpCost& cost, Seconds taken, double runs = 1);
  void add(Part of, OpKind kind, Basis by, Seconds taken);
};
Breakdown break_down(Evaluator& evaluator, const Plan& plan);

}  // namespace shardline
