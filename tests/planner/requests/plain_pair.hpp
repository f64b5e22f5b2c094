// A pair of pools played the slow and plain way: one clock, one step after another, blocks one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "tests/planner/requests/blockwise_vllm.hpp"
#include "tests/planner/requests/plain_links.hpp"

namespace shardline {

struct PlainAnswer {
  double came = 0, first = -1, last = 0;
  std::uint32_t found = 0;
};

/// planner/requests/README.md [R12] with routers in turn, and nothing clever.
class PlainPair {
 public:
  PlainPair(const VllmKnobs& prefill, const VllmKnobs& decode, const TransferRates& links,
            std::size_t senders, std::size_t receivers, Seconds path, const StepTimes& times,
            std::int64_t max_local_prefill)
      : links_(links, senders, senders + receivers),
        senders_(senders),
        path_(path.value),
        max_local_prefill_(max_local_prefill),
        times_(times) {
    for (std::size_t i = 0; i < senders + receivers; ++i)
      engines_.push_back(
          {std::make_unique<BlockwiseVllm>(i < senders ? prefill : decode,
                                           i < senders ? PairRole::prefills : PairRole::decodes),
           {},
           0,
           false});
  }

  std::vector<PlainAnswer> play(const std::vector<TraceRequest>& requests) {
    requests_ = requests;
    for (const TraceRequest& r : requests) answers_.push_back({r.arrival.value});
    for (double t = next(); t < kNever; t = next()) {
      flow(t);
      arrive(t);
      for (std::size_t e = 0; e < engines_.size(); ++e)
        if (engines_[e].busy && engines_[e].end <= t) end_step(e, t);
      while (sent_ < requests_.size() && answers_[sent_].came <= t) send();
      for (std::size_t e = 0; e < engines_.size(); ++e)
        if (!engines_[e].busy &&
            (engines_[e].s->waiting() > 0 || engines_[e].s->running() > 0 || engines_[e].s->decided() > 0))
          begin_step(e, t);
    }
    return answers_;
  }
  std::size_t most_flows() const { return most_flows_; }

 private:
  static constexpr double kNever = TransferLinks::kNever;
  struct Engine {
    std::unique_ptr<BlockwiseVllm> s;
    std::vector<std::size_t> requests;  // by number there
    double end;
    bool busy;
  };
  struct Coming {
    double at;
    std::size_t engine, request;
  };

  double next() const {
    double t = kNever;
    if (sent_ < requests_.size()) t = answers_[sent_].came;
    for (const Coming& c : comes_) t = std::min(t, c.at);
    for (const Engine& e : engines_)
      if (e.busy) t = std::min(t, e.end);
    return std::min(t, links_.next());
  }

  std::size_t to_decode() { return senders_ + to_decode_++ % (engines_.size() - senders_); }

  // Each pool in its turns.
  void send() {
    const bool local = requests_[sent_].input <= max_local_prefill_;
    comes_.push_back({answers_[sent_].came + path_, local ? to_decode() : to_prefill_++ % senders_, sent_});
    ++sent_;
  }

  void flow(double t) {
    for (const PlainFlow& f : links_.go_on(t)) {
      engines_[f.to].s->has_read(f.reader);
      engines_[f.from].s->was_read(f.number, false);
    }
  }

  void arrive(double t) {
    std::vector<Coming> still;
    for (const Coming& c : comes_) {
      if (c.at > t) {
        still.push_back(c);
        continue;
      }
      TraceRequest r = requests_[c.request];
      if (c.engine < senders_) r.output = 1;
      r.local_prefill = r.input <= max_local_prefill_;
      engines_[c.engine].requests.push_back(c.request);
      engines_[c.engine].s->add(r);
    }
    comes_ = still;
  }

  void begin_step(std::size_t e, double t) {
    Engine& engine = engines_[e];
    while (engine.s->decided() < engine.s->depth() && engine.s->schedule()) {
    }
    if (engine.s->decided() > 0) {
      engine.busy = true;
      engine.end = t + times_.of(engine.s->front()).value;
    }
    std::vector<Scheduler::Read> reads;
    engine.s->take_reads(reads);
    for (const Scheduler::Read& r : reads) {
      const std::size_t request = engine.requests[r.number];
      std::size_t from = 0, number = 0;
      for (std::size_t p = 0; p < senders_; ++p) {
        const auto& of = engines_[p].requests;
        const auto it = std::find(of.begin(), of.end(), request);
        if (it == of.end()) continue;
        from = p;
        number = static_cast<std::size_t>(it - of.begin());
      }
      links_.begin(t, r.tokens, {0, 0, 0, from, e, request, r.id, number});
    }
    most_flows_ = std::max(most_flows_, links_.flows.size());
    if (!reads.empty()) links_.share();
  }

  void end_step(std::size_t e, double t) {
    Engine& engine = engines_[e];
    engine.busy = false;
    const Scheduler::Ended ended = engine.s->finish_steps(1);
    for (const Scheduler::Id id : ended.named) {
      const Scheduler::Request r = engine.s->request(id);
      const std::size_t request = engine.requests[r.number];
      if (e >= senders_) {
        PlainAnswer& a = answers_[request];
        if (a.first < 0) a.first = t;
        a.last = t;
        a.found = r.found;
      } else {
        comes_.push_back({t + path_, to_decode(), request});
      }
      if (r.done) engine.s->forget(id);
    }
  }

  PlainLinks links_;
  const std::size_t senders_;
  const double path_;
  const std::int64_t max_local_prefill_;
  const StepTimes& times_;
  std::vector<TraceRequest> requests_;
  std::vector<Engine> engines_;
  std::vector<Coming> comes_;
  std::vector<PlainAnswer> answers_;
  std::size_t sent_ = 0, to_prefill_ = 0, to_decode_ = 0, most_flows_ = 0;
};

}  // namespace shardline
