// Requests played on an engine of several attention groups, as the player does it and slowly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/group_router.hpp"
#include "planner/requests/played_engine.hpp"
#include "planner/requests/step_times.hpp"
#include "tests/planner/requests/random_play.hpp"

namespace shardline {

using Schedulers = std::vector<std::unique_ptr<Scheduler>>;

inline std::vector<Scheduler*> all_of(const Schedulers& schedulers) {
  std::vector<Scheduler*> out;
  for (const auto& s : schedulers) out.push_back(s.get());
  return out;
}

inline Played play_groups(const std::vector<TraceRequest>& requests, const Schedulers& schedulers,
                          const ReplicaGroups& groups, const StepTimes& times, bool jump) {
  Played out;
  PlayedEngine engine(all_of(schedulers), groups, times, jump,
                      [&](const AnsweredRequest& a) { out.answers.push_back(a); });
  std::size_t next = 0;
  while (next < requests.size() || !engine.idle()) {
    const bool more = next < requests.size();
    if (more && (engine.idle() || requests[next].arrival <= engine.now())) {
      engine.take(requests[next], requests[next].arrival);
      ++next;
    } else {
      engine.play(more ? requests[next].arrival : Seconds(std::numeric_limits<double>::infinity()));
    }
  }
  out.served = engine.take_served();
  return out;
}

/// Every step by itself, and every rule anew: what a group is known to have is looked up in all that it ever
/// had, and a step takes the longest of what the groups take, written out.
class SlowGroups {
 public:
  SlowGroups(const Schedulers& schedulers, const ReplicaGroups& rule, const StepTimes& times)
      : schedulers_(schedulers), rule_(rule), times_(times), went_(schedulers.size()) {}

  std::uint64_t delays = 0;  // passes in which prompts waited

  /// Answers by the number of their request, in the order of coming; none where it was refused.
  std::vector<std::optional<AnsweredRequest>> play(const std::vector<TraceRequest>& requests) {
    answers_.resize(requests.size());
    asked_ = requests;
    std::size_t next = 0;
    while (true) {
      while (next < requests.size() && requests[next].arrival <= now_) come(requests[next], next), ++next;
      decide();
      if (!decided_.empty()) {
        step();
        continue;
      }
      if (!idle()) continue;  // all lost their blocks
      if (next == requests.size()) return answers_;
      note(now_, requests[next].arrival);
      now_ = requests[next].arrival;
      for (const auto& s : schedulers_) s->rests();
    }
  }

 private:
  struct Held {
    Seconds from, to;
    std::vector<std::pair<std::size_t, std::size_t>> counts;  // that wait and run
  };

  bool idle() const {
    if (!queue_.empty()) return false;
    for (const auto& s : schedulers_)
      if (s->running() + s->waiting() + s->decided() > 0) return false;
    return true;
  }

  void note(Seconds from, Seconds to) {
    Held h{from, to, {}};
    for (const auto& s : schedulers_) h.counts.emplace_back(s->waiting(), s->running());
    held_.push_back(h);
  }

  std::size_t route(Seconds at) {
    const std::size_t n = schedulers_.size(), number = sent_.size(), server = number % n;
    std::size_t best = server;
    if (rule_.routing == GroupRouting::fewest) {
      const double published = 0.1 * std::floor(at.value / 0.1);
      std::vector<double> score(n, 0);
      for (const Held& h : held_) {
        if (h.from.value >= published || published > h.to.value) continue;
        for (std::size_t g = 0; g < n; ++g)
          score[g] = 4.0 * static_cast<double>(h.counts[g].first) + static_cast<double>(h.counts[g].second);
      }
      for (std::size_t i = server; i < number; i += n)
        if (sent_[i].first.value >= published) score[sent_[i].second] += 4.0 * static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i)
        if (score[(server + i) % n] < score[best]) best = (server + i) % n;
    }
    sent_.emplace_back(at, best);
    return best;
  }

  void come(const TraceRequest& request, std::size_t number) {
    if (rule_.routing != GroupRouting::from_queue) return give(route(request.arrival), number);
    if (schedulers_.front()->takes(request)) queue_.push_back(number);
  }

  void give(std::size_t group, std::size_t number) {
    const auto id = schedulers_[group]->add(asked_[number]);
    if (!id) return;
    if (went_[group].size() <= *id) went_[group].resize(*id + 1);
    went_[group][*id] = number;
    given_.emplace_back(number, group);
    answers_[number] = AnsweredRequest{number, asked_[number].arrival, Seconds(-1), {}};
  }

  // Requests without an answer that a group has, and the tokens of their prompts.
  std::pair<std::size_t, std::int64_t> load(std::size_t group) const {
    std::pair<std::size_t, std::int64_t> out;
    for (const auto& [number, to] : given_) {
      if (to != group || answers_[number]->answer > 0) continue;
      ++out.first;
      out.second += asked_[number].input;
    }
    return out;
  }

  // One after another, the longest that is left of those for whom there are places.
  void deal() {
    const std::size_t n = schedulers_.size();
    std::size_t all = 0, most = 0;
    for (std::size_t g = 0; g < n; ++g) {
      all += load(g).first;
      most = std::max(most, load(g).first);
    }
    const std::size_t count = std::min(queue_.size(), n * rule_.places - all);
    std::vector<std::size_t> together(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
    while (most * n < all + count) ++most;
    while (!together.empty()) {
      const auto longest = std::max_element(together.begin(), together.end(), [&](auto a, auto b) {
        return asked_[a].input < asked_[b].input;
      });
      std::size_t best = n;
      for (std::size_t g = 0; g < n; ++g) {
        const auto [requests, tokens] = load(g);
        if (requests >= most) continue;
        if (best == n || tokens < load(best).second ||
            (tokens == load(best).second && requests < load(best).first))
          best = g;
      }
      give(best, *longest);
      together.erase(longest);
    }
  }

  void decide() {
    while (decided_.size() < schedulers_.front()->depth()) {
      if (!queue_.empty()) deal();
      const bool waits = rule_.delayer.enabled && !negotiate();
      std::vector<bool> works;
      bool any = false;
      for (const auto& s : schedulers_) {
        works.push_back(s->schedule());
        any = any || works.back();
      }
      if (!any && waits && decided_.empty()) continue;
      if (!any) return;
      decided_.push_back(works);
    }
  }

  // [R40] Whether prompts may begin, as the engine's ranks find it out (prefill_delayer.py), in its order.
  bool negotiate() {
    std::vector<PromptBid> ranks;
    std::size_t prefillable = 0;
    bool forced = false;
    PromptBid top;  // the most of any rank
    for (const auto& s : schedulers_) {
      const PromptBid b = s->prompt_bid();
      ranks.push_back(b);
      prefillable += b.prompts ? 1 : 0;
      forced = forced || (b.prompts && b.held < rule_.delayer.token_usage_low_watermark);
      top.running = std::max(top.running, b.running);
      top.most = std::max(top.most, b.most);
      top.waiting = std::max(top.waiting, b.waiting);
    }
    bool allow = true;
    if (prefillable == ranks.size() && !forced) {
      bool queue = false;
      if (rule_.delayer.queue_min_ratio > 0 && top.running > 0) {
        const auto least = std::min(
            static_cast<std::uint32_t>(static_cast<double>(top.running) * rule_.delayer.queue_min_ratio),
            top.most);
        queue = least > 0 && top.waiting < least;
        if (queue && passes_ > 0 && now_ - began_ >= rule_.delayer.max_delay) queue = false;
      }
      const bool slot = top.running + top.most > rule_.delayer.max_running_requests;
      if (slot || queue) {
        allow = !skipped_;
        skipped_ = true;
      }
    } else if (prefillable > 0 && prefillable < ranks.size() && !forced) {
      allow = passes_ >= rule_.delayer.max_delay_passes - 1;
    }
    if (!allow && passes_ == 0) began_ = now_;
    passes_ = allow ? 0 : passes_ + 1;
    delays += allow ? 0 : 1;
    for (const auto& s : schedulers_) s->hold_prompts(!allow);
    return allow;
  }

  Seconds time() const {
    const StepBatch nothing;
    std::vector<const StepBatch*> groups;
    std::uint32_t most = 0;
    bool prompts = false;
    for (std::size_t g = 0; g < schedulers_.size(); ++g) {
      groups.push_back(decided_.front()[g] ? &schedulers_[g]->front() : &nothing);
      most = std::max(most, groups.back()->decodes);
      prompts = prompts || !groups.back()->prompts.empty();
    }
    Seconds out;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const StepBatch& own = *groups[g];
      if (own.empty()) continue;
      if (prompts) {
        out = std::max(out, times_.of_group(groups, g));
        continue;
      }
      StepBatch bare, bare_most;
      bare.decodes = own.decodes;
      bare_most.decodes = most;
      out = std::max(out, times_.of(own) + (times_.of(bare_most) - times_.of(bare)));
    }
    return out;
  }

  void step() {
    const Seconds took = time();
    note(now_, now_ + took);
    now_ += took;
    const std::vector<bool> works = decided_.front();
    decided_.erase(decided_.begin());
    for (std::size_t g = 0; g < schedulers_.size(); ++g) {
      if (!works[g]) continue;
      const Scheduler::Ended ended = schedulers_[g]->finish_steps(1);
      for (const Scheduler::Id id : ended.named) {
        AnsweredRequest& a = *answers_[went_[g][id]];
        if (a.first < Seconds(0)) a.first = now_;
        const Scheduler::Request r = schedulers_[g]->request(id);
        if (!r.done) continue;
        a.last = now_;
        a.prompt = r.prompt;
        a.answer = r.answer;
        a.found = r.found;
        a.preempted = r.preempted;
        schedulers_[g]->forget(id);
      }
    }
  }

  const Schedulers& schedulers_;
  const ReplicaGroups rule_;
  const StepTimes& times_;
  std::vector<TraceRequest> asked_;
  std::vector<std::size_t> queue_;                          // numbers of those in front of groups
  std::vector<std::pair<std::size_t, std::size_t>> given_;  // number, group
  Seconds now_, began_;
  std::uint32_t passes_ = 0;  // in which prompts waited, one after another
  bool skipped_ = false;      // the first of those in which all could have begun
  std::vector<std::vector<bool>> decided_;
  std::vector<std::vector<std::size_t>> went_;  // by group and id: which request
  std::vector<std::pair<Seconds, std::size_t>> sent_;
  std::vector<Held> held_;
  std::vector<std::optional<AnsweredRequest>> answers_;
};

}  // namespace shardline
