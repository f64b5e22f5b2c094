// Prompts and answers on GPUs of their own: a pool that prefills, one that decodes, in the ratio that their
// rates ask for. planner/README.md [P22].
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/engines/prompt_step.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/serving/pool_loop.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

/// One plan of a pool that prefills, and what its steps take.
struct PrefillPool {
  Plan plan;
  PromptStep step;      // of a group, at most: what its launch files say
  PromptServer server;  // of so many prompts and fewer
  // Of pairs that rate_prefills() has seen, of the prompt's steps:
  ErrorTerms errors = {};  // in parts of them [P12]
  BoardWatts watts = {};   // while they take [P32]
};

/// Both pools in whole replicas of their plans.
struct WholePools {
  int prefill = 0, decode = 0, gpus = 0;  // replicas of each, GPUs of all; none: no pair fits
  double requests_per_s_gpu = 0;          // of all GPUs
};

/// Requests per second of so many replicas of both; nothing where these do not count.
using PoolRate = std::function<std::optional<double>(int prefill, int decode)>;
/// Replicas that may be: GPUs of one of each, at most so many GPUs of all, and so many that decode.
struct PoolLimits {
  int prefill_gpus = 1, decode_gpus = 1, gpus = 0, decoders = 0;
};
/// [P22] The smallest deployment that answers, per GPU, 95 % of `matched`; where none does, the one that
/// answers most per GPU. With more replicas that prefill, beside as many that decode, a rate per GPU rises
/// and then falls, and what does not count with some of them does not with fewer.
WholePools whole_pools(const PoolLimits& limits, double matched, const PoolRate& rate);

/// How the pool that decodes answers: by steps, each with a token of every request, or with drafts several.
struct PoolAnswer {
  Seconds step;
  double steps = 2;  // of an answer, the one of its first token among them
};

/// A plan that decodes beside the prefill pool that its engine pairs with it with which both answer most per
/// GPU.
struct PoolPair {
  Point decode;  // of decode steps alone; its time is TPOT
  PoolAnswer answer;
  PrefillPool prefill;
  Seconds path;                 // of a request to the engine
  Seconds handoff;              // of a request's KV from one pool to the other
  double users = 1;             // of one replica that prefills, who share it
  PoolLoop loop;                // of those
  double prefill_gpus = 0;      // for each GPU that decodes
  double output_per_s_gpu = 0;  // tokens of answers over the GPUs of both pools
  WholePools whole;             // within most_pool_gpus(); of pairs that fit_whole() has seen
  /// Likewise: over the network where the replicas that are best beside each other are more than a node has
  /// room for, though those that are best then may be fewer.
  Seconds whole_handoff;
  PoolLoop whole_loop;  // likewise
  double whole_output_per_s_gpu = 0;
  /// The same of one replica that prefills, in whole replicas.
  double whole_users() const {
    return static_cast<double>(whole.decode * (decode.plan.users() + decode.all_waiting())) / whole.prefill;
  }
  /// Requests per second of a GPU that prefills.
  double prefill_requests_per_s_gpu() const { return loop.requests_per_s / prefill.plan.gpus(); }
};

/// GPUs that both pools of a pair may have together: those that were asked for, of those of the system.
int most_pool_gpus(const Study& study);

/// Plans that prefill, of the study's prefill strategies and GPU counts, of which the engine starts a server
/// of a pair that fits, in a fixed order.
std::vector<Plan> prefill_plans(const Study& study);

/// A pool of each plan that prefills, of the study's strategies and of which the engine starts it: the most
/// requests per second of a GPU first, of equal ones the shortest prompt.
std::vector<PrefillPool> prefill_pools(const Study& study, int threads);

/// For every plan of the frontier of decode steps, ascending TPOT, the prefill pool that the engine pairs
/// with it [P21] with which both answer most per GPU, and the users who share one of its replicas then, of
/// those whose TTFT meets the study's target. Plans without one are left out, as are pairs of which not even
/// one replica each fits most_pool_gpus().
std::vector<PoolPair> pool_pairs(const Study& study, int threads);

/// The pair in whole replicas, whose TTFT meets the study's target, too.
void fit_whole(const Study& study, PoolPair& pair);

/// The errors and watts of the pairs' prefill pools.
void rate_prefills(const Study& study, std::vector<PoolPair>& pairs);

}  // namespace shardline
