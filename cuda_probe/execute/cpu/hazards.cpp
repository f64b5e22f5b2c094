#include "cuda_probe/execute/cpu/hazards.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cpu/functions.hpp"

namespace shardline {

namespace {

struct Access {
  OpIndex op;
  Region region;
  bool write = false;
};

bool overlap(const Region& a, const Region& b) {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.column < b.column + b.columns &&
         b.column < a.column + a.columns;
}

using Accesses = std::map<std::pair<int, SlotId>, std::vector<Access>>;  // of (rank, slot), by op

Accesses accesses_of(const Dataflow& flow, const Block& block) {
  Accesses out;
  const auto add = [&](OpIndex op, int rank, const Region& r, bool write) {
    if (r.rows > 0 && r.columns > 0) out[{rank, r.slot}].push_back({op, r, write});
  };
  for (OpIndex op = block.first; op < block.last && op < flow.ops.size(); ++op) {
    const OpFlow& part = flow.ops[op];
    for (std::uint32_t i = 0; i < part.actions; ++i) {
      const Action& a = flow.actions[part.first_action + i];
      const auto regions = flow.regions_of(a);
      for (std::size_t r = 0; r < regions.size(); ++r)
        add(op, a.rank, regions[r], is_result(a.function, r, regions.size()));
    }
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow.moves[part.first_move + i];
      add(op, m.from, m.source, false);
      add(op, m.to, m.target, true);
    }
  }
  return out;
}

/// [op][earlier op] of a block: whether the earlier one must have ended on a rank. A way through other ranks
/// passes the same ops, so that one rank tells all, unless some op is of one member.
std::vector<std::vector<bool>> order_of(const Schedule& s, const Block& block, int rank) {
  const std::size_t n = block.last - block.first;
  std::vector<std::vector<bool>> after(n, std::vector<bool>(n, false));
  for (OpIndex op = block.first; op < block.last; ++op) {
    auto& mine = after[op - block.first];
    for (const OpIndex before : predecessors(s, block, op)) {
      if (!waits_for(s, op, before, rank)) continue;
      const auto& theirs = after[before - block.first];
      mine[before - block.first] = true;
      for (std::size_t i = 0; i < n; ++i) mine[i] = mine[i] || theirs[i];
    }
  }
  return after;
}

}  // namespace

std::vector<Hazard> hazards(const Schedule& s) {
  std::vector<Hazard> found;
  for (const BlockIndex b : block_order(s)) {
    const Block& block = s.blocks[b];
    const auto one_member = [&](const Op& op) { return op.member != kEveryMember; };
    const bool alike = std::none_of(s.ops.begin() + block.first, s.ops.begin() + block.last, one_member);
    std::vector<std::vector<std::vector<bool>>> orders;
    for (int r = 0; r < (alike ? 1 : ranks_of(s)); ++r) orders.push_back(order_of(s, block, r));
    std::map<std::tuple<OpIndex, OpIndex, int>, SlotId> pairs;
    for (const auto& [place, list] : accesses_of(*s.flow, block)) {
      const auto& after = orders[alike ? 0 : static_cast<std::size_t>(place.first)];
      for (std::size_t j = 0; j < list.size(); ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          const Access &x = list[i], &y = list[j];
          if (x.op == y.op || !(x.write || y.write) || after[y.op - block.first][x.op - block.first])
            continue;
          if (overlap(x.region, y.region)) pairs.emplace(std::tuple(x.op, y.op, place.first), place.second);
        }
      }
    }
    for (const auto& [pair, slot] : pairs)
      found.push_back({std::get<0>(pair), std::get<1>(pair), std::get<2>(pair), slot});
  }
  return found;
}

std::string to_string(const Schedule& s, const Hazard& h) {
  const auto name = [&](OpIndex op) { return "op " + std::to_string(op) + " '" + s.ops[op].name + "'"; };
  return name(h.first) + " and " + name(h.second) + ", rank " + std::to_string(h.rank) +
         ": nothing orders them, and both use slot '" + s.flow->slots[h.slot].name + "'";
}

}  // namespace shardline
