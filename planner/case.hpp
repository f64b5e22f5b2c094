// What is to be served, on what: everything about a decode step but the plan.
#pragma once

#include <memory>

#include "hardware/system.hpp"
#include "models/model.hpp"
#include "models/routing.hpp"
#include "models/schedule.hpp"

namespace shardline {

struct Precision {
  Dtype weights = Dtype::fp4;
  Dtype kv = Dtype::fp4;
  Dtype math = Dtype::fp4;          // tensor-core arithmetic
  Dtype activations = Dtype::bf16;  // residual stream and messages
  Dtype dispatch = Dtype::fp4;      // tokens sent to experts
};

struct Case {
  Model model;
  System system;
  Precision precision;
  long long context = 0;  // cached tokens per request
  int kv_block = 16;      // tokens that round-robin KV concatenation keeps together (Helix, section 2.3)
  Bytes memory_limit{0};  // per GPU, all kinds together; 0: the device's capacity
  std::shared_ptr<const ExpertRouting> routing;  // null for dense models
};

/// Builds the routing tables of `model`.
Case make_case(Model model, System system, Precision precision, long long context, int kv_block,
               Routing routing);

/// Tokens on rank `shard` of `shards` after `tokens` tokens were appended round robin in blocks [P1]:
/// block*(T div (block*shards)) + clamp(T mod (block*shards) - block*shard, 0, block).
long long kv_tokens_on_shard(long long tokens, int shards, int block, int shard);

}  // namespace shardline
