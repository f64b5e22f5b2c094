// Small schedules with data flow, written by hand.
#pragma once

#include <string>
#include <vector>

#include "cuda_probe/execute/cpu/reference.hpp"
#include "models/ir/schedule.hpp"

namespace shardline::testing {

struct Made {
  std::string name;
  Schedule schedule;
  Problem problem;
};

/// Tokens of each rank, filled up with padding to the rows of the longest.
using Shards = std::vector<Tokens>;

Made one_rank();
/// KV goes round; two receive buffers take turns; one merge at the end.
Made ring_pass_kv(const std::string& name, Shards shards, std::vector<std::int64_t> lengths);
/// Queries go round; outputs and lse return by all_to_all.
Made ring_pass_q(const std::string& name, Shards shards, std::vector<std::int64_t> lengths);
/// Each rank gathers all KV.
Made gather_kv();
/// A layer of two ranks with all-reduce after attention and after the feed-forward.
Made tensor_layer();
/// Decoding of one token: MLA, the cache split by positions, heads exchanged, reduce-scatter and all-gather.
Made latent_decode();

std::vector<Made> all_made();

}  // namespace shardline::testing
