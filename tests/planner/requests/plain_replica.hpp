// One replica of vLLM's in a pair, of one engine or of several that meet in every step, the plain way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/group_router.hpp"
#include "planner/requests/step_times.hpp"
#include "tests/planner/requests/blockwise_vllm.hpp"
#include "tests/planner/requests/plain_drafts.hpp"

namespace shardline {

/// The loops of its engines, planner/requests/README.md [R12] and [R19], iteration by iteration.
class PlainReplica {
 public:
  /// Of engines with drafts where there is a law of them.
  PlainReplica(const VllmKnobs& knobs, PairRole role, const std::optional<DraftLaw>& law, std::size_t count,
               const StepTimes& times, double now)
      : attempts(count), since(now), times_(times), ended_(now) {
    for (std::size_t g = 0; g < count; ++g) {
      if (law)
        groups.push_back(std::make_unique<PlainVllmDrafts>(knobs, role, *law));
      else
        groups.push_back(std::make_unique<BlockwiseVllm>(knobs, role));
    }
  }

  /// The group of a request that comes, and its number there.
  std::pair<std::size_t, std::size_t> add(const TraceRequest& r, std::size_t attempt, double t) {
    if (!busy && !has_work()) note(ended_, t);
    const std::size_t g = groups.size() == 1 ? 0 : route(t);
    groups[g]->add(r);
    attempts[g].push_back(attempt);
    return {g, attempts[g].size() - 1};
  }

  bool has_work() const {
    return counter_ > 0 || std::any_of(groups.begin(), groups.end(), [](const auto& s) {
             return s->running() + s->waiting() + s->decided() > 0;
           });
  }
  /// Whether a step begins.
  void begin(double t) {
    if (groups.size() == 1)
      while (groups[0]->decided() < groups[0]->depth() && groups[0]->schedule()) {
      }
    else
      while (groups[0]->decided() < groups[0]->depth() && go_round()) {
      }
    busy = groups[0]->decided() > 0;
    if (!busy) return;
    ended_ = t + took().value;
    note(t, ended_);
  }
  /// Engines without a step, or one that comes, ask all the time.
  void rest() {
    if (groups.size() > 1)
      for (const auto& s : groups) s->look_at_once();
  }
  double end() const { return ended_; }

  std::vector<std::unique_ptr<Scheduler>> groups;
  std::vector<std::vector<std::size_t>> attempts;  // by group and number there
  double since = 0;
  bool busy = false, dummy = false;  // a step is under way; it is of dummy batches

 private:
  struct Held {
    double from, to;
    std::vector<std::pair<std::size_t, std::size_t>> counts;  // that wait and run
  };

  // One iteration of all engines' loops: all compute something, or run a dummy batch, or all have stopped.
  bool go_round() {
    const bool unfinished = std::any_of(groups.begin(), groups.end(),
                                        [](const auto& s) { return s->running() + s->waiting() > 0; });
    if (counter_ % 32 == 0 && !unfinished) {
      counter_ = 0;
      return false;
    }
    ++counter_;
    for (const auto& s : groups) s->schedule_or_dummy();
    return true;
  }

  Seconds took() {
    std::vector<const StepBatch*> all;
    std::uint32_t most = 0;
    bool prompts = false, nothing = true;
    for (const auto& s : groups) {
      all.push_back(&s->front());
      most = std::max(most, all.back()->decodes);
      prompts = prompts || !all.back()->prompts.empty();
      nothing = nothing && all.back()->empty();
    }
    const auto bare = [&](std::uint32_t rows) {
      StepBatch b;
      b.decodes = rows;
      return times_.of(b);
    };
    dummy = nothing;
    if (nothing) return bare(1);
    if (groups.size() == 1) return times_.of(*all[0]);
    Seconds out;
    for (std::size_t g = 0; g < all.size(); ++g) {
      if (all[g]->empty()) continue;
      out = std::max(
          out, prompts ? times_.of_group(all, g) : times_.of(*all[g]) + (bare(most) - bare(all[g]->decodes)));
    }
    return out;
  }

  void note(double from, double to) {
    Held h{from, to, {}};
    for (const auto& s : groups) h.counts.emplace_back(s->waiting(), s->running());
    held_.push_back(h);
  }

  // [R11], of all that was ever held and sent.
  std::size_t route(double at) {
    const std::size_t n = groups.size(), number = sent_.size(), server = number % n;
    const double published = 0.1 * std::floor(at / 0.1);
    std::vector<double> score(n, 0);
    for (const Held& h : held_)
      for (std::size_t g = 0; g < n && h.from < published && published <= h.to; ++g)
        score[g] = 4.0 * static_cast<double>(h.counts[g].first) + static_cast<double>(h.counts[g].second);
    for (std::size_t i = server; i < number; i += n)
      if (sent_[i].first >= published) score[sent_[i].second] += 4.0 * static_cast<double>(n);
    std::size_t best = server;
    for (std::size_t i = 0; i < n; ++i)
      if (score[(server + i) % n] < score[best]) best = (server + i) % n;
    sent_.emplace_back(at, best);
    return best;
  }

  const StepTimes& times_;
  double ended_ = 0;         // of the step that is under way, or was last
  std::size_t counter_ = 0;  // iterations since they were woken
  std::vector<Held> held_;
  std::vector<std::pair<double, std::size_t>> sent_;
};

}  // namespace shardline
