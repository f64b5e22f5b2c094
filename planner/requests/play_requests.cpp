#include "planner/requests/play_requests.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Of the first k steps.
Seconds length(const DecodeStretch& s, std::uint64_t k) {
  const auto n = static_cast<double>(k);
  return n * s.start + s.slope * (n * (n - 1) / 2);
}

// The fewest of `most` steps that last so long, else `most`.
std::uint64_t steps_until(const DecodeStretch& s, Seconds time, std::uint64_t most) {
  if (length(s, most) < time) return most;
  std::uint64_t low = 0, high = most;  // too few; enough
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (length(s, middle) < time ? low : high) = middle;
  }
  return high;
}

class Play {
 public:
  Play(const std::function<bool(TraceRequest&)>& next, VllmScheduler& scheduler, const StepTimes& times,
       bool jump, const std::function<void(const AnsweredRequest&)>& answered)
      : next_(next), scheduler_(scheduler), times_(times), jump_(jump), answered_(answered) {}

  ServedRequests run() {
    read();
    for (bool idle = false;;) {
      while (coming_ && coming_->arrival <= now_) take();
      while (scheduler_.decided() < scheduler_.depth() && scheduler_.schedule()) {
      }
      if (scheduler_.decided() > 0) {
        idle = false;
        step(scheduler_.front());
      } else if (scheduler_.running() + scheduler_.waiting() > 0) {
        SL_CHECK(!idle, "an engine with requests goes on after a step in which all lost their blocks");
        idle = true;
      } else if (coming_) {
        now_ = coming_->arrival;
      } else {
        break;
      }
    }
    out_.end = now_;
    out_.preemptions = scheduler_.preemptions();
    return std::move(out_);
  }

 private:
  struct Times {
    Seconds came, first, last;
    bool any = false;
  };

  void read() {
    TraceRequest request;
    const Seconds before = coming_ ? coming_->arrival : Seconds(0);
    if (!next_(request)) {
      coming_.reset();
      return;
    }
    SL_CHECK(request.arrival >= before, "requests come in order");
    coming_ = std::move(request);
  }

  void take() {
    const std::optional<VllmScheduler::Id> id = scheduler_.add(*coming_);
    if (!id) {
      ++out_.refused;
    } else {
      if (*id >= requests_.size()) requests_.resize(*id + 1);
      requests_[*id] = {coming_->arrival, {}, {}, false};
    }
    read();
  }

  void step(const StepBatch& batch) {
    DecodeStretch stretch{Seconds(0), Seconds(0), 1};
    std::uint64_t steps = 1;
    if (batch.prompts.empty()) {
      stretch = times_.decode(batch);
      if (jump_) steps = std::min(stretch.steps, scheduler_.steps_alike());
      if (coming_) steps = steps_until(stretch, coming_->arrival - now_, steps);
    } else {
      stretch.start = times_.of(batch);
    }
    const Seconds from = now_, took = length(stretch, steps);
    now_ = from + took;
    out_.busy += took;
    out_.steps += steps;
    ++out_.events;
    std::uint32_t steady = 0;  // requests whose last token came at the end of the step before
    for (const VllmScheduler::Id id : scheduler_.finish_steps(steps)) {
      steady += token(id, from, stretch, steps) ? 1 : 0;
    }
    add(out_.itl, stretch.start, stretch.slope, steps, steady);
  }

  static void add(RunQuantiles& to, Seconds start, Seconds slope, std::uint64_t steps, std::uint32_t weight) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    for (std::uint64_t done = 0; done < steps && weight > 0; done += kMost) {
      to.add({(start + slope * static_cast<double>(done)).value, slope.value,
              static_cast<std::uint32_t>(std::min(kMost, steps - done)), weight});
    }
  }

  // A token at the end of the first step of a stretch, and of each that follows; whether all of them came one
  // step after the one before.
  bool token(VllmScheduler::Id id, Seconds from, const DecodeStretch& stretch, std::uint64_t steps) {
    Times& t = requests_[id];
    const bool steady = t.any && t.last == from;
    const Seconds first = from + stretch.start;
    if (t.any && !steady) {
      out_.itl.add((first - t.last).value);
      add(out_.itl, stretch.start + stretch.slope, stretch.slope, steps - 1, 1);
    }
    if (!t.any) t.first = first;
    t.any = true;
    t.last = now_;
    if (scheduler_.request(id).done) leave(id);
    return steady;
  }

  void leave(VllmScheduler::Id id) {
    const VllmScheduler::Request& r = scheduler_.request(id);
    const Times& t = requests_[id];
    out_.ttft.add((t.first - t.came).value);
    if (r.answer > 1) out_.tpot.add((t.last - t.first).value / (r.answer - 1));
    out_.e2e.add((t.last - t.came).value);
    ++out_.answered;
    out_.prompt_tokens += r.prompt;
    out_.found_tokens += r.found;
    out_.answer_tokens += r.answer;
    if (answered_) answered_({r.number, t.came, t.first, t.last, r.prompt, r.answer, r.found, r.preempted});
    scheduler_.forget(id);
  }

  const std::function<bool(TraceRequest&)>& next_;
  VllmScheduler& scheduler_;
  const StepTimes& times_;
  const bool jump_;
  const std::function<void(const AnsweredRequest&)>& answered_;
  std::optional<TraceRequest> coming_;
  std::vector<Times> requests_;  // by id
  Seconds now_;
  ServedRequests out_;
};

}  // namespace

ServedRequests play_requests(const std::function<bool(TraceRequest&)>& next, VllmScheduler& scheduler,
                             const StepTimes& times, bool jump,
                             const std::function<void(const AnsweredRequest&)>& answered) {
  return Play(next, scheduler, times, jump, answered).run();
}

}  // namespace shardline
