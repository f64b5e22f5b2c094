// [P20] The machines of a server: each rank lies where it was priced, by the engines' own arithmetic.
#include "planner/engines/machines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using Ranks = std::vector<std::vector<int>>;  // of each machine

std::vector<int> range_of(int first, int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// engine/arg_utils.py (local_world_size, data_parallel_size_local) and config/parallel.py (nnodes_within_dp,
// node_rank_within_dp, local_world_size) of vLLM; nothing where it asserts.
std::optional<Ranks> by_nnodes(const Plan& p, int nnodes) {
  const int world = p.gpus(), within = world / p.dp;
  if (world % nnodes != 0) return std::nullopt;
  const int local = world / nnodes, dp_local = std::max(local / within, 1), dp_nodes = p.dp / dp_local,
            nodes_within = nnodes / dp_nodes;
  if (nodes_within == 0) return std::nullopt;
  Ranks out;
  for (int node = 0; node < nnodes; ++node) {
    std::vector<int> own;
    for (int i = 0; i < dp_local; ++i) {
      const int group = node * local / within + i, here = within / nodes_within;
      const auto ranks = range_of(group * within + here * (node % nodes_within), here);
      own.insert(own.end(), ranks.begin(), ranks.end());
    }
    out.push_back(own);
  }
  return out;
}

// Groups that each machine is told to start: --data-parallel-size-local from --data-parallel-start-rank on.
Ranks by_groups(const Plan& p, const Machines& m) {
  const int group = p.gpus() / p.dp;
  Ranks out;
  for (int node = 0; node < m.count; ++node)
    out.push_back(range_of(node * m.each, (node + 1 < m.count ? m.each : m.last) / group * group));
  return out;
}

// entrypoints/engine.py, _calculate_rank_ranges, of SGLang.
Ranks by_ranges(const Plan& p, int nnodes) {
  const int tp = p.ranks_per_stage();
  const int stages = std::max(p.pp / nnodes, 1), of_stage = std::max(nnodes / p.pp, 1),
            tp_here = tp / of_stage;
  Ranks out;
  for (int node = 0; node < nnodes; ++node) {
    std::vector<int> own;
    for (int s = 0; s < stages; ++s) {
      const auto ranks =
          range_of((stages * (node / of_stage) + s) * tp + tp_here * (node % of_stage), tp_here);
      own.insert(own.end(), ranks.begin(), ranks.end());
    }
    out.push_back(own);
  }
  return out;
}

bool is_filled(const Ranks& machines, int gpus, int most) {
  int next = 0;
  for (const auto& ranks : machines) {
    if (ranks != range_of(next, std::min(most, gpus - next))) return false;
    next += static_cast<int>(ranks.size());
  }
  return next == gpus;
}

// Every rank once, no more than its GPUs on a machine.
bool has_all(const Ranks& machines, int gpus, int most) {
  std::vector<int> all;
  for (const auto& ranks : machines) {
    if (static_cast<int>(ranks.size()) > most) return false;
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  return all == range_of(0, gpus);
}

std::vector<Plan> plans(int most) {
  std::vector<Plan> out;
  for (int gpus = 1; gpus <= most; ++gpus) {
    for (int pp = 1; pp <= gpus; ++pp) {
      for (int dp = 1; gpus % pp == 0 && dp <= gpus / pp; ++dp) {
        if (gpus / pp % dp != 0) continue;
        Plan p;
        p.pp = pp, p.dp = dp, p.tpa = gpus / pp / dp;
        out.push_back(p);
      }
    }
  }
  return out;
}

// Between machines of 8 no rank lies elsewhere than it was priced, and no plan is refused that would not.
TEST(Machines, P20RanksLieWhereTheyWerePriced) {
  const Case c = decode_case("llama-3.1-70b", "h200-hgx", 4096);
  int placed = 0, refused = 0;
  for (const Plan& p : plans(40)) {
    SCOPED_TRACE(to_string(p));
    const int gpus = p.gpus();
    if (const auto m = vllm_machines(c, p)) {
      const bool groups = p.dp > 1 && gpus / p.dp <= m->each;
      const auto ranks = groups ? std::optional(by_groups(p, *m)) : by_nnodes(p, m->count);
      ASSERT_TRUE(ranks);
      EXPECT_TRUE(is_filled(*ranks, gpus, 8));
      ++placed;
    } else {
      for (int n = 1; n <= 40; ++n) {
        const auto ranks = by_nnodes(p, n);
        EXPECT_FALSE(ranks && is_filled(*ranks, gpus, 8)) << n;
      }
      EXPECT_TRUE(p.dp == 1 || 8 % (gpus / p.dp) != 0);
      ++refused;
    }
    const auto m = sglang_machines(c, p);
    EXPECT_TRUE(!m || is_filled(by_ranges(p, m->count), gpus, 8));
    for (int n = 1; !m && n <= 40; ++n) EXPECT_FALSE(is_filled(by_ranges(p, n), gpus, 8)) << n;
  }
  EXPECT_GT(placed, 150);
  EXPECT_GT(refused, 200);
}

// Trays of one NVLink domain are alike: ranks may be spread over more of them than they fill, if those may be
// shared.
TEST(Machines, P20TraysHaveEqualParts) {
  Case c = decode_case("llama-3.1-70b", "gb200-nvl72", 4096);
  const Plan five = parse_plan("pipeline:pp=5"), six = parse_plan("tensor:tpa=6,tpf=6");
  EXPECT_FALSE(vllm_machines(c, five) || sglang_machines(c, five));
  EXPECT_EQ(vllm_machines(c, six), (Machines{2, 3, 3}));
  c.any_gpus = true;
  EXPECT_EQ(vllm_machines(c, five), (Machines{5, 1, 1}));
  EXPECT_EQ(sglang_machines(c, five), (Machines{5, 1, 1}));
  for (const Plan& p : plans(24)) {
    SCOPED_TRACE(to_string(p));
    const auto nodes = sglang_machines(c, p);
    EXPECT_TRUE(!nodes || has_all(by_ranges(p, nodes->count), p.gpus(), 4));
    const auto m = vllm_machines(c, p);
    if (!m) continue;
    const bool groups = p.dp > 1 && p.gpus() / p.dp <= m->each;
    const auto ranks = groups ? std::optional(by_groups(p, *m)) : by_nnodes(p, m->count);
    ASSERT_TRUE(ranks);
    EXPECT_TRUE(has_all(*ranks, p.gpus(), 4));
  }
}

TEST(Machines, P20TensorRtLlmFillsMachines) {
  const Case hgx = decode_case("llama-3.1-70b", "h200-hgx", 4096);
  EXPECT_EQ(trtllm_machines(hgx, parse_plan("pipeline:pp=12")), (Machines{2, 8, 4}));
  EXPECT_EQ(trtllm_machines(hgx, parse_plan("pipeline:pp=16")), (Machines{2, 8, 8}));
  const Case tray = decode_case("llama-3.1-70b", "gb200-nvl72", 4096);
  EXPECT_EQ(trtllm_machines(tray, parse_plan("pipeline:pp=6")), (Machines{2, 3, 3}));
  EXPECT_EQ(trtllm_machines(tray, parse_plan("pipeline:pp=5")), (Machines{2, 4, 1}));
}

}  // namespace
}  // namespace shardline
