#include "planner/layers/prefill_layout.hpp"

#include <algorithm>

#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

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

void rename(Tokens& list, const std::vector<std::int32_t>& names) {
  for (Interval& i : list) {
    if (i.request != kPadding) i.request = names[static_cast<std::size_t>(i.request)];
  }
}

void rename(ContextLayout& layout, const std::vector<std::int32_t>& names) {
  for (auto* lists : {&layout.fresh, &layout.queries, &layout.keys, &layout.results}) {
    for (Tokens& list : *lists) rename(list, names);
  }
  rename(layout.kept, names);
}

// Every rank keeps what new tokens see of the cached ones.
ContextLayout with_whole_caches(const ContextLayout& dealt, const std::vector<Segment>& requests,
                                const Reach& reach) {
  std::vector<long long> cached;
  for (const Segment& s : requests) cached.push_back(s.cached);
  ContextLayout out = without_cached_before(dealt, cached);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const long long first = first_seen(reach, requests[i]);
    if (first < cached[i]) out.kept.push_back({static_cast<std::int32_t>(i), first, cached[i]});
  }
  return out;
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

ContextLayout PrefillLayout::within(const Reach& reach, bool whole) const& {
  return PrefillLayout(*this).within(reach, whole);
}

ContextLayout PrefillLayout::within(const Reach& reach, bool whole) && {
  if (whole) {
    dealt = with_whole_caches(dealt, requests, reach);
  } else if (reach.local()) {
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

ChunkLayouts::ChunkLayouts(const Case& c, const Plan& p)
    : plan_(&p), left_(batch_requests(c, p)), held_(p.cp, static_cast<int>(left_.size())) {
  const Placement* const known = cached_placement(c, p);
  if (known != nullptr) held_ = *known;
  long long longest = 0;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    longest = std::max(longest, left_[i].fresh);
    if (known == nullptr && p.cp > 1) deal(p, held_, static_cast<int>(i), left_[i].cached);
  }
  const long long chunk = p[kPrefillChunk];
  SL_CHECK(chunk > 0, "chunks have tokens");
  count_ = static_cast<std::size_t>((longest + chunk - 1) / chunk);
}

std::optional<PrefillLayout> ChunkLayouts::next() {
  check_cancelled();  // to lower a chunk takes as long as a step
  const Plan& p = *plan_;
  PrefillLayout round;
  std::vector<Segment>& now = round.requests;
  std::vector<std::int32_t>& names = round.names;  // of the requests of this round, among all
  for (std::size_t i = 0; i < left_.size(); ++i) {
    Segment& r = left_[i];
    const long long fresh = std::min<long long>(r.fresh, p[kPrefillChunk]);
    if (fresh == 0) continue;
    now.push_back({r.cached, fresh});
    names.push_back(static_cast<std::int32_t>(i));
    r = {r.cached + fresh, r.fresh - fresh};
  }
  if (now.empty()) return std::nullopt;
  if (p.cp == 1) {
    round.dealt = layout_of(p, now, nullptr);
    return round;
  }
  const Placement before = held_.of(names);
  round.dealt = layout_of(p, now, &before);
  for (std::size_t i = 0; i < now.size(); ++i) deal(p, held_, names[i], now[i].fresh);
  return round;
}

}  // namespace shardline
