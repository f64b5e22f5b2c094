// A pool of replicas that prefill beside the plan that `serve` plays, which then decodes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/handoff/transfer.hpp"
#include "planner/requests/pair.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/step_power.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/service_knobs.hpp"

namespace shardline {

/// The pool that prefills.
struct PrefillQuestion {
  Plan plan;
  int replicas = 1;
  std::vector<std::string> knobs;
  long long max_local = 0;  // tokens of prompts at most that stay with the plan that decodes
  const char* knobs_option = "prefill-knob";  // of the command line, that they were given with
  std::shared_ptr<const Study> on{};          // of another system; null: that of the plan that decodes
  const Study& study(const Study& decode) const { return on ? *on : decode; }
  int gpus() const { return plan.gpus() * replicas; }
  int groups() const { return plan.dp * replicas; }
};

/// A part of TTFT, seconds.
struct PairPart {
  double mean = 0, median = 0, p99 = 0;
};

/// What a load on a pair shows beside its latencies, which are of the whole.
struct ServedPair {
  int prefill_gpus = 0, decode_gpus = 0;
  double prefill_busy = 0, decode_busy = 0;        // of the replicas' time, 0 to 1: steps
  double prefill_dummies = 0, decode_dummies = 0;  // [R19] likewise dummy batches, of neither
  double prefill_kv = 0;                           // of the KV cache, most of any replica
  double sending = 0, reading = 0;                 // of the links' time, full, mean of replicas
  PairPart prompt, room, transfer, begin;          // [R12], one behind the other
  double tokens_read = 0;                          // of a request that is handed over, mean
  std::uint64_t local_prefills = 0;                // prompts that were not
  std::uint64_t given_up = 0;                      // waited, or kept blocks, longer than the engine does
  CacheWay way = CacheWay::none;                   // [R14] sent: as prompts are computed, room comes first
  std::uint64_t preemptions = 0;                   // of prompts
  // [R15] Where replicas die: of the time of those that prefill; what hand-offs lost, as of PairRun.
  double prefill_down = 0;
  std::uint64_t cut_transfers = 0, failed_loads = 0, recomputed = 0;
  double lost_tokens = 0;
  BoardWatts prefill_watts;     // [R39] of a board of those that prefill, mean
  ServedSeries prefill_series;  // of all replicas that prefill, over time
};

/// Whether servers of a pair are others than servers that do both, those that prefill and those that decode
/// each with knobs and memory of its own, so that plans that have prompts alone are among the former: under
/// SGLang and TensorRT-LLM. Under vLLM either is a server like others.
bool halves_apart(const Case& c);

/// The case of a server of a pair: what it computes and keeps where it does only one of both.
Case half_of_pair(const Case& c);

/// Tokens of the requests of a load.
struct LoadLengths {
  long long mean = 0;     // of a request and its answer
  long long longest = 0;  // of a prompt, at most; of a trace's those of a request, which no prompt exceeds
};

/// The knobs of such a server, service_knobs() of the case of one: under SGLang pages as its launch files say
/// them for both, a prompt a step where ranks share it, and a server that decodes has the places beside those
/// that run that the engine gives it. Under TensorRT-LLM blocks and buffers of hand-offs as launch files say
/// them, the latter for the longest prompt, and servers for prompts work without the overlap scheduler.
ServiceKnobs pair_knobs(const Case& c, const Plan& plan, PairRole role,
                        const std::vector<std::string>& overrides, const LoadLengths& load,
                        const char* option = "knob");

/// [R18] The attention groups of such a server, and how requests are dealt to them: those of SGLang's for
/// prompts by the room that the router draws, others in turn; [R19] vLLM's to the group with the fewest, and
/// its engines run dummy batches; [R21] TensorRT-LLM's from a queue, as its other servers.
ReplicaGroups pair_groups(const ServiceKnobs& knobs, const Plan& plan, PairRole role);

/// Those of settings for both pools that the one that prefills has.
std::vector<std::string> knobs_of_prefill(const std::vector<std::string>& of_both);

/// A server of a pair: what it runs on, and its plan.
struct PairServer {
  const Case& on;
  const Plan& plan;
};

/// Why the plans cannot be played as a pair; nothing where they can. Both systems may be one.
std::optional<std::string> no_pair(const PairServer& prefill, const PairServer& decode);

/// What a hand-off between two plans takes, of prompts of about so many tokens. `places`: of one system.
TransferRates handoff_rates(const PairServer& prefill, const PairServer& decode, long long prompt,
                            ReplicaPlaces places = ReplicaPlaces::beside);

/// Throws UserError of a server of SGLang's that prefills and is back before others have missed it [R15], and
/// of a policy for loads that fail where none does.
void require_noticed(const Case& c, const ServiceKnobs& decode, const std::vector<ReplicaFailure>& failures);

/// Both pools of a question, to be played as often as asked.
class PairPools {
 public:
  /// What is known of a plan that prefills from other plays: the times of its steps, which live as long as
  /// this, and what its hand-offs take.
  struct Known {
    const StepTimes* times = nullptr;
    TransferRates rates;
  };
  /// Throws UserError as no_pair() and where knobs of both do not go together. `prompt`: tokens of a prompt,
  /// mean. `knobs`: of the other pool, whose longest request becomes that of both, the smaller. `replicas`:
  /// that decode.
  PairPools(const Study& study, const PrefillQuestion& question, const Plan& decode, int replicas,
            ServiceKnobs& knobs, const LoadLengths& load, long long prompt, const Known& known);

  /// The pool that decodes, with its router, which is that of prompts, too; and what its steps yield.
  struct Answering {
    const StepTimes& times;
    int replicas;
    Router router;
    DraftLaw law;
  };
  PairRun play(const Answering& answering, const ClusterLoad& load, std::uint64_t requests,
               const PlayedEngine::Answered& answered, const std::function<void(std::uint64_t)>& step,
               const std::vector<ReplicaFailure>& failures = {}, ServedTimeline* timeline = nullptr) const;
  ServedPair told(const PairRun& run, int decode_gpus, double seconds) const;
  const ServiceKnobs& knobs() const { return knobs_; }
  const TransferRates& rates() const { return rates_; }

 private:
  const PrefillQuestion question_;
  const Plan decode_plan_;
  std::unique_ptr<Scheduler> scheduler(PairRole role, const DraftLaw& law) const;
  void agree(const Plan& prefill, ServiceKnobs& other);

  ServiceKnobs knobs_, decode_;
  TransferRates rates_;
  std::unique_ptr<PlanStepTimes> own_times_;  // where none are known
  const StepTimes* times_;
};

}  // namespace shardline
