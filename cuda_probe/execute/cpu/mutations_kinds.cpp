// Mutations of what layers of several kinds add to attention: windows, chunks, sinks, kinds of inputs.
#include <algorithm>
#include <optional>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

/// Another reach of one attend, of one kind or of any but full attention. One that leaves the mask as it was
/// is no mutation: a window longer than the sequence.
template <class Change>
bool change_reach(Schedule& s, Random& random, std::optional<ReachKind> kind, Change change) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::attend || !a.reach.local() || (kind && a.reach.kind != *kind)) return false;
    Action changed = a;
    change(changed.reach);
    if ((changed.reach.sized() && changed.reach.tokens < 1) || mask(flow, changed) == mask(flow, a))
      return false;
    a = changed;
    return true;
  });
}

bool asks(const Dataflow& flow, const Action& a) {
  return a.function == Function::attend && !a.chosen && real_rows(flow.token_list(a.queries)) > 0;
}

/// The sinks that an attend reads from an input of its rank; null: from elsewhere.
Binding* sinks_read(Dataflow& flow, const Action& a) {
  if (!has_sinks(a) || !asks(flow, a)) return nullptr;
  const Region sinks = flow.regions_of(a)[kSinks];
  for (Binding& b : flow.inputs) {
    if (b.slot == sinks.slot && b.rank == a.rank && b.whole == Whole::sinks) return &b;
  }
  return nullptr;
}

}  // namespace

bool window_wider(Schedule& s, Random& random) {
  return change_reach(s, random, ReachKind::window, [](Reach& r) { ++r.tokens; });
}

bool window_narrower(Schedule& s, Random& random) {
  return change_reach(s, random, ReachKind::window, [](Reach& r) { --r.tokens; });
}

bool chunk_boundary_off(Schedule& s, Random& random) {
  const int by = random() % 2 == 0 ? 1 : -1;
  return change_reach(s, random, ReachKind::chunk, [&](Reach& r) { r.tokens += by; });
}

bool reach_lost(Schedule& s, Random& random) {
  return change_reach(s, random, std::nullopt, [](Reach& r) { r = {}; });
}

bool sinks_dropped(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (!has_sinks(a) || !asks(flow, a)) return false;
    --a.regions;
    return true;
  });
}

bool sinks_of_wrong_head(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Binding* b = sinks_read(flow, flow.actions[i]);
    if (b == nullptr) return false;
    const TokenView heads = flow.token_list(b->columns);
    const std::int64_t count = rows(heads);
    if (count < 2) return false;
    Tokens shifted = slice(heads, 1, count);
    const Tokens first = slice(heads, 0, 1);
    shifted.insert(shifted.end(), first.begin(), first.end());
    b->columns = flow.tokens(shifted);
    return true;
  });
}

bool sinks_counted_again(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    return at_random(flow.actions.size(), random, [&](std::size_t j) {
      Action& a = flow.actions[i];
      const Action& with = flow.actions[j];
      if (!asks(flow, a) || has_sinks(a) || a.heads != with.heads) return false;
      const Binding* theirs = sinks_read(flow, with);
      if (theirs == nullptr) return false;
      const Region from = flow.regions_of(with)[kSinks];
      Binding mine = *theirs;
      const Tokens heads = slice(flow.token_list(mine.columns), from.column, from.column + from.columns);
      mine.slot = flow.slot("sinks again", flow.slots[from.slot].element_bytes);
      mine.rank = a.rank;
      mine.columns = flow.tokens(heads);
      flow.size(mine.slot, mine.rank, 1, a.heads);
      flow.inputs.push_back(mine);
      const auto old = flow.regions_of(a);
      std::vector<Region> regions(old.begin(), old.end());
      regions.push_back({mine.slot, 0, 1, 0, a.heads});
      a.first_region = static_cast<std::uint32_t>(flow.regions.size());
      a.regions = static_cast<std::uint32_t>(regions.size());
      flow.regions.insert(flow.regions.end(), regions.begin(), regions.end());
      return true;
    });
  });
}

bool kind_exchanged(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  int kinds = 1;
  for (const Binding& b : flow.inputs) kinds = std::max(kinds, b.kind + 1);
  return at_random(flow.outputs.size(), random, [&](std::size_t i) {
    Binding& b = flow.outputs[i];
    if (kinds < 2) return false;
    b.kind = (b.kind + 1) % kinds;
    return true;
  });
}

}  // namespace shardline::mutation
