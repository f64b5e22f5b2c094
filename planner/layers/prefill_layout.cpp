#include "planner/layers/prefill_layout.hpp"

#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

void deal(const Plan& p, Placement& to, int request, long long fresh) {
  if (fresh == 0) return;
  const auto own = strategy(p.strategy).deal;
  own ? own(to, p, request, fresh) : to.prefill(request, fresh);
}

ContextLayout layout_of(const Plan& p, const std::vector<Segment>& requests, const Placement* before) {
  if (const auto own = strategy(p.strategy).layout) return own(p, requests);
  return dealt_layout(requests, p.cp, before,
                      [&](Placement& to, int request, long long fresh) { deal(p, to, request, fresh); });
}

void rename(ContextLayout& layout, const std::vector<std::int32_t>& names) {
  for (auto* lists : {&layout.fresh, &layout.queries, &layout.keys, &layout.results}) {
    for (Tokens& list : *lists) {
      for (Interval& i : list) {
        if (i.request != kPadding) i.request = names[static_cast<std::size_t>(i.request)];
      }
    }
  }
}

}  // namespace

std::vector<Segment> batch_requests(const Case& c, const Plan& p) {
  std::vector<Segment> all;
  for (int i = 0; i < p.batch; ++i) {
    for (const Segment& s : c.batch.prefill)
      all.insert(all.end(), static_cast<std::size_t>(s.count), {s.cached, s.fresh});
  }
  return all;
}

const Placement* cached_placement(const Case& c, const Plan& p) {
  // A placement is of one batch entry: with more, each was prefilled in one turn.
  return p.batch == 1 ? c.placement.get() : nullptr;
}

ContextLayout PrefillLayout::within(const Reach& reach) const& { return PrefillLayout(*this).within(reach); }

ContextLayout PrefillLayout::within(const Reach& reach) && {
  if (reach.local()) {
    std::vector<long long> first;
    for (const Segment& s : requests) first.push_back(first_seen(reach, s));
    dealt = without_cached_before(dealt, first);
  }
  if (!names.empty()) rename(dealt, names);
  return std::move(dealt);
}

PrefillLayout step_layout(const Case& c, const Plan& p) {
  PrefillLayout layout;
  layout.requests = batch_requests(c, p);
  layout.dealt = layout_of(p, layout.requests, cached_placement(c, p));
  const auto before = static_cast<std::int32_t>(decode_requests(c, p)) * p.dp;
  for (std::size_t i = 0; before > 0 && i < layout.requests.size(); ++i)
    layout.names.push_back(before + static_cast<std::int32_t>(i));
  return layout;
}

std::vector<PrefillLayout> chunk_layouts(const Case& c, const Plan& p) {
  std::vector<PrefillLayout> rounds;
  std::vector<Segment> left = batch_requests(c, p);
  const auto count = static_cast<int>(left.size());
  const Placement* const known = cached_placement(c, p);
  Placement held = known ? *known : Placement(p.cp, count);
  for (int i = 0; !known && p.cp > 1 && i < count; ++i)
    deal(p, held, i, left[static_cast<std::size_t>(i)].cached);
  while (true) {
    check_cancelled();
    PrefillLayout round;
    std::vector<Segment>& now = round.requests;
    std::vector<std::int32_t>& names = round.names;  // of the requests of this round, among all
    for (int i = 0; i < count; ++i) {
      Segment& r = left[static_cast<std::size_t>(i)];
      const long long fresh = std::min<long long>(r.fresh, p[kPrefillChunk]);
      if (fresh == 0) continue;
      now.push_back({r.cached, fresh});
      names.push_back(i);
      r = {r.cached + fresh, r.fresh - fresh};
    }
    if (now.empty()) return rounds;
    if (p.cp == 1) {
      round.dealt = layout_of(p, now, nullptr);
    } else {
      const Placement before = held.of(names);
      round.dealt = layout_of(p, now, &before);
      for (std::size_t i = 0; i < now.size(); ++i) deal(p, held, names[i], now[i].fresh);
    }
    rounds.push_back(std::move(round));
  }
}

}  // namespace shardline
