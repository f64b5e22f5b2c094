// A pair of pools played the slow and plain way: one clock, one step after another, blocks one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "tests/planner/requests/plain_links.hpp"
#include "tests/planner/requests/plain_replica.hpp"

namespace shardline {

struct PlainAnswer {
  double came = 0, first = -1, last = -1;
  std::uint32_t found = 0;
};

/// planner/requests/README.md [R12], [R15] and [R19] with routers in turn, and nothing clever.
class PlainPair {
 public:
  PlainPair(const VllmKnobs& prefill, const VllmKnobs& decode, const TransferRates& links,
            std::size_t senders, std::size_t receivers, Seconds path, const StepTimes& times,
            std::int64_t max_local_prefill, const std::vector<ReplicaFailure>& failures = {},
            std::size_t prefill_groups = 1, std::size_t decode_groups = 1,
            std::optional<DraftLaw> law = std::nullopt)
      : prefill_(prefill),
        decode_(decode),
        law_(std::move(law)),
        links_(links, senders * prefill_groups, senders * prefill_groups + receivers * decode_groups),
        senders_(senders),
        prefill_groups_(prefill_groups),
        decode_groups_(decode_groups),
        path_(path.value),
        max_local_prefill_(max_local_prefill),
        times_(times) {
    engines_.resize(senders + receivers);
    for (std::size_t i = 0; i < engines_.size(); ++i) start(i, 0);
    for (const ReplicaFailure& f : failures) {
      const std::size_t engine = f.replica + (f.pool == ReplicaPool::decode ? senders : 0);
      changes_.push_back({f.down.value, engine, false});
      if (f.up.value < kNever) changes_.push_back({f.up.value, engine, true});
    }
  }

  std::vector<PlainAnswer> play(const std::vector<TraceRequest>& requests) {
    requests_ = requests;
    // Who is sent again has the text that it had.
    for (std::size_t i = 0; i < requests_.size() && !changes_.empty(); ++i)
      for (std::int64_t b = 0; b * kTraceBlock < requests_[i].input && (b > 0 || requests_[i].blocks.empty());
           ++b)
        if (static_cast<std::int64_t>(requests_[i].blocks.size()) == b)
          requests_[i].blocks.push_back(1000 + 10 * i + static_cast<std::size_t>(b));
    for (const TraceRequest& r : requests) answers_.push_back({r.arrival.value});
    for (double t = next(); t < kNever; t = next()) {
      flow(t);
      arrive(t);
      for (std::size_t e = 0; e < engines_.size(); ++e)
        if (engines_[e] && engines_[e]->busy && engines_[e]->end() <= t) end_step(e, t);
      change(t);
      free_blocks(t);
      arrive(t);
      while (sent_ < requests_.size() && answers_[sent_].came <= t) send(sent_++, t + path_);
      // Where requests wait for each other for ever steps have no end, of dummy batches or of one prompt.
      if (nothing_to_come() && ++quiet_ > 1000) break;
      // First those that decode: who fails there at once is sent again before the others begin.
      begin_steps(senders_, engines_.size(), t);
      arrive(t);
      begin_steps(0, senders_, t);
    }
    return answers_;
  }
  std::size_t most_flows() const { return most_flows_; }
  std::size_t retried = 0, failed_loads = 0, cut = 0, dummies = 0;
  std::vector<double> freed;  // when leases ran out
  std::size_t unserved() const { return homeless_.size(); }

 private:
  static constexpr double kNever = TransferLinks::kNever;
  // To answer a request.
  struct Attempt {
    std::size_t request, from = 0, group = 0, number = 0, to = 0, group_to = 0;
    bool local = false, answers = false;  // it is, or goes, where it is answered
    double prefilled = kNever, reached = 0;
    std::optional<Scheduler::Id> reader;
    bool handed = false, gone = false, over = false;
  };
  struct Coming {
    double at;
    std::size_t engine, attempt;
  };
  struct Change {
    double at;
    std::size_t engine;
    bool up;
  };

  void start(std::size_t e, double t) {
    const bool prefills = e < senders_;
    engines_[e] = std::make_unique<PlainReplica>(prefills ? prefill_ : decode_,
                                                 prefills ? PairRole::prefills : PairRole::decodes, law_,
                                                 prefills ? prefill_groups_ : decode_groups_, times_, t);
  }
  // The links of a group among all.
  std::size_t sender_of(const Attempt& a) const { return a.from * prefill_groups_ + a.group; }
  std::size_t receiver_of(const Attempt& a) const {
    return senders_ * prefill_groups_ + (a.to - senders_) * decode_groups_ + a.group_to;
  }
  Scheduler& prefiller(const Attempt& a) { return *engines_[a.from]->groups[a.group]; }
  Scheduler& decoder(const Attempt& a) { return *engines_[a.to]->groups[a.group_to]; }

  // But tokens, with each of which it begins to be quiet anew.
  bool nothing_to_come() const {
    return sent_ == requests_.size() && comes_.empty() && changes_.empty() && frees_.empty() &&
           links_.flows.empty();
  }

  double next() const {
    double t = kNever;
    if (sent_ < requests_.size()) t = answers_[sent_].came;
    for (const Coming& c : comes_) t = std::min(t, c.at);
    for (const Change& c : changes_) t = std::min(t, c.at);
    for (const Coming& c : frees_) t = std::min(t, c.at);
    for (const auto& e : engines_)
      if (e && e->busy) t = std::min(t, e->end());
    return std::min(t, links_.next());
  }

  // The next in turn of those that are up; nothing where none is.
  std::optional<std::size_t> turn(bool decodes) {
    const std::size_t first = decodes ? senders_ : 0, last = decodes ? engines_.size() : senders_;
    bool any = false;
    for (std::size_t e = first; e < last; ++e) any = any || engines_[e] != nullptr;
    if (!any) return std::nullopt;
    for (;;) {
      const std::size_t e = first + turns_[decodes ? 1 : 0]++ % (last - first);
      if (engines_[e] != nullptr) return e;
    }
  }
  bool any_up(bool decodes) const {
    for (std::size_t e = decodes ? senders_ : 0; e < (decodes ? engines_.size() : senders_); ++e)
      if (engines_[e] != nullptr) return true;
    return false;
  }

  // Each pool in its turns.
  void send(std::size_t request, double arrives) {
    Attempt a;
    a.request = request;
    a.local = a.answers = requests_[request].input <= max_local_prefill_;
    if (!any_up(true) || (!a.local && !any_up(false))) {
      homeless_.push_back(request);
      return;
    }
    const std::size_t to = *turn(a.local);
    (a.local ? a.to : a.from) = to;
    attempts_.push_back(a);
    comes_.push_back({arrives, to, attempts_.size() - 1});
  }
  void again(std::size_t request, double t) {
    ++retried;
    send(request, t);
  }

  void flow(double t) {
    for (const PlainFlow& f : links_.go_on(t)) {
      attempts_[f.request].handed = true;
      decoder(attempts_[f.request]).has_read(f.reader);
      prefiller(attempts_[f.request]).was_read(f.number, false);
    }
  }

  void arrive(double t) {
    std::vector<Coming> still;
    std::stable_sort(comes_.begin(), comes_.end(),
                     [](const Coming& a, const Coming& b) { return a.at < b.at; });
    for (const Coming& c : comes_) {
      if (c.at > t) {
        still.push_back(c);
        continue;
      }
      Attempt& a = attempts_[c.attempt];
      TraceRequest r = requests_[a.request];
      if (c.engine < senders_) r.output = 1;
      r.local_prefill = r.input <= max_local_prefill_;
      const auto [group, number] = engines_[c.engine]->add(r, c.attempt, c.at);
      if (c.engine < senders_) a.number = number;
      (c.engine < senders_ ? a.group : a.group_to) = group;
    }
    comes_ = still;
  }

  void change(double t) {
    std::vector<Change> now;
    for (const Change& c : changes_)
      if (c.at <= t) now.push_back(c);
    std::erase_if(changes_, [&](const Change& c) { return c.at <= t; });
    for (const Change& c : now) {
      if (!c.up) continue;
      start(c.engine, t);
      std::vector<std::size_t> waited;
      std::swap(waited, homeless_);
      for (const std::size_t request : waited) send(request, t);
    }
    for (const Change& c : now)
      if (!c.up) die(c.engine, t);
  }

  void die(std::size_t e, double t) {
    cut += static_cast<std::size_t>(std::erase_if(links_.flows, [&](const PlainFlow& f) {
      return attempts_[f.request].from == e || attempts_[f.request].to == e;
    }));
    links_.share();
    std::erase_if(comes_, [&](const Coming& c) { return c.engine == e; });
    const double since = engines_[e]->since;
    engines_[e] = nullptr;
    std::vector<std::size_t> order(attempts_.size()), lost;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return attempts_[a].request < attempts_[b].request;
    });
    for (const std::size_t i : order) {
      Attempt& a = attempts_[i];
      if (e < senders_ && !a.local && a.from == e && !a.gone) {
        a.gone = true;
        if (a.over) continue;
        if (a.prefilled > t) {
          a.over = true;
          lost.push_back(a.request);
        } else if (a.reader && !a.handed) {
          ++failed_loads;
          decoder(a).read_fails(*a.reader);
        }
      } else if (e >= senders_ && a.answers && a.to == e && !a.over) {
        a.over = true;
        lost.push_back(a.request);
        if (!a.local && !a.handed && !a.gone) frees_.push_back({lease(a, t, since), e, i});
      }
    }
    for (const std::size_t request : lost) again(request, t);
  }

  // A beat every 5 s of the engine's life, for 20 s from then on; 30 s without any.
  static double lease(const Attempt& a, double t, double since) {
    double beat = since, last = -1;
    for (; beat <= t; beat += 5)
      if (beat >= a.reached) last = beat;
    return std::max(t, last < 0 ? a.prefilled + 30 : std::max(a.prefilled + 30, last + 20));
  }

  void free_blocks(double t) {
    for (const Coming& f : frees_) {
      const Attempt& a = attempts_[f.attempt];
      if (f.at > t || a.gone) continue;
      prefiller(a).was_read(a.number, false);
      freed.push_back(t);
    }
    std::erase_if(frees_, [&](const Coming& f) { return f.at <= t; });
  }

  void begin_steps(std::size_t first, std::size_t last, double t) {
    for (std::size_t e = first; e < last; ++e) {
      if (engines_[e] == nullptr || engines_[e]->busy) continue;
      if (engines_[e]->has_work()) begin_step(e, t);
      if (!engines_[e]->busy) engines_[e]->rest();
    }
  }

  void begin_step(std::size_t e, double t) {
    engines_[e]->begin(t);
    bool fails = false, any = false;
    for (std::size_t g = 0; g < engines_[e]->groups.size(); ++g) {
      Scheduler& s = *engines_[e]->groups[g];
      std::vector<Scheduler::Read> reads;
      s.take_reads(reads);
      for (const Scheduler::Read& r : reads) {
        const std::size_t attempt = engines_[e]->attempts[g][r.number];
        Attempt& a = attempts_[attempt];
        a.reader = r.id;
        any = true;
        if (a.gone) {
          ++failed_loads;
          fails = true;
          s.read_fails(r.id);
        } else {
          links_.begin(t, r.tokens, {0, 0, 0, sender_of(a), receiver_of(a), attempt, r.id, a.number});
        }
      }
    }
    most_flows_ = std::max(most_flows_, links_.flows.size());
    if (any) links_.share();
    take_failed(e, t);
    // An engine without a step looks all the time.
    if (fails && !engines_[e]->busy) begin_step(e, t);
  }

  void take_failed(std::size_t e, double t) {
    for (std::size_t g = 0; g < engines_[e]->groups.size(); ++g) {
      std::vector<Scheduler::Failed> failed;
      engines_[e]->groups[g]->take_failed(failed);
      for (const Scheduler::Failed& f : failed) {
        Attempt& a = attempts_[engines_[e]->attempts[g][f.number]];
        a.over = true;
        again(a.request, t);
      }
    }
  }

  void end_step(std::size_t e, double t) {
    PlainReplica& replica = *engines_[e];
    replica.busy = false;
    dummies += replica.dummy ? 1 : 0;
    for (std::size_t g = 0; g < replica.groups.size(); ++g) {
      Scheduler& s = *replica.groups[g];
      const Scheduler::Ended ended = s.finish_steps(1);
      for (const Scheduler::Id id : ended.named) {
        const Scheduler::Request r = s.request(id);
        quiet_ = 0;
        if (e >= senders_)
          answered(replica.attempts[g][r.number], r, t);
        else
          prefilled(replica.attempts[g][r.number], t);
        if (r.done) s.forget(id);
      }
    }
    take_failed(e, t);
  }

  void answered(std::size_t attempt, const Scheduler::Request& r, double t) {
    PlainAnswer& a = answers_[attempts_[attempt].request];
    if (first_of_.size() <= attempt) first_of_.resize(attempts_.size(), -1);
    double& first = first_of_[attempt];
    if (first < 0) first = t;
    if (!r.done) return;
    a.first = first;
    a.last = t;
    a.found = r.found;
    attempts_[attempt].over = true;
  }

  void prefilled(std::size_t attempt, double t) {
    Attempt& a = attempts_[attempt];
    a.prefilled = t;
    const std::optional<std::size_t> to = turn(true);
    if (!to) {
      a.over = true;
      frees_.push_back({t + 30, 0, attempt});
      again(a.request, t);
      return;
    }
    a.to = *to;
    a.answers = true;
    a.reached = t + path_;
    comes_.push_back({a.reached, *to, attempt});
  }

  const VllmKnobs prefill_, decode_;
  const std::optional<DraftLaw> law_;
  PlainLinks links_;
  const std::size_t senders_, prefill_groups_, decode_groups_;
  const double path_;
  const std::int64_t max_local_prefill_;
  const StepTimes& times_;
  std::vector<TraceRequest> requests_;
  std::vector<std::unique_ptr<PlainReplica>> engines_;  // nullptr: down
  std::vector<Attempt> attempts_;
  std::vector<double> first_of_;  // tokens, by attempt
  std::vector<Coming> comes_, frees_;
  std::vector<Change> changes_;
  std::vector<std::size_t> homeless_;
  std::vector<PlainAnswer> answers_;
  std::size_t sent_ = 0, most_flows_ = 0, quiet_ = 0;
  std::size_t turns_[2] = {0, 0};
};

}  // namespace shardline
