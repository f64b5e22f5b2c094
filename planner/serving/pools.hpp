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
  long long prompts = 1;  // of all groups, that share steps
  Seconds prompt;         // of those steps, the engine's host in it
  double requests_per_s_gpu = 0;
  ErrorTerms errors =
      {};  // of the prompt's steps, in parts of them [P12]; of pairs that rate_prefills() has seen
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

/// A plan that decodes beside the best prefill pool that its engine pairs with it.
struct PoolPair {
  Point decode;  // of decode steps alone; its time is TPOT
  PrefillPool prefill;
  Seconds handoff;              // of a request's KV from one pool to the other
  Seconds ttft;                 // request path, prompt, hand-off, wait for room and the first step
  double prefill_gpus = 0;      // for each GPU that decodes
  double output_per_s_gpu = 0;  // tokens of answers over the GPUs of both pools
  WholePools whole;             // within the GPUs of the system
  double whole_output_per_s_gpu = 0;
};

/// Time in which the KV of a request's prompt goes from the ranks of one plan to those of another, each byte
/// once: over NVLink where one domain holds both, else over the network; at the rate of the side with fewer
/// GPUs.
Seconds handoff_time(const Case& c, const Plan& prefill, const Plan& decode, long long tokens);

/// A pool of each plan that prefills, of the study's strategies and of which the engine starts it: the most
/// requests per second of a GPU first, of equal ones the shortest prompt.
std::vector<PrefillPool> prefill_pools(const Study& study, int threads);

/// For every plan of the frontier of decode steps, ascending TPOT, the first prefill pool that the engine
/// pairs with it [P21] and whose TTFT meets the study's target. Plans without one are left out.
std::vector<PoolPair> pool_pairs(const Study& study, int threads);

/// The errors of the pairs' prefill pools.
void rate_prefills(const Study& study, std::vector<PoolPair>& pairs);

}  // namespace shardline
