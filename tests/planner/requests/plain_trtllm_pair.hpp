// TensorRT-LLM's pairs of pools [R21] played the slow and plain way: executor loops that go round, one clock,
// blocks as numbers of them (nothing is found again).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "planner/requests/group_router.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "tests/planner/requests/plain_links.hpp"
#include "tests/planner/requests/plain_steps.hpp"
#include "tests/planner/requests/plain_trtllm.hpp"

namespace shardline {

struct TrtllmPairCase {
  TrtllmKnobs prefill, decode;
  TransferRates links;
  std::size_t senders = 1, receivers = 1;
  ReplicaGroups prefill_groups{}, decode_groups{};  // from_queue, or one
  DraftLaw law{};
  Seconds path{0.002};
  std::vector<TraceRequest> requests;
  std::vector<ReplicaFailure> failures = {};  // none
};

class PlainTrtllmPair {
 public:
  struct Answer {
    double came = 0, prefilled = -1, reads = -1, there = -1, first = -1, last = -1;
    std::size_t from = 0, to = 0;  // groups among all
  };

  PlainTrtllmPair(const TrtllmPairCase& c, const StepTimes& times)
      : c_(c),
        times_(times),
        links_(c.links, c.senders * c.prefill_groups.count,
               c.senders * c.prefill_groups.count + c.receivers * c.decode_groups.count),
        asking_(c.receivers * c.decode_groups.count),
        giving_(c.senders * c.prefill_groups.count) {
    for (std::size_t i = 0; i < c.senders + c.receivers; ++i) {
      const bool prefills = i < c.senders;
      Server& s = servers_.emplace_back();
      const TrtllmKnobs& k = prefills ? c.prefill : c.decode;
      s.overlap = !k.disable_overlap_scheduler;
      const ReplicaGroups& groups = prefills ? c.prefill_groups : c.decode_groups;
      for (std::size_t g = 0; g < groups.count; ++g)
        s.groups.push_back(std::make_unique<PlainTrtllm>(k, prefills, c.law));
    }
    for (std::size_t i = 0; i < c.requests.size(); ++i) {
      const TraceRequest& t = c.requests[i];
      answers.push_back({t.arrival.value});
      there_.push_back({i, static_cast<std::uint32_t>(t.input), 1});
      here_.push_back({i, static_cast<std::uint32_t>(t.input), static_cast<std::uint32_t>(t.output)});
      here_.back().stream = t.number;
    }
  }

  void play() {
    for (double t = next(); t < kNever; t = next()) {
      now_ = t;
      for (const PlainFlow& f : links_.go_on(t)) end(f.request);
      for (; sent_ < answers.size() && answers[sent_].came <= t; ++sent_)
        coming_.push_back({t + c_.path.value, &there_[sent_], turns_[0]++ % c_.senders});
      arrive();
      for (std::size_t i = 0; i < servers_.size(); ++i)
        if (servers_[i].waits && servers_[i].launched.front().end <= t) process(i);
      arrive();
      // Those that decode first, as the player has it: of two that ask at once the first has its turn first.
      for (std::size_t k = 0; k < servers_.size(); ++k)
        if (const std::size_t i = (k + c_.senders) % servers_.size(); !servers_[i].waits) {
          go_round(i);
          // Of one that has gone round twice in no time, too, in the order of its groups.
          for (const auto& g : servers_[i].groups)
            for (const PlainTrtllm::Request* r : std::exchange(g->reads, {})) read(*r);
        }
    }
  }
  std::uint64_t pauses() const {
    std::uint64_t out = 0;
    for (const Server& s : servers_)
      for (const auto& g : s.groups) out += g->pauses;
    return out;
  }
  std::vector<Answer> answers;
  std::size_t longest_line = 0, most_reads = 0;

 private:
  static constexpr double kNever = TransferLinks::kNever;
  struct Launched {
    std::vector<std::optional<PlainTrtllm::Batch>> groups;
    double end = 0;
  };
  struct Server {
    std::vector<std::unique_ptr<PlainTrtllm>> groups;
    std::deque<PlainTrtllm::Request*> queue;  // in front of several groups
    bool overlap = false, waits = false;
    std::deque<Launched> launched;
  };
  struct Coming {
    double at;
    PlainTrtllm::Request* request;
    std::size_t server;
  };

  double next() const {
    double t = links_.next();
    if (sent_ < answers.size()) t = std::min(t, answers[sent_].came);
    for (const Coming& c : coming_) t = std::min(t, c.at);
    for (const Server& s : servers_)
      if (s.waits) t = std::min(t, s.launched.front().end);
    return t;
  }
  void arrive() {
    std::stable_sort(coming_.begin(), coming_.end(),
                     [](const Coming& a, const Coming& b) { return a.at < b.at; });
    std::size_t n = 0;
    for (; n < coming_.size() && coming_[n].at <= now_; ++n) {
      Server& s = servers_[coming_[n].server];
      if (s.groups.size() > 1)
        s.queue.push_back(coming_[n].request);
      else
        put(coming_[n].server, 0, coming_[n].request);
    }
    coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(n));
  }
  void put(std::size_t server, std::size_t group, PlainTrtllm::Request* r) {
    const bool prefills = server < c_.senders;
    if (prefills)
      answers[r->id].from = server * c_.prefill_groups.count + group;
    else
      answers[r->id].to = (server - c_.senders) * c_.decode_groups.count + group;
    servers_[server].groups[group]->receive(r);
  }
  // [R11], which has tests of its own.
  void deal(std::size_t i) {
    Server& s = servers_[i];
    if (s.queue.empty()) return;
    const TrtllmKnobs& k = i < c_.senders ? c_.prefill : c_.decode;
    std::vector<GroupLoad> loads;
    std::size_t places = std::size_t{k.max_batch_size} * s.groups.size();
    for (const auto& g : s.groups) {
      loads.push_back(g->load());
      places -= loads.back().requests;
    }
    std::vector<std::uint64_t> tokens;
    for (std::size_t q = 0; q < std::min(places, s.queue.size()); ++q) tokens.push_back(s.queue[q]->prompt);
    for (const Dealt& d : deal_together(tokens, loads)) put(i, d.group, s.queue[d.request]);
    s.queue.erase(s.queue.begin(), s.queue.begin() + static_cast<std::ptrdiff_t>(tokens.size()));
  }

  Launched decide(std::size_t i) {
    Launched out;
    deal(i);
    for (const auto& g : servers_[i].groups) {
      out.groups.push_back(g->decide());
      for (PlainTrtllm::Request* r : std::exchange(g->firsts, {})) token(*r);
    }
    return out;
  }
  double took(const Launched& l) const { return plain_step_of_groups(times_, l.groups); }
  // Up to an iteration that waits for a result, or to two that launch nothing: in the first one may have
  // lost its blocks that another one takes in the second.
  void go_round(std::size_t i) {
    Server& s = servers_[i];
    for (int nothing = 0; nothing < 2;) {
      const bool before = !s.launched.empty();
      Launched batch = decide(i);
      const bool more =
          std::any_of(batch.groups.begin(), batch.groups.end(), [](const auto& b) { return b.has_value(); });
      nothing = more ? 0 : nothing + 1;
      if (more) {
        s.launched.push_back(std::move(batch));
        if (!before) run(s);
      }
      s.waits = s.overlap ? before : more;
      if (s.waits) return;
    }
  }
  // The first of its batches begins, when all before it are known.
  void run(Server& s) const {
    Launched& first = s.launched.front();
    for (auto& b : first.groups)
      if (b && c_.law.drafts() > 0) PlainTrtllm::recount(*b);
    first.end = now_ + took(first);
  }
  void process(std::size_t i) {
    Server& s = servers_[i];
    const Launched done = std::move(s.launched.front());
    s.launched.pop_front();
    s.waits = false;
    for (std::size_t g = 0; g < done.groups.size(); ++g) {
      if (!done.groups[g]) continue;
      for (PlainTrtllm::Request* r : s.groups[g]->result(*done.groups[g])) {
        if (i >= c_.senders) {
          token(*r);
          continue;
        }
        answers[r->id].prefilled = now_;
        coming_.push_back({now_ + c_.path.value, &here_[r->id], c_.senders + turns_[1]++ % c_.receivers});
      }
    }
    if (!s.launched.empty()) run(s);
  }

  // One after the other: whoever asks, and whoever gives.
  void read(const PlainTrtllm::Request& r) {
    Answer& a = answers[r.id];
    a.reads = now_;
    asking_[a.to].push_back(r.id);
    longest_line = std::max(longest_line, asking_[a.to].size());
    if (asking_[a.to].size() == 1) ask(r.id);
  }
  void ask(std::size_t id) {
    std::deque<std::size_t>& line = giving_[answers[id].from];
    line.push_back(id);
    if (line.size() == 1) give(id);
  }
  void give(std::size_t id) {
    const Answer& a = answers[id];
    links_.begin(now_, here_[id].prompt,
                 {0, 0, 0, a.from, c_.senders * c_.prefill_groups.count + a.to, id, 0, 0});
    links_.share();
    most_reads = std::max(most_reads, links_.flows.size());
  }
  void end(std::size_t id) {
    Answer& a = answers[id];
    a.there = now_;
    there_[id].read = here_[id].read = true;
    asking_[a.to].pop_front();
    giving_[a.from].pop_front();
    if (!giving_[a.from].empty()) give(giving_[a.from].front());
    if (!asking_[a.to].empty()) ask(asking_[a.to].front());
  }
  void token(const PlainTrtllm::Request& r) {
    Answer& a = answers[r.id];
    if (a.first < 0) a.first = now_;
    if (r.done) a.last = now_;
  }

  const TrtllmPairCase& c_;
  const StepTimes& times_;
  PlainLinks links_;
  std::deque<Server> servers_;
  std::vector<PlainTrtllm::Request> there_, here_;
  std::vector<Coming> coming_;
  std::vector<std::deque<std::size_t>> asking_, giving_;  // requests, by group
  std::size_t turns_[2] = {0, 0};
  std::size_t sent_ = 0;
  double now_ = 0;
};

}  // namespace shardline
