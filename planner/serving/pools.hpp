// Prompts and answers on GPUs of their own: a pool that prefills, one that decodes, in the ratio that their
// rates ask for. planner/README.md [P22].
#pragma once

#include <optional>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

/// One plan of a pool that prefills: in each attention group as many prompts at a time as a step has the
/// budget for.
struct PrefillPool {
  Plan plan;
  Seconds prompt;  // of the steps that they share, the engine's host in it
  double requests_per_s_gpu = 0;
  ErrorTerms errors = {};  // of the prompt's steps, in parts of them [P12]
};

/// Both pools in whole replicas of their plans.
struct WholePools {
  int prefill = 0, decode = 0, gpus = 0;     // replicas of each, GPUs of all; none: no pair fits
  double requests_per_s_gpu = 0;             // of all GPUs
  double prefill_busy = 0, decode_busy = 0;  // part of the time; of the slower pool 1
};

/// A plan and what one replica of it answers.
struct Replica {
  int gpus = 1;
  double requests_per_s = 0;
};

/// [P22] The smallest deployment of at most `most_gpus` that answers, per GPU, 95 % of what pools in the
/// ratio of their rates do; where none does, the one that answers most per GPU.
WholePools whole_pools(const Replica& prefill, const Replica& decode, int most_gpus);

/// A plan that decodes beside the best prefill pool.
struct PoolPair {
  Point decode;  // of decode steps alone; its time is TPOT
  PrefillPool prefill;
  Seconds handoff;              // of a request's KV from one pool to the other
  Seconds ttft;                 // request path, prompt, hand-off and the first step
  double prefill_gpus = 0;      // for each GPU that decodes
  double output_per_s_gpu = 0;  // tokens of answers over the GPUs of both pools
  WholePools whole;             // within the GPUs of the system
  double whole_output_per_s_gpu = 0;
};

/// Time in which the KV of a request's prompt goes from the ranks of one plan to those of another, each byte
/// once: over NVLink where one domain holds both, else over the network; at the rate of the side with fewer
/// GPUs.
Seconds handoff_time(const Case& c, const Plan& prefill, const Plan& decode, long long tokens);

/// The plan whose GPUs prefill most requests of the study's workload, of strategies that prefill and of which
/// the engine starts it; equal ones: the shortest prompt. Nothing where none fits.
std::optional<PrefillPool> best_prefill_pool(const Study& study, int threads);

/// For every plan of the frontier of decode steps, ascending TPOT. Empty without a prefill pool.
std::vector<PoolPair> pool_pairs(const Study& study, int threads);

}  // namespace shardline
