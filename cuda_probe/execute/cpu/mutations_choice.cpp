// Mutations of what an index chooses. Those of attention pass over attends to chosen keys: whether a key that
// they change was chosen, lists do not say.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

/// Rows below which all that a rank's candidates are may not be among the chosen.
constexpr std::int64_t kRows = 4;

bool has(const Dataflow& flow, int rank, Function function) {
  return std::any_of(flow.actions.begin(), flow.actions.end(),
                     [&](const Action& a) { return a.rank == rank && a.function == function; });
}

}  // namespace

bool chooses(const Dataflow& flow, const Action& a) {
  const std::vector<bool> seen = mask(flow, a);
  const auto keys = static_cast<std::ptrdiff_t>(rows(flow.token_list(a.keys)));
  const std::int64_t kept = flow.regions_of(a)[kSinks].columns / a.kv_heads * a.block;
  for (auto row = seen.begin(); keys > 0 && row != seen.end(); row += keys) {
    if (std::count(row, row + keys, true) > kept) return true;
  }
  return false;
}

bool choice_lost(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (!a.chosen || !chooses(flow, a)) return false;
    a.chosen = false;
    --a.regions;
    return true;
  });
}

namespace {

/// Whether an op of the block chooses into the slot, on any rank.
bool chooses_into(const Dataflow& flow, const Block& block, SlotId slot) {
  for (OpIndex op = block.first; op < block.last && op < flow.ops.size(); ++op) {
    const OpFlow& part = flow.ops[op];
    for (std::uint32_t i = part.first_action; i < part.first_action + part.actions; ++i) {
      const Function f = flow.actions[i].function;
      if ((f == Function::choose || f == Function::choose_among) &&
          flow.regions_of(flow.actions[i]).back().slot == slot)
        return true;
    }
  }
  return false;
}

/// All attends of the block that see what is in one slot see what is in the other, which nobody has written.
void forget(Dataflow& flow, const Block& block, SlotId slot, SlotId empty) {
  for (OpIndex op = block.first; op < block.last && op < flow.ops.size(); ++op) {
    const OpFlow part = flow.ops[op];
    for (std::uint32_t i = part.first_action; i < part.first_action + part.actions; ++i) {
      const Action& a = flow.actions[i];
      if (!a.chosen) continue;
      Region& seen = flow.regions[a.first_region + kSinks];
      if (seen.slot == slot) seen.slot = empty;
    }
  }
}

}  // namespace

bool earlier_choice_lost(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    const Action& a = flow.actions[i];
    if (!a.chosen || sees_nothing(flow, a)) return false;
    const SlotId slot = flow.regions_of(a)[kSinks].slot;
    const OpIndex op = op_of_action(flow, i);
    const auto block = std::find_if(s.blocks.begin(), s.blocks.end(),
                                    [&](const Block& b) { return b.first <= op && op < b.last; });
    if (block == s.blocks.end() || chooses_into(flow, *block, slot)) return false;
    const SlotId empty = flow.slot("a choice that does not arrive", flow.slots[slot].element_bytes);
    std::vector<Extent> extents;
    for (const Extent& e : flow.extents)
      if (e.slot == slot) extents.push_back({empty, e.rank, e.rows, e.columns});
    flow.extents.insert(flow.extents.end(), extents.begin(), extents.end());
    forget(flow, *block, slot, empty);
    return true;
  });
}

// Blocks of the request that has most of them: where there are few, any head chooses all.
std::int64_t most_blocks(const Dataflow& flow, const Action& a) {
  std::map<std::int32_t, std::set<std::int64_t>> blocks;
  for (const Interval& k : flow.token_list(a.keys))
    for (std::int64_t at = k.begin; at < k.end; at += k.stride) blocks[k.request].insert(at / a.block);
  std::size_t most = 0;
  for (const auto& [request, numbers] : blocks) most = std::max(most, numbers.size());
  return static_cast<std::int64_t>(most);
}

bool choice_by_another_head(Schedule& s, Random& random) {
  // The first, a query's own and one by its score are chosen: of fewer, two heads may well choose alike.
  constexpr std::int64_t kFewBlocks = 6;
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::block_scores) return false;
    Region& queries = flow.regions[a.first_region];
    const std::int64_t column = queries.column > 0 ? 0 : queries.columns;
    if (queries.rows < kRows || most_blocks(flow, a) < kFewBlocks ||
        !fits(flow, a.rank, {queries.slot, queries.row, queries.rows, column, queries.columns}))
      return false;
    queries.column = column;
    return true;
  });
}

bool own_block_left_to_chance(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::block_scores || a.local_blocks == 0) return false;
    std::int64_t here = 0;  // queries whose own key is on the rank
    for (const Interval& q : flow.token_list(a.queries)) {
      for (const Interval& k : flow.token_list(a.keys))
        here += q.request == k.request && k.begin < q.end && q.begin < k.end;
    }
    if (here < kRows) return false;
    a.local_blocks = 0;
    return true;
  });
}

bool chosen_positions_shifted(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::choose || has(flow, a.rank, Function::choose_among)) return false;
    Tokens keys = copy(flow, a.keys);
    for (Interval& k : keys) {
      ++k.begin;
      ++k.end;
    }
    a.keys = flow.tokens(keys);
    return true;
  });
}

namespace {

/// Whether all queries behind them attend to the rows that an action makes, and it makes some.
bool attended(const Dataflow& flow, const Action& made) {
  const auto regions = flow.regions_of(made);
  const Region& rows = regions.back();
  if (regions[1].rows == 0 || rows.rows == regions.front().rows) return false;
  return std::any_of(flow.actions.begin(), flow.actions.end(), [&](const Action& a) {
    return a.function == Function::attend && a.rank == made.rank && !a.chosen &&
           flow.regions_of(a)[1].slot == rows.slot;
  });
}

}  // namespace

bool rows_seen_early(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::attend || a.chosen || a.ratio == 1) return false;
    Action changed = a;
    changed.ratio = 1;
    if (mask(flow, changed) == mask(flow, a)) return false;
    a = changed;
    return true;
  });
}

bool rows_of_later_tokens(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::make_rows || !attended(flow, a)) return false;
    Tokens numbers = copy(flow, a.keys);
    for (Interval& n : numbers) {
      ++n.begin;
      ++n.end;
    }
    a.keys = flow.tokens(numbers);
    return true;
  });
}

bool gates_as_values(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::make_rows || !attended(flow, a)) return false;
    const auto old = flow.regions_of(a);
    std::vector<Region> regions(old.begin(), old.end());
    std::swap(regions[1], regions[2]);
    a.first_region = static_cast<std::uint32_t>(flow.regions.size());
    flow.regions.insert(flow.regions.end(), regions.begin(), regions.end());
    return true;
  });
}

bool candidates_of_one_rank(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::choose_among) return false;
    const auto old = flow.regions_of(a);
    std::vector<Region> regions(old.begin(), old.end());
    if (regions.back().rows < kRows) return false;
    const std::size_t ranks = regions.size() / 2 - 1, one = random() % ranks, other = (one + 1) % ranks;
    // Of blocks most are chosen whatever their scores: there the others' are left out.
    if (has(flow, a.rank, Function::block_scores)) {
      regions = {regions[2 * other], regions[2 * other + 1], regions[2 * ranks], regions[2 * ranks + 1]};
      a.regions = static_cast<std::uint32_t>(regions.size());
    } else {
      regions[2 * one] = regions[2 * other];
      regions[2 * one + 1] = regions[2 * other + 1];
    }
    a.first_region = static_cast<std::uint32_t>(flow.regions.size());
    flow.regions.insert(flow.regions.end(), regions.begin(), regions.end());
    return true;
  });
}

}  // namespace shardline::mutation
