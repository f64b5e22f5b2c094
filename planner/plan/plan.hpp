// A plan: one way to shard one decode step. Its canonical text ("helix:kvp=8,tpa=8,tpf=64,batch=4") parses
// back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/index.hpp"

namespace shardline {

/// Row of the table of strategies (planner/strategies/table.cpp).
using StrategyId = Index<struct StrategyTag>;

/// Optional keys of a plan. A strategy names those that it reads; any other is refused.
enum class PlanKey : std::uint8_t {
  kvp,
  value_up,
  chunks,
  prefill_chunk,
  partition,
  layout,
  anchor,
  passing,
  query,
  retaining,
  vertical,
  slash,
  estimate
};
inline constexpr std::size_t kPlanKeys = 13;

/// An option of one strategy alone, written in its file. Of words the first is what a plan without it has; of
/// numbers 0 is.
struct Option {
  const char* key;
  const char* help;
  int least = 1, most = 1'000'000;          // of a number
  std::span<const char* const> words = {};  // none: a number
};
inline constexpr std::size_t kMostOptions = 2;

/// Where MLA's value up-projection W_UV runs relative to the exchange of partial outputs: before it (every
/// KVP rank holds all of W_UV and sends v_dim values per head) or after it (W_UV sharded, kv_lora values per
/// head sent).
enum class ValueUp : unsigned char { none, before, after };

/// Which new tokens of a sequence a context-parallel rank takes: two chunks that balance the causal mask
/// ([C1]), or one block.
enum class ShardOrder : unsigned char { zigzag, contiguous };
/// Of a plan without a partition. searched: whoever compares plans looks for the best one; a schedule takes
/// equal parts.
enum class Parts : unsigned char { searched, even };

struct Plan {
  StrategyId strategy;
  int pp = 1;   // pipeline stages
  int dp = 1;   // attention data-parallel groups
  int kvp = 1;  // KV (sequence) shards
  int cp = 1;   // context-parallel ranks: each holds part of the tokens, and all weights of its TP rank
  int tpa = 1;  // tensor parallelism of attention
  int ep = 1;   // expert-parallel groups
  int tpf = 1;  // tensor parallelism inside a dense FFN or an expert
  int dense_tp =
      0;  // ranks that share a dense FFN; 0: of an attention group (its TP ranks if they hold copies)
  ValueUp value_up = ValueUp::none;
  int chunks = 1;     // HOP-B: chunks of requests whose exchange overlaps the next chunk's attention; 1: off
  int in_flight = 1;  // microbatches circulating through the stages
  int batch = 1;      // requests per attention group and microbatch
  int prefill_chunk = 0;             // tokens of a request that pass the layers at a time; 0: all of them
  std::vector<long long> partition;  // tokens of a sequence per context-parallel rank; empty: see `parts`
  Parts parts = Parts::searched;
  ShardOrder layout = ShardOrder::zigzag;
  // Approximate strategies; 0: not used. In tokens, but `retaining`.
  int anchor = 0;     // apb: first tokens of the document that every later host repeats
  int passing = 0;    // apb: tokens per host whose KV goes to the hosts after it
  int query = 0;      // apb, star: query tokens in front of the anchor
  int retaining = 0;  // apb: inner width of the heads that score tokens
  int vertical = 0;   // sparse: columns that every later query sees
  int slash = 0;      // sparse: diagonals, so last tokens that a query sees
  int estimate = 0;   // sparse: last queries that choose both
  // Options of the strategy, in the order of its row; of words the index.
  std::array<int, kMostOptions> options{};

  int ranks_per_stage() const { return dp * kvp * cp * tpa; }
  int group() const { return kvp * cp * tpa; }  // ranks that serve one request's attention
  int gpus() const { return pp * ranks_per_stage(); }
  long long users() const { return static_cast<long long>(in_flight) * dp * batch; }

  bool operator==(const Plan&) const = default;
};

std::string_view to_string(StrategyId id);

/// Canonical text: every degree above 1, then batch, in a fixed order; a partition as 3584/2611/2150/1895 or
/// even.
std::string to_string(const Plan& plan);

/// Parses canonical text. Throws UserError naming the bad key or value, the expected form and the nearest
/// name.
Plan parse_plan(std::string_view text);

}  // namespace shardline
