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
/// The attends of step `sinks_at` count the sinks, where the problem has them.
Made ring_pass_kv_of(const std::string& name, Shards shards, Problem problem, int sinks_at = 0);
/// Queries go round; outputs and lse return by all_to_all.
Made ring_pass_q(const std::string& name, Shards shards, std::vector<std::int64_t> lengths);
Made ring_pass_q_of(const std::string& name, Shards shards, Problem problem);
/// Each rank gathers all KV.
Made gather_kv();
/// A layer of two ranks with all-reduce after attention and after the feed-forward.
Made tensor_layer();
/// Decoding of one token: MLA, the cache split by positions, heads exchanged, reduce-scatter and all-gather.
Made latent_decode();

/// Windows, chunks and sinks.
void add_kinds(std::vector<Made>& all);

std::vector<Made> all_made();

/// One rank, a layer of full attention and one of more heads with a window and sinks: a problem for each.
struct MadeOfKinds {
  std::string name;
  Schedule schedule;
  std::vector<Problem> problems;
};
MadeOfKinds layers_of_kinds();

}  // namespace shardline::testing
