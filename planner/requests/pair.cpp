// Both pools of a pair from event to event: what both kinds of hand-off share.
#include "planner/requests/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Replicas of both pools are one after another, those that prefill first.
PairPool::Stepped shown(ServedTimeline* timeline, std::size_t first) {
  if (timeline == nullptr) return {};
  return [timeline, first](std::size_t i, const PlayedStep& s) { timeline->add(first + i, s); };
}

}  // namespace

PairPlay::PairPlay(const PairParts& parts)
    : load_(parts.load),
      prefill_(
          parts.prefill, ReplicaPool::prefill,
          [this](std::size_t i, const AnsweredRequest& a) { prefilled(i, a); }, shown(parts.timeline, 0)),
      decode_(
          parts.decode, ReplicaPool::decode, [this](std::size_t i, const AnsweredRequest& a) { leave(i, a); },
          shown(parts.timeline, prefill_.size())),
      max_local_prefill_(parts.decode.max_local_prefill),
      links_(parts.links, prefill_.schedulers.size(), decode_.schedulers.size()),
      answered_(parts.answered),
      failures_(parts.failures),
      timeline_(parts.timeline) {
  plan_failures();
}

PairRun PairPlay::run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step) {
  requests_ = requests;
  more_ = requests > 0;
  for (std::uint64_t events = 0;; ++events) {
    check_cancelled();
    if (step && events % 256 == 0) step(done_);
    if (!next_event()) break;
  }
  if (done_ + refused_ + homeless_.size() < out_.sent) stands_still();
  finish();
  return std::move(out_);
}

// The earliest of all; of equally early ones ends of stretches, then ends of hand-offs, then who comes to an
// engine, then replicas that die or are back, then routers and what is sent, then engines that begin: first
// those that decode, as they tell the others of room.
bool PairPlay::next_event() {
  enum class Next : std::uint8_t { ends, links, comes, fails, between, sends, begins };
  const auto earlier = [&](FirstDue PairPool::*of) -> PairPool& {
    return (prefill_.*of).time() < (decode_.*of).time() ? prefill_ : decode_;
  };
  PairPool& ends = earlier(&PairPool::ends);
  PairPool& comes = earlier(&PairPool::arrivals);
  PairPool& begins = earlier(&PairPool::begins);
  Next next = Next::ends;
  Seconds first = ends.ends.time();
  const auto or_before = [&](Seconds time, Next what) {
    if (!(time < first)) return;
    first = time;
    next = what;
  };
  or_before(links_.next(), Next::links);
  or_before(comes.arrivals.time(), Next::comes);
  or_before(next_failure(), Next::fails);
  if (!between_.empty()) or_before(between_.top().at, Next::between);
  if (more_) or_before(load_.arrivals->next_time(), Next::sends);
  or_before(begins.begins.time(), Next::begins);
  if (first.value == kNoPairEvent) return false;
  switch (next) {
    case Next::ends:
      touch(ends, ends.ends.which(), first);
      break;
    case Next::links:
      end_transfer();
      break;
    case Next::comes:
      arrive(comes, comes.arrivals.which());
      break;
    case Next::fails:
      happen(events_[next_event_++]);
      break;
    case Next::between:
      go_between();
      break;
    case Next::sends:
      send();
      break;
    case Next::begins:
      begin(begins, begins.begins.which());
      break;
  }
  return true;
}

void PairPlay::go_between() {
  const Between b = between_.top();
  between_.pop();
  if (ways_[b.way].serial != b.serial) return;  // nothing of that attempt is left
  switch (b.kind) {
    case Between::Kind::hand_off:
      return pass(b);
    case Between::Kind::frees:
      return free_lost(b.way, b.at);
    case Between::Kind::again:
      return fail(b.way, b.at);
  }
}

void PairPlay::send() {
  PairWay w;
  w.arrival = load_.arrivals->take();
  if (!load_.request(w.request)) {
    more_ = false;
    return;
  }
  waits_.emplace_back(w.arrival.time, waiting() + static_cast<double>(homeless_.size()));
  w.request.arrival = w.arrival.time + load_.path;
  out_.last_sent = w.arrival.time;
  w.place = w.request.number = out_.sent;
  if (!never_fails()) name_text(w);
  more_ = ++out_.sent < requests_;
  const Seconds now = w.arrival.time;
  give(std::move(w), now);
}

double PairPlay::waiting_in(const PairPool& pool) const {
  double out = 0;
  for (const auto& e : pool.engines) out += e ? static_cast<double>(e->waiting()) : 0;
  return out;
}

void PairPlay::arrive(PairPool& pool, std::size_t i) {
  // Whoever comes into a stretch waits for the end of the step that is under way.
  if (pool.engines[i]->open()) {
    touch(pool, i, pool.arrivals.time());
    return;
  }
  const PairWayId id = pool.take_coming(i);
  const bool is_taken = take(pool, i, id);
  pool.look(i);
  if (is_taken) {
    taken(pool, id);
    return;
  }
  const PairWay& w = ways_[id];
  SL_CHECK(may_refuse(pool, w), "who is refused is refused first");
  if (load_.closed) load_.arrivals->completed(w.arrival, std::max(pool.engines[i]->now(), w.arrival.time));
  forget(id);
  ++refused_;
}

bool PairPlay::take(PairPool& pool, std::size_t i, PairWayId id) {
  PairWay& w = ways_[id];
  TraceRequest& request = whole(w);
  if (&pool == &prefill_) {
    request.output = 1;  // and the answer is thrown away, or goes with the cache
    w.came = true;
  }
  if (!pool.engines[i]->take(request, w.arrival.time)) return false;
  if (!pool.engines[i]->queues()) in_group(pool, i, id, pool.engines[i]->taken_by());
  pool.ways[i].push_back(id);
  pool.router.took(i, static_cast<double>(w.request.input));
  return true;
}

void PairPlay::in_group(PairPool& pool, std::size_t i, PairWayId id, std::size_t group) {
  PairWay& w = ways_[id];
  std::vector<PairWayId>& there = pool.group_ways[pool.at(i, group)];
  (&pool == &prefill_ ? w.group : w.group_to) = group;
  (&pool == &prefill_ ? w.number : w.number_to) = there.size();
  there.push_back(id);
}

// [R21] Whoever waited in front of an engine's groups is in one when steps are decided.
void PairPlay::take_dealt(PairPool& pool, std::size_t i) {
  for (const Dealt& d : pool.engines[i]->dealt()) in_group(pool, i, pool.ways[i][d.request], d.group);
}

// In both pools by its place among all.
void PairPlay::show(std::size_t replica, AnsweredRequest a, const PairWay& way) {
  if (timeline_ == nullptr) return;
  a.number = way.place;
  timeline_->add(replica, a);
}

void PairPlay::prefilled(std::size_t i, const AnsweredRequest& a) {
  const PairWayId id = prefill_.ways[i][a.number];
  PairWay& w = ways_[id];
  w.prefilled = a.last;
  w.computed = true;
  show(i, a, w);
  prefill_.router.answers(i, static_cast<double>(a.prompt), a.last);
  computed(id);
}

void PairPlay::begin(PairPool& pool, std::size_t i) {
  pool.engines[i]->begin();
  take_dealt(pool, i);
  notice_circles(*pool.engines[i]);
  went_on(pool, i);
  pool.look(i);
}

// Engines that compute the same for ever have no end: where no other one begins, and nothing is to come from
// outside, nobody will ever be answered. An engine between two of its circles may begin as if it went on, but
// not so often.
void PairPlay::notice_circles(const PlayedEngine& engine) {
  constexpr std::uint64_t kOften = 1000;
  const bool to_come = more_ || !between_.empty() || next_failure().value != kNoPairEvent ||
                       links_.next().value != kNoPairEvent ||
                       std::min(prefill_.arrivals.time(), decode_.arrivals.time()).value != kNoPairEvent;
  circling_ = engine.circles() && !to_come ? circling_ + 1 : 0;
  if (circling_ > kOften) stands_still();
}

void PairPlay::touch(PairPool& pool, std::size_t i, Seconds at) {
  if (!pool.engines[i]->open()) return;
  pool.engines[i]->end(at);
  went_on(pool, i);
  pool.look(i);
}

const std::vector<std::pair<PairWayId, std::uint32_t>>& PairPlay::take_reads(std::size_t i) {
  reading_.clear();
  for (std::size_t g = 0; g < decode_.groups.count; ++g) {
    reads_.clear();
    decode_.schedulers[decode_.at(i, g)]->take_reads(reads_);
    for (const Scheduler::Read& r : reads_) {
      const PairWayId id = decode_.group_ways[decode_.at(i, g)][r.number];
      PairWay& w = ways_[id];
      w.to = i;
      w.reads = decode_.engines[i]->decided_at();
      if (readers_.size() <= id) readers_.resize(id + 1);
      readers_[id] = r.id;
      reading_.emplace_back(id, r.tokens);
    }
  }
  return reading_;
}

void PairPlay::begin_transfer(Seconds at, PairWayId id, std::uint32_t tokens) {
  PairWay& w = ways_[id];
  ++w.flows;
  w.tokens += tokens;
  links_.begin(at, prefill_.at(w.from, w.group), decode_.at(w.to, w.group_to), tokens, id);
}

void PairPlay::end_transfer() {
  const Seconds at = links_.next();
  const std::optional<std::uint64_t> ended = links_.step();
  if (!ended) return;
  const auto id = static_cast<PairWayId>(*ended);
  PairWay& w = ways_[id];
  if (--w.flows > 0 || !w.all_sent) return;
  handed_over(id, at);
  carried(id, at);
}

void PairPlay::handed_over(PairWayId id, Seconds at) {
  PairWay& w = ways_[id];
  w.there = at;
  w.handed = true;
  touch(decode_, w.to, at);
  decode_.schedulers[decode_.at(w.to, w.group_to)]->has_read(readers_[id]);
  decode_.wake(w.to, at);
  release(w, at);
}

void PairPlay::release(const PairWay& way, Seconds at) {
  touch(prefill_, way.from, at);
  const PlayedEngine& from = *prefill_.engines[way.from];
  const bool at_once = (from.idle() || from.asleep()) && from.now() <= at;
  prefiller(way).was_read(way.number, at_once);
  prefill_.wake(way.from, at);
}

void PairPlay::leave(std::size_t i, const AnsweredRequest& a) {
  ++done_;
  const PairWayId id = decode_.ways[i][a.number];
  PairWay& w = ways_[id];
  decode_.router.answers(i, static_cast<double>(a.prompt), a.last);
  if (w.request.local_prefill)
    ++out_.local_prefills;
  else
    note_parts(w, a.first);
  if (load_.closed) load_.arrivals->completed(w.arrival, a.last);
  show(prefill_.size() + i, a, w);
  forget(id, true);
  if (answered_) answered_(a);
}

void PairPlay::stands_still() const {
  const Stand s = stand();
  throw PairStops({Diagnostic{
      {},
      fmt::format(
          "{} of {} requests are never answered: {}", out_.sent - done_ - refused_ - homeless_.size(),
          out_.sent,
          circling_ > 0
              ? "one computes the same part of its prompt again and again, as there are no blocks for the "
                "rest or its drafts, and those that hold them wait for it"
              : fmt::format("in a replica that decodes one that lost its KV {} waits in front of those that "
                            "have {}, and the scheduler's own rules go past neither",
                            s.holds, s.others)),
      {fmt::format("an engine may stand still so, too: give the replicas that decode more {}, or fewer "
                   "requests at once (planner/requests/README.md {})",
                   s.holds, s.rules)}}});
}

void PairPlay::finish() {
  add_waiting(waits_, out_.waiting, out_.begins);
  Seconds end;
  for (PairPool* p : {&prefill_, &decode_}) {
    for (std::size_t i = 0; i < p->size(); ++i) {
      if (p->up(i)) p->end(i);
      end = std::max(end, p->past[i].end);
    }
  }
  for (const ReplicaFailure& f : failures_.all)
    (f.pool == ReplicaPool::prefill ? out_.prefill_down : out_.decode_down) +=
        std::max(Seconds(0), std::min(f.up, end) - std::min(f.down, end));
  out_.prefill = std::move(prefill_.past);
  out_.decode = std::move(decode_.past);
  out_.unserved = homeless_.size();
  out_.way = prefill_.schedulers.front()->cache_way();
  if (timeline_ != nullptr) timeline_->finish();
  out_.sending = links_.sent();
  out_.reading = links_.received();
}

PairRun play_pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
                  const ClusterLoad& load, std::uint64_t requests, const PlayedEngine::Answered& answered,
                  const std::function<void(std::uint64_t)>& step, const PairFailures& failures,
                  ServedTimeline* timeline) {
  for (const PlayedPool* p : {&prefill, &decode})
    SL_CHECK(!p->schedulers.empty() && p->times != nullptr && p->groups.count > 0 &&
                 p->schedulers.size() % p->groups.count == 0,
             "each pool has whole replicas, and times");
  const PairParts parts{prefill, decode, links, load, answered, failures, timeline};
  const CacheWay way = prefill.schedulers.front()->cache_way();
  SL_CHECK(way != CacheWay::none && way == decode.schedulers.front()->cache_way(),
           "both pools are of engines that hand caches over in one way");
  SL_CHECK(way != CacheWay::in_turn || failures.all.empty(), "of engines whose failures are known");
  switch (way) {
    case CacheWay::read:
      return play_of_reads(parts)->run(requests, step);
    case CacheWay::sent:
      return play_of_sends(parts)->run(requests, step);
    case CacheWay::in_turn:
      return play_of_turns(parts)->run(requests, step);
    case CacheWay::none:
      break;
  }
  SL_CHECK(false, "every way has a play");
  return {};
}

}  // namespace shardline
