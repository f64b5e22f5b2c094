// Mutations of linear attention: its convolution, its state and its heads.
#include <algorithm>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

// Regions of Function::delta_rule and Function::convolve.
enum : std::size_t { kQueries, kKeys, kValues, kDecays, kBetas, kBefore, kSkip };
enum : std::size_t { kKept, kNew, kWeight, kConvolved, kWindows };

template <class Change>
bool change_regions(Schedule& s, Random& random, Function function, Change change) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    const Action& a = flow.actions[i];
    // Regions up to the state before are those of both rules.
    const bool rule = function == Function::delta_rule && a.function == Function::state_space;
    return (rule || a.function == function) &&
           change(a, std::span(flow.regions).subspan(a.first_region, a.regions));
  });
}

// Gives an input other rows of its whole matrix: each list shifted by `by` tokens, where there are some.
bool shift_rows(Dataflow& flow, SlotId slot, int rank, std::int64_t by) {
  for (Binding& b : flow.inputs) {
    if (b.slot != slot || b.rank != rank) continue;
    Tokens list = copy(flow, b.rows);
    const auto whole = [&](const Interval& i) { return i.begin + by >= 0; };
    if (list.empty() || !std::all_of(list.begin(), list.end(), whole)) return false;
    for (Interval& i : list) {
      i.begin += by;
      i.end += by;
    }
    b.rows = flow.tokens(list);
    return true;
  }
  return false;
}

}  // namespace

bool state_dropped(Schedule& s, Random& random) {
  return change_regions(s, random, Function::delta_rule, [](const Action&, std::span<Region> r) {
    if (r[kBefore].rows == 0) return false;
    r[kBefore].rows = 0;
    return true;
  });
}

bool state_of_earlier_token(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::delta_rule, [&](const Action& a, std::span<Region> r) {
    return r[kBefore].rows > 0 && shift_rows(flow, r[kBefore].slot, a.rank, -1);
  });
}

bool decay_of_wrong_token(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::delta_rule, [&](const Action& a, std::span<Region> r) {
    return shift_rows(flow, r[kDecays].slot, a.rank, -1);
  });
}

namespace {

// Other actions for those of an update of states at random: change(actions) says whether they are others.
template <class Change>
bool change_actions(Schedule& s, Random& random, Change change) {
  Dataflow& flow = *s.flow;
  return at_random(s.ops.size(), random, [&](std::size_t op) {
    if (op >= flow.ops.size() || s.ops[op].kind != OpKind::recur || flow.ops[op].actions == 0) return false;
    const OpFlow part = flow.ops[op];
    std::vector<Action> actions(flow.actions.begin() + part.first_action,
                                flow.actions.begin() + part.first_action + part.actions);
    if (!change(actions)) return false;
    flow.ops[op].first_action = static_cast<std::uint32_t>(flow.actions.size());
    flow.ops[op].actions = static_cast<std::uint32_t>(actions.size());
    flow.actions.insert(flow.actions.end(), actions.begin(), actions.end());
    return true;
  });
}

}  // namespace

bool decay_twice(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return change_actions(s, random, [&](std::vector<Action>& actions) {
    // An addition before the update that writes logarithms onto themselves, twice as large.
    Action twice;
    twice.function = Function::add;
    twice.rank = actions.front().rank;
    const Region decays = flow.regions_of(actions.front())[kDecays];
    // The first token of a request has no state to decay.
    if (decays.rows < 2 && flow.regions_of(actions.front())[kBefore].rows == 0) return false;
    twice.first_region = static_cast<std::uint32_t>(flow.regions.size());
    twice.regions = 3;
    flow.regions.insert(flow.regions.end(), 3, decays);
    actions.insert(actions.begin(), twice);
    return true;
  });
}

bool skip_lost(Schedule& s, Random& random) {
  return change_regions(s, random, Function::state_space, [](const Action&, std::span<Region> r) {
    // Another row of numbers in its place: the first token's steps.
    if (r[kBetas].rows == 0) return false;
    r[kSkip] = {r[kBetas].slot, r[kBetas].row, 1, r[kBetas].column, r[kBetas].columns};
    return true;
  });
}

bool convolution_rows_lost(Schedule& s, Random& random) {
  return change_regions(s, random, Function::convolve, [](const Action&, std::span<Region> r) {
    // All that a convolution reaches back to: the first new row multiplies the oldest.
    if (r[kKept].rows == 0 || r[kKept].rows + 1 != r[kWeight].rows) return false;
    ++r[kKept].row;
    --r[kKept].rows;
    return true;
  });
}

bool queries_as_keys(Schedule& s, Random& random) {
  return change_regions(s, random, Function::delta_rule, [](const Action&, std::span<Region> r) {
    std::swap(r[kQueries].column, r[kKeys].column);
    return true;
  });
}

bool key_head_of_another(Schedule& s, Random& random) {
  return change_regions(s, random, Function::delta_rule, [](const Action& a, std::span<Region> r) {
    // Keys of all heads of the rank stand behind all their queries.
    const std::int64_t all = r[kKeys].column - r[kQueries].column;
    if (all < 2 * a.qk_dim) return false;
    const std::int64_t next = r[kKeys].column + a.qk_dim;
    r[kKeys].column = next < 2 * all ? next : all;
    return true;
  });
}

bool betas_of_wrong_head(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.inputs.size(), random, [&](std::size_t i) {
    Binding& b = flow.inputs[i];
    const TokenView heads = flow.token_list(b.columns);
    const std::int64_t count = rows(heads);
    if (b.whole != Whole::beta || count < 2 || rows(flow.token_list(b.rows)) == 0) return false;
    Tokens turned = slice(heads, 1, count);
    const Tokens first = slice(heads, 0, 1);
    turned.insert(turned.end(), first.begin(), first.end());
    b.columns = flow.tokens(turned);
    return true;
  });
}

bool rolled_back_too_far(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.outputs.size(), random, [&](std::size_t i) {
    Binding& b = flow.outputs[i];
    if (b.whole != Whole::state) return false;
    Tokens list = copy(flow, b.rows);
    // Where drafts are verified: states of several tokens, each taken for that of the one before.
    const bool several =
        std::any_of(list.begin(), list.end(), [](const Interval& t) { return t.size() > 1; });
    const bool before = std::all_of(list.begin(), list.end(), [](const Interval& t) { return t.begin > 0; });
    if (!several || !before) return false;
    for (Interval& t : list) --t.begin, --t.end;
    b.rows = flow.tokens(list);
    return true;
  });
}

bool window_of_draft_forgotten(Schedule& s, Random& random) {
  return change_regions(s, random, Function::convolve, [](const Action& a, std::span<Region> r) {
    if (a.regions <= kWindows || r[kWindows].rows == 0) return false;
    --r[kWindows].rows;  // the last token's row is not kept, and those before it lie one off
    return true;
  });
}

bool state_written_twice(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return change_actions(s, random, [&](std::vector<Action>& actions) {
    // The first action once more, from the state that it left.
    const std::span<const Region> first = flow.regions_of(actions.front());
    std::vector<Region> regions(first.begin(), first.end());
    const Region& left = regions[regions.size() - 2];
    if (left.rows == 0) return false;
    regions[kBefore] = {left.slot, left.row + left.rows - 1, 1, left.column, left.columns};
    Action again = actions.front();
    again.first_region = static_cast<std::uint32_t>(flow.regions.size());
    flow.regions.insert(flow.regions.end(), regions.begin(), regions.end());
    actions.push_back(again);
    return true;
  });
}

}  // namespace shardline::mutation
