// SGLang's pairs of pools [R14] played the slow and plain way: event loops that go round, one clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/planner/requests/plain_links.hpp"
#include "tests/planner/requests/plain_sglang.hpp"

namespace shardline {

struct SglangPairCase {
  SglangKnobs prefill, decode;
  TransferRates links;
  std::size_t senders = 1, receivers = 1;
  Seconds path{0.002};
  std::vector<TraceRequest> requests;
};

struct SglangPlainAnswer {
  double came = 0, room = -1, prefilled = -1, there = -1, first = -1, last = 0;
};

class PlainSglangPair {
 public:
  PlainSglangPair(const SglangPairCase& c, const StepTimes& times)
      : c_(c), times_(times), links_(c.links, c.senders, c.senders + c.receivers) {
    for (std::size_t i = 0; i < c.senders; ++i) {
      prefills_.push_back(std::make_unique<PlainPrefill>(
          c.prefill, [this](PlainRequest& r, std::uint32_t tokens, bool last) { send(r, tokens, last); }));
      loops_.push_back({!c.prefill.disable_overlap_schedule, {}, false, 0});
    }
    for (std::size_t i = 0; i < c.receivers; ++i) {
      decodes_.push_back(std::make_unique<PlainDecode>(
          c.decode, [this](PlainRequest& r) { r.room = true, answers[r.id].room = now_; },
          [this](PlainRequest& r) { token(r); }));
      loops_.push_back({!c.decode.disable_overlap_schedule, {}, false, 0});
    }
    for (std::size_t i = 0; i < c.requests.size(); ++i) {
      const TraceRequest& t = c.requests[i];
      PlainRequest r;
      r.id = i;
      r.prompt = static_cast<std::uint32_t>(t.input);
      r.answer = static_cast<std::uint32_t>(t.output);
      const std::size_t parts = kTraceBlock / c.prefill.page_size;
      for (std::size_t p = 0; p < r.prompt / c.prefill.page_size && p / parts < t.blocks.size(); ++p)
        r.text.push_back(chain_hash(t.blocks[p / parts], p % parts));
      there_.push_back(std::make_unique<PlainRequest>(r));
      here_.push_back(std::make_unique<PlainRequest>(r));
      answers.push_back({t.arrival.value});
    }
    pending_.resize(c.requests.size());
  }

  void play() {
    for (double t = next(); t < TransferLinks::kNever; t = next()) {
      now_ = t;
      for (const PlainFlow& f : links_.go_on(t)) end(f);
      for (; came_ < answers.size() && at(came_) <= t; ++came_) {
        prefills_[came_ % c_.senders]->receive(there_[came_].get());
        decodes_[came_ % c_.receivers]->receive(here_[came_].get());
      }
      for (std::size_t i = 0; i < loops_.size(); ++i)
        if (loops_[i].waits && loops_[i].launched.front().end <= t) process(i);
      // Servers that decode first: they tell those that prefill of room.
      for (std::size_t i = loops_.size(); i-- > 0;)
        if (!loops_[i].waits) go_round(i);
    }
  }
  std::uint64_t retractions() const {
    std::uint64_t out = 0;
    for (const auto& d : decodes_) out += d->retractions;
    return out;
  }
  std::size_t most_parts = 0, most_flows = 0;
  std::vector<SglangPlainAnswer> answers;

 private:
  // Batches whose results are to come; whether the loop waits for the first one's. Else it goes round all the
  // time.
  struct Loop {
    bool overlap;
    std::deque<PlainBatch> launched;
    bool waits = false;
    double gpu = 0;
  };
  struct Pending {
    std::size_t parts = 0, flows = 0;
    bool all = false;
  };

  double at(std::size_t i) const { return c_.requests[i].arrival.value + c_.path.value; }
  double next() const {
    double t = links_.next();
    if (came_ < answers.size()) t = std::min(t, at(came_));
    for (const Loop& l : loops_)
      if (l.waits) t = std::min(t, l.launched.front().end);
    return t;
  }
  std::optional<PlainBatch> decide(std::size_t i) {
    if (i < c_.senders) {
      prefills_[i]->poll();
      for (auto& r : there_) r->room = here_[r->id]->room;
      return prefills_[i]->decide();
    }
    return decodes_[i - c_.senders]->decide();
  }
  // Iterations up to one that waits for a result, or to two that launch nothing, the first of which may have
  // forgotten who is done: of overlapping ones each waits for the batch of the one before.
  void go_round(std::size_t i) {
    Loop& l = loops_[i];
    for (int nothing = 0; nothing < 2;) {
      const bool before = !l.launched.empty();
      std::optional<PlainBatch> batch = decide(i);
      const bool more = batch.has_value();
      nothing = more ? 0 : nothing + 1;
      if (batch) {
        l.gpu = std::max(l.gpu, now_) + times_.of(batch->work).value;
        batch->end = l.gpu;
        l.launched.push_back(std::move(*batch));
      }
      l.waits = l.overlap ? before : more;
      if (l.waits) return;
    }
  }
  void process(std::size_t i) {
    Loop& l = loops_[i];
    const PlainBatch done = std::move(l.launched.front());
    l.launched.pop_front();
    l.waits = false;
    if (i < c_.senders)
      prefills_[i]->result(done);
    else
      decodes_[i - c_.senders]->result(done);
  }

  void send(PlainRequest& r, std::uint32_t tokens, bool last) {
    Pending& p = pending_[r.id];
    ++p.flows;
    most_parts = std::max(most_parts, ++p.parts);
    p.all = last;
    if (last) answers[r.id].prefilled = now_;
    links_.begin(now_, tokens, {0, 0, 0, r.id % c_.senders, c_.senders + r.id % c_.receivers, r.id, 0, 0});
    links_.share();
    most_flows = std::max(most_flows, links_.flows.size());
  }
  void end(const PlainFlow& f) {
    Pending& p = pending_[f.request];
    if (--p.flows > 0 || !p.all) return;
    there_[f.request]->here = here_[f.request]->here = true;
    answers[f.request].there = now_;
  }
  void token(PlainRequest& r) {
    SglangPlainAnswer& a = answers[r.id];
    if (a.first < 0) a.first = now_;
    a.last = now_;
  }

  const SglangPairCase& c_;
  const StepTimes& times_;
  PlainLinks links_;
  std::vector<std::unique_ptr<PlainPrefill>> prefills_;
  std::vector<std::unique_ptr<PlainDecode>> decodes_;
  std::vector<Loop> loops_;
  std::vector<std::unique_ptr<PlainRequest>> there_, here_;  // as each server has it
  std::vector<Pending> pending_;
  std::size_t came_ = 0;
  double now_ = 0;
};

}  // namespace shardline
