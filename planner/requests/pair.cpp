// Both pools of a pair from event to event: what both kinds of hand-off share.
#include "planner/requests/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

PairPool::PairPool(const PlayedPool& of, ReplicaPool pool,
                   std::function<void(std::size_t, const AnsweredRequest&)> on_answer)
    : which(pool),
      times(*of.times),
      answered(std::move(on_answer)),
      router(of.router, of.schedulers.size()),
      schedulers(of.schedulers.size()),
      renewed(of.schedulers.size()),
      engines(of.schedulers.size()),
      coming(of.schedulers.size()),
      ways(of.schedulers.size()),
      past(of.schedulers.size()),
      since(of.schedulers.size()) {
  for (std::size_t i = 0; i < of.schedulers.size(); ++i) start(i, of.schedulers[i].get(), Seconds(0));
}

void PairPool::start(std::size_t i, Scheduler* scheduler, Seconds at) {
  schedulers[i] = scheduler;
  engines[i] = std::make_unique<PlayedEngine>(*scheduler, times, true,
                                              [this, i](const AnsweredRequest& a) { answered(i, a); });
  engines[i]->wake(at);
  since[i] = at;
}

void PairPool::end(std::size_t i) {
  merge(past[i], engines[i]->take_served());
  engines[i].reset();
  coming[i].clear();
  ways[i].clear();
}

void PairPool::come(std::size_t i, PairWayId id, const RequestSlots<PairWay>& all) {
  std::deque<PairWayId>& to = coming[i];
  to.insert(std::upper_bound(
                to.begin(), to.end(), id,
                [&](PairWayId a, PairWayId b) { return all[a].request.arrival < all[b].request.arrival; }),
            id);
}

Seconds PairPool::earliest(std::size_t but) const {
  Seconds out{kNoPairEvent};
  for (std::size_t i = 0; i < size(); ++i) {
    if (i == but || !up(i) || engines[i]->idle() || engines[i]->dead()) continue;
    out = std::min(out, engines[i]->asleep() ? Seconds(0) : engines[i]->now());
  }
  return out;
}

PairPlay::PairPlay(const PairParts& parts)
    : load_(parts.load),
      prefill_(parts.prefill, ReplicaPool::prefill,
               [this](std::size_t i, const AnsweredRequest& a) { prefilled(i, a); }),
      decode_(parts.decode, ReplicaPool::decode,
              [this](std::size_t i, const AnsweredRequest& a) { leave(i, a); }),
      max_local_prefill_(parts.decode.max_local_prefill),
      fixed_(parts.links.fixed),
      links_(parts.links, prefill_.size(), decode_.size()),
      answered_(parts.answered),
      failures_(parts.failures) {
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

namespace {

struct Next {
  Seconds at{kNoPairEvent};
  PairPool* pool = nullptr;
  std::size_t replica = 0;
  void earlier(Seconds than, PairPool& p, std::size_t i) {
    if (than < at) *this = {than, &p, i};
  }
};

}  // namespace

// The earliest of all; of equally early ones ends of hand-offs, then who comes to an engine, then replicas
// that die or are back, then routers and what is sent, then engines: first those that decode, as they tell
// the others of room.
bool PairPlay::next_event() {
  Next comes, plays;
  for (PairPool* p : {&decode_, &prefill_}) {
    for (std::size_t i = 0; i < p->size(); ++i) {
      if (!p->up(i) || p->engines[i]->dead()) continue;
      const Seconds now = p->engines[i]->now();
      if (p->plays(i)) plays.earlier(now, *p, i);
      if (p->coming[i].empty()) continue;
      const Seconds arrival = ways_[p->coming[i].front()].request.arrival;
      comes.earlier(p->plays(i) ? std::max(now, arrival) : arrival, *p, i);
    }
  }
  const Seconds sends = more_ ? load_.arrivals->next_time() : Seconds(kNoPairEvent);
  const Seconds between = between_.empty() ? Seconds(kNoPairEvent) : between_.top().at;
  const Seconds fails = next_failure();
  const Seconds first = std::min({links_.next(), comes.at, fails, between, sends, plays.at});
  if (first.value == kNoPairEvent) return false;
  if (links_.next() == first) {
    end_transfer();
  } else if (comes.at == first) {
    arrive(*comes.pool, comes.replica);
  } else if (fails == first) {
    happen(events_[next_event_++]);
  } else if (between == first) {
    go_between();
  } else if (sends == first) {
    send();
  } else {
    play(*plays.pool, plays.replica);
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
  w.place = out_.sent;
  if (!failures_.all.empty()) name_text(w);
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
  const PairWayId id = pool.coming[i].front();
  pool.coming[i].pop_front();
  if (take(pool, i, id)) {
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
  TraceRequest asked = w.request;
  if (&pool == &prefill_) {
    asked.output = 1;  // and the answer is thrown away, or goes with the cache
    w.number = prefill_.ways[i].size();
    w.came = true;
  } else {
    w.number_to = decode_.ways[i].size();
  }
  if (!pool.engines[i]->take(asked, w.arrival.time)) return false;
  pool.ways[i].push_back(id);
  pool.router.took(i, static_cast<double>(asked.input));
  return true;
}

void PairPlay::prefilled(std::size_t i, const AnsweredRequest& a) {
  const PairWayId id = prefill_.ways[i][a.number];
  PairWay& w = ways_[id];
  w.prefilled = a.last;
  w.computed = true;
  prefill_.router.answers(i, static_cast<double>(a.prompt), a.last);
  computed(id);
}

// Steps that begin before anything may change what the engine computes.
void PairPlay::play(PairPool& pool, std::size_t i) {
  Seconds until{kNoPairEvent};
  if (!pool.coming[i].empty()) until = ways_[pool.coming[i].front()].request.arrival;
  until = std::min(until, this->until(pool, i));
  if (load_.closed) until = std::min(until, decode_.earliest(i) + load_.path);
  if (!failures_.all.empty()) until = std::min(until, next_loss(i));
  pool.engines[i]->play(until);
  went_on(pool, i);
}

const std::vector<std::pair<PairWayId, std::uint32_t>>& PairPlay::take_reads(std::size_t i) {
  reads_.clear();
  reading_.clear();
  decode_.schedulers[i]->take_reads(reads_);
  for (const Scheduler::Read& r : reads_) {
    const PairWayId id = decode_.ways[i][r.number];
    PairWay& w = ways_[id];
    w.to = i;
    w.reads = decode_.engines[i]->decided_at();
    if (readers_.size() <= id) readers_.resize(id + 1);
    readers_[id] = {i, r.id};
    reading_.emplace_back(id, r.tokens);
  }
  return reading_;
}

void PairPlay::begin_transfer(Seconds at, PairWayId id, std::uint32_t tokens) {
  PairWay& w = ways_[id];
  ++w.flows;
  w.tokens += tokens;
  links_.begin(at, w.from, w.to, tokens, id);
}

void PairPlay::end_transfer() {
  const Seconds at = links_.next();
  const std::optional<std::uint64_t> ended = links_.step();
  if (!ended) return;
  const auto id = static_cast<PairWayId>(*ended);
  PairWay& w = ways_[id];
  if (--w.flows == 0 && w.all_sent) handed_over(id, at);
}

void PairPlay::handed_over(PairWayId id, Seconds at) {
  PairWay& w = ways_[id];
  w.there = at;
  w.handed = true;
  const auto [to, reader] = readers_[id];
  decode_.schedulers[to]->has_read(reader);
  decode_.wake(to, at);
  release(w.from, w.number, at);
}

void PairPlay::release(std::size_t i, std::uint64_t number, Seconds at) {
  const PlayedEngine& from = *prefill_.engines[i];
  const bool at_once = (from.idle() || from.asleep()) && from.now() <= at;
  prefill_.schedulers[i]->was_read(number, at_once);
  prefill_.wake(i, at);
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
  forget(id, true);
  if (answered_) answered_(a);
}

void PairPlay::stands_still() const {
  const Stand s = stand();
  throw PairStops({Diagnostic{
      {},
      fmt::format("{} of {} requests are never answered: in a replica that decodes one that lost its KV {} "
                  "waits in front of those that have {}, and the scheduler's own rules go past neither",
                  out_.sent - done_ - refused_ - homeless_.size(), out_.sent, s.holds, s.others),
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
  out_.sending = links_.sent();
  out_.reading = links_.received();
}

PairRun play_pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
                  const ClusterLoad& load, std::uint64_t requests, const PlayedEngine::Answered& answered,
                  const std::function<void(std::uint64_t)>& step, const PairFailures& failures) {
  SL_CHECK(!prefill.schedulers.empty() && !decode.schedulers.empty() && prefill.times != nullptr &&
               decode.times != nullptr,
           "each pool has replicas and times");
  const PairParts parts{prefill, decode, links, load, answered, failures};
  const CacheWay way = prefill.schedulers.front()->cache_way();
  SL_CHECK(way != CacheWay::none && way == decode.schedulers.front()->cache_way(),
           "both pools are of engines that hand caches over in one way");
  return (way == CacheWay::read ? play_of_reads(parts) : play_of_sends(parts))->run(requests, step);
}

}  // namespace shardline
