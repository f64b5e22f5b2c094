// Replicas of a pair of pools that die and are back [R15]: what becomes of the requests that lose one.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/requests/pair_play.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void PairPlay::plan_failures() {
  for (const ReplicaFailure& f : failures_.all) {
    PairPool& pool = f.pool == ReplicaPool::prefill ? prefill_ : decode_;
    SL_CHECK(f.pool != ReplicaPool::only && f.replica < pool.size() && f.down < f.up && f.down >= Seconds(0),
             "a replica of one of both pools dies and is back later");
    events_.push_back({f.down, &pool, f.replica, false});
    if (f.up.value < kNoPairEvent) events_.push_back({f.up, &pool, f.replica, true});
  }
  // Of equal times who is back first: others' requests may go there.
  std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.time < b.time || (a.time == b.time && a.up && !b.up);
  });
  for (PairPool* p : {&prefill_, &decode_})
    for (std::size_t i = 0; i < p->size(); ++i) let_die(*p, i);
}

void PairPlay::let_die(PairPool& pool, std::size_t i) {
  const auto dies = std::find_if(events_.begin() + static_cast<std::ptrdiff_t>(next_event_), events_.end(),
                                 [&](const Event& e) { return e.pool == &pool && e.replica == i && !e.up; });
  if (dies != events_.end()) pool.engines[i]->die_at(dies->time);
}

// Nobody is there to notice those after the last answer.
Seconds PairPlay::next_failure() const {
  const bool over = !more_ && done_ + refused_ == out_.sent;
  return over || next_event_ == events_.size() ? Seconds(kNoPairEvent) : events_[next_event_].time;
}

void PairPlay::happen(const Event& e) {
  PairPool& pool = *e.pool;
  // Who is answered in a step that is under way is answered, whatever becomes of others.
  for (PairPool* p : {&decode_, &prefill_})
    for (std::size_t i = 0; i < p->size(); ++i)
      if (p->up(i)) touch(*p, i, e.time);
  if (!e.up) {
    go_down(pool, e.replica, e.time);
    return;
  }
  std::vector<Scheduler*> own;
  for (std::size_t g = 0; g < pool.groups.count; ++g) {
    pool.renewed[pool.at(e.replica, g)] = failures_.scheduler(pool.which);
    own.push_back(pool.renewed[pool.at(e.replica, g)].get());
  }
  pool.start(e.replica, own, e.time);
  let_die(pool, e.replica);
  pool.router.up(e.replica);
  for (PairWay& w : std::exchange(homeless_, {})) {
    w.request.arrival = e.time;
    give(std::move(w), e.time);
  }
}

// Attempts that replica i of the pool has anything of, in the order in which their requests were sent first.
std::vector<PairWayId> PairPlay::ways_at(const PairPool& pool, std::size_t i) const {
  std::vector<PairWayId> out;
  for (PairWayId id = 0; id < ways_.end(); ++id) {
    const PairWay& w = ways_[id];
    if (w.serial == 0) continue;
    const bool is_there = &pool == &prefill_ ? w.from == i && !w.request.local_prefill && !w.cache_gone
                                             : w.to == i && w.at_decode;
    if (is_there) out.push_back(id);
  }
  std::sort(out.begin(), out.end(), [&](PairWayId a, PairWayId b) {
    return ways_[a].place != ways_[b].place ? ways_[a].place < ways_[b].place
                                            : ways_[a].serial < ways_[b].serial;
  });
  return out;
}

void PairPlay::go_down(PairPool& pool, std::size_t i, Seconds at) {
  std::vector<std::uint64_t> cut;
  for (std::size_t g = 0; g < pool.groups.count; ++g) {
    const std::size_t end = pool.at(i, g);
    for (const TransferLinks::Cut& c :
         &pool == &prefill_ ? links_.cut_sender(at, end) : links_.cut_receiver(at, end)) {
      PairWay& w = ways_[static_cast<PairWayId>(c.number)];
      --w.flows;
      w.cut += c.left;
      cut.push_back(c.number);
    }
  }
  std::sort(cut.begin(), cut.end());
  out_.cut_transfers +=
      static_cast<std::uint64_t>(std::distance(cut.begin(), std::unique(cut.begin(), cut.end())));
  const std::vector<PairWayId> there = ways_at(pool, i);
  pool.router.down(i);
  pool.end(i);
  std::vector<PairWay> again;
  for (const PairWayId id : there) {
    PairWay way = copy(id);
    if (loses(pool, id, at)) again.push_back(std::move(way));
  }
  for (PairWay& w : again) send_again(std::move(w), at);
}

// Who is sent again may come to a replica that has computed its prompt and knows it: text of which a load
// says nothing is its own.
void PairPlay::name_text(PairWay& way) {
  constexpr std::uint64_t kOwn = std::uint64_t{1} << 62;
  constexpr int kBlocks = 24;  // bits of their numbers
  if (!way.request.blocks.empty()) return;
  for (std::int64_t b = 0; b * kTraceBlock < way.request.input; ++b)
    way.request.blocks.push_back(kOwn | (way.place << kBlocks) | static_cast<std::uint64_t>(b));
}

// An engine has failed it.
void PairPlay::fail(PairWayId id, Seconds at) {
  PairWay way = copy(id);
  decode_.router.answers(way.to, static_cast<double>(way.request.input), at);
  forget(id);
  send_again(std::move(way), at);
}

void PairPlay::send_again(PairWay way, Seconds now) {
  ++out_.retried;
  PairWay fresh;
  fresh.request = std::move(way.request);
  fresh.request.arrival = now;
  fresh.arrival = way.arrival;
  fresh.place = way.place;
  give(std::move(fresh), now);
}

void PairPlay::give(PairWay&& way, Seconds now) {
  way.request.local_prefill = way.request.input <= max_local_prefill_;
  if (any_up(!way.request.local_prefill))
    route(std::move(way), now);
  else
    homeless_.push_back(std::move(way));
}

PairWayId PairPlay::add(PairWay&& way) {
  way.serial = ++attempts_;
  way.text = texts_.keep(way.request.blocks);
  std::vector<std::uint64_t>().swap(way.request.blocks);  // {} would leave it its memory
  return ways_.add(std::move(way));
}

TraceRequest& PairPlay::whole(const PairWay& way) {
  std::vector<std::uint64_t> blocks = std::move(whole_.blocks);  // its memory
  blocks.assign(way.text.begin(), way.text.end());
  whole_ = way.request;
  whole_.blocks = std::move(blocks);
  return whole_;
}

PairWay PairPlay::copy(PairWayId id) const {
  PairWay out = ways_[id];
  out.request.blocks.assign(out.text.begin(), out.text.end());
  out.text = {};
  return out;
}

void PairPlay::forget(PairWayId id, bool answered) {
  PairWay& w = ways_[id];
  if (answered)
    out_.tokens_read += w.tokens;
  else
    out_.lost_tokens += static_cast<double>(w.tokens) - w.cut;
  texts_.drop(w.text);
  ways_.forget(id);
}

}  // namespace shardline
