#include "planner/requests/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "planner/requests/request_slots.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of a request that is on its way through both pools.
struct Way {
  TraceRequest request;
  Arrival arrival;
  std::size_t from = 0;      // the replica that prefills it, unless the one that decodes does
  std::uint64_t number = 0;  // there
  Seconds prefilled, reads, there;
};
using WayId = RequestSlots<Way>::Id;

class Pool {
 public:
  Pool(const PlayedPool& of, const std::function<void(std::size_t, const AnsweredRequest&)>& answered)
      : router(of.router, of.schedulers.size()), coming(of.schedulers.size()), ways(of.schedulers.size()) {
    for (std::size_t i = 0; i < of.schedulers.size(); ++i) {
      schedulers.push_back(of.schedulers[i].get());
      engines.push_back(std::make_unique<PlayedEngine>(
          *schedulers[i], *of.times, true, [i, answered](const AnsweredRequest& a) { answered(i, a); }));
    }
  }
  std::size_t size() const { return engines.size(); }
  bool plays(std::size_t i) const { return !engines[i]->idle() && !engines[i]->asleep(); }
  // Nobody but who comes later is answered before by others than `but`. Who sleeps may go on at any time.
  Seconds earliest(std::size_t but) const {
    Seconds out{kNever};
    for (std::size_t i = 0; i < size(); ++i) {
      if (i == but || engines[i]->idle()) continue;
      out = std::min(out, engines[i]->asleep() ? Seconds(0) : engines[i]->now());
    }
    return out;
  }

  ReplicaRouter router;
  std::vector<Scheduler*> schedulers;
  std::vector<std::unique_ptr<PlayedEngine>> engines;
  std::vector<std::deque<WayId>> coming;  // to each replica, in order
  std::vector<std::vector<WayId>> ways;   // by replica and number there
};

class Pair {
 public:
  Pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
       const ClusterLoad& load, const PlayedEngine::Answered& answered)
      : load_(load),
        answered_(answered),
        prefill_(prefill, [this](std::size_t i, const AnsweredRequest& a) { prefilled(i, a); }),
        decode_(decode, [this](std::size_t i, const AnsweredRequest& a) { leave(i, a); }),
        max_local_prefill_(decode.max_local_prefill),
        links_(links, prefill_.size(), decode_.size()) {}

  PairRun run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step) {
    requests_ = requests;
    more_ = requests > 0;
    for (std::uint64_t events = 0;; ++events) {
      check_cancelled();
      if (step && events % 256 == 0) step(done_);
      if (!next_event()) break;
    }
    if (done_ + refused_ < out_.sent) stands_still();
    finish();
    return std::move(out_);
  }

 private:
  struct Between {
    Seconds at;
    std::uint64_t order;
    WayId way;
    bool operator>(const Between& b) const { return at > b.at || (at == b.at && order > b.order); }
  };

  struct Next {
    Seconds at{kNever};
    Pool* pool = nullptr;
    std::size_t replica = 0;
    void earlier(Seconds than, Pool& p, std::size_t i) {
      if (than < at) *this = {than, &p, i};
    }
  };

  // The earliest of all; of equally early ones ends of hand-offs, then who comes to an engine, then routers,
  // then engines.
  bool next_event() {
    Next comes, plays;
    for (Pool* p : {&prefill_, &decode_}) {
      for (std::size_t i = 0; i < p->size(); ++i) {
        const Seconds now = p->engines[i]->now();
        if (p->plays(i)) plays.earlier(now, *p, i);
        if (p->coming[i].empty()) continue;
        const Seconds arrival = ways_[p->coming[i].front()].request.arrival;
        comes.earlier(p->plays(i) ? std::max(now, arrival) : arrival, *p, i);
      }
    }
    const Seconds sends = more_ ? load_.arrivals->next_time() : Seconds(kNever);
    const Seconds routes = between_.empty() ? Seconds(kNever) : between_.top().at;
    const Seconds first = std::min({links_.next(), comes.at, routes, sends, plays.at});
    if (first.value == kNever) return false;
    if (links_.next() == first) {
      end_transfer();
    } else if (comes.at == first) {
      arrive(*comes.pool, comes.replica);
    } else if (routes == first) {
      route_to_decode();
    } else if (sends == first) {
      send();
    } else {
      play(*plays.pool, plays.replica);
    }
    return true;
  }

  void send() {
    Way w;
    w.arrival = load_.arrivals->take();
    if (!load_.request(w.request)) {
      more_ = false;
      return;
    }
    double waiting = 0;
    for (const Pool* p : {&prefill_, &decode_})
      for (const auto& e : p->engines) waiting += static_cast<double>(e->waiting());
    waits_.emplace_back(w.arrival.time, waiting);
    w.request.arrival = w.arrival.time + load_.path;
    w.request.local_prefill = w.request.input <= max_local_prefill_;
    Pool& first = w.request.local_prefill ? decode_ : prefill_;
    const std::size_t to = w.from = first.router.route(w.request, w.arrival.time);
    out_.last_sent = w.arrival.time;
    more_ = ++out_.sent < requests_;
    first.coming[to].push_back(ways_.add(std::move(w)));
  }

  void arrive(Pool& pool, std::size_t i) {
    const WayId id = pool.coming[i].front();
    pool.coming[i].pop_front();
    Way& w = ways_[id];
    TraceRequest asked = w.request;
    if (&pool == &prefill_) {
      asked.output = 1;  // and the answer is thrown away
      w.number = prefill_.ways[i].size();
    }
    if (!pool.engines[i]->take(asked, w.arrival.time)) {
      SL_CHECK(&pool == &prefill_ || w.request.local_prefill, "who is refused is refused first");
      if (load_.closed)
        load_.arrivals->completed(w.arrival, std::max(pool.engines[i]->now(), w.arrival.time));
      ways_.forget(id);
      ++refused_;
      return;
    }
    pool.ways[i].push_back(id);
    pool.router.took(i, static_cast<double>(asked.input));
  }

  void prefilled(std::size_t i, const AnsweredRequest& a) {
    const WayId id = prefill_.ways[i][a.number];
    ways_[id].prefilled = a.last;
    prefill_.router.answers(i, static_cast<double>(a.prompt), a.last);
    out_.prompt.add((a.last - a.came).value);
    between_.push({a.last, ordered_++, id});
  }

  void route_to_decode() {
    const Between b = between_.top();
    between_.pop();
    Way& w = ways_[b.way];
    w.request.arrival = b.at + load_.path;
    decode_.coming[decode_.router.route(w.request, b.at)].push_back(b.way);
  }

  // Steps that begin before anything may change what the engine computes.
  void play(Pool& pool, std::size_t i) {
    Seconds until{kNever};
    if (!pool.coming[i].empty()) until = ways_[pool.coming[i].front()].request.arrival;
    if (more_) {
      // To the pool that decodes by way of the other one, unless prompts may stay there.
      const bool at_once = &pool == &prefill_ || max_local_prefill_ > 0;
      until = std::min(until, load_.arrivals->next_time() + load_.path * (at_once ? 1.0 : 2.0));
    }
    if (&pool == &decode_) {
      until =
          std::min({until, prefill_.earliest(prefill_.size()) + load_.path, links_.earliest_of_receiver(i)});
      if (!between_.empty()) until = std::min(until, between_.top().at + load_.path);
      for (std::size_t p = 0; p < prefill_.size(); ++p)
        if (!prefill_.coming[p].empty())
          until = std::min(until, ways_[prefill_.coming[p].front()].request.arrival + load_.path);
    } else {
      until = std::min(until, links_.earliest_of_sender(i));
    }
    if (load_.closed) until = std::min(until, decode_.earliest(i) + load_.path);
    pool.engines[i]->play(until);
    if (&pool != &decode_) return;
    reads_.clear();
    pool.schedulers[i]->take_reads(reads_);
    for (const Scheduler::Read& r : reads_) {
      const WayId id = decode_.ways[i][r.number];
      Way& w = ways_[id];
      w.reads = pool.engines[i]->decided_at();
      out_.room.add((w.reads - w.prefilled).value);
      out_.tokens_read += r.tokens;
      links_.begin(w.reads, w.from, i, r.tokens, id);
      if (readers_.size() <= id) readers_.resize(id + 1);
      readers_[id] = {i, r.id};
    }
  }

  void end_transfer() {
    const Seconds at = links_.next();
    const std::optional<std::uint64_t> ended = links_.step();
    if (!ended) return;
    const auto id = static_cast<WayId>(*ended);
    Way& w = ways_[id];
    w.there = at;
    out_.transfer.add((at - w.reads).value);
    if ((at - w.prefilled).value > PairRun::kKept) ++out_.given_up;
    const auto [to, reader] = readers_[id];
    decode_.schedulers[to]->has_read(reader);
    if (decode_.engines[to]->asleep()) decode_.engines[to]->wake(at);
    prefill_.schedulers[w.from]->was_read(w.number);
    if (prefill_.engines[w.from]->asleep()) prefill_.engines[w.from]->wake(at);
  }

  void leave(std::size_t i, const AnsweredRequest& a) {
    ++done_;
    const WayId id = decode_.ways[i][a.number];
    Way& w = ways_[id];
    decode_.router.answers(i, static_cast<double>(a.prompt), a.last);
    if (w.request.local_prefill)
      ++out_.local_prefills;
    else
      out_.begin.add((a.first - w.there).value);
    if (load_.closed) load_.arrivals->completed(w.arrival, a.last);
    ways_.forget(id);
    if (answered_) answered_(a);
  }

  // One that lost its blocks waits in front of those that hold theirs and have read: vLLM looks no further.
  [[noreturn]] void stands_still() const {
    throw PairStops({Diagnostic{
        {},
        fmt::format(
            "{} of {} requests are never answered: in a replica that decodes one that lost its KV blocks "
            "waits in front of those that have read theirs, and the scheduler's own rules go past neither",
            out_.sent - done_ - refused_, out_.sent),
        {"an engine may stand still so, too: give the replicas that decode more blocks, or fewer requests at "
         "once (planner/requests/README.md [R12])"}}});
  }

  void finish() {
    add_waiting(waits_, out_.waiting, out_.begins);
    for (const auto& e : prefill_.engines) out_.prefill.push_back(e->take_served());
    for (const auto& e : decode_.engines) out_.decode.push_back(e->take_served());
    out_.sending = links_.sent();
    out_.reading = links_.received();
  }

  const ClusterLoad& load_;
  const PlayedEngine::Answered& answered_;
  Pool prefill_, decode_;
  const std::int64_t max_local_prefill_;
  TransferLinks links_;
  RequestSlots<Way> ways_;
  std::priority_queue<Between, std::vector<Between>, std::greater<>> between_;
  std::vector<std::pair<std::size_t, Scheduler::Id>> readers_;  // by way
  std::vector<Scheduler::Read> reads_;
  std::vector<std::pair<Seconds, double>> waits_;
  std::uint64_t requests_ = 0, done_ = 0, refused_ = 0, ordered_ = 0;
  bool more_ = true;
  PairRun out_;
};

}  // namespace

PairRun play_pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
                  const ClusterLoad& load, std::uint64_t requests, const PlayedEngine::Answered& answered,
                  const std::function<void(std::uint64_t)>& step) {
  SL_CHECK(!prefill.schedulers.empty() && !decode.schedulers.empty() && prefill.times != nullptr &&
               decode.times != nullptr,
           "each pool has replicas and times");
  return Pair(prefill, decode, links, load, answered).run(requests, step);
}

}  // namespace shardline
