#include "planner/requests/played_engine.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

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

void add(RunQuantiles& to, Seconds start, Seconds slope, std::uint64_t steps, std::uint32_t weight) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  for (std::uint64_t done = 0; done < steps && weight > 0; done += kMost) {
    to.add({(start + slope * static_cast<double>(done)).value, slope.value,
            static_cast<std::uint32_t>(std::min(kMost, steps - done)), weight});
  }
}

}  // namespace

PlayedEngine::PlayedEngine(Scheduler& scheduler, const StepTimes& times, bool jump, Answered answered,
                           Stepped stepped)
    : scheduler_(scheduler),
      times_(times),
      jump_(jump),
      answered_(std::move(answered)),
      stepped_(std::move(stepped)) {}

bool PlayedEngine::take(const TraceRequest& request, Seconds came) {
  SL_CHECK(request.arrival <= now_ || idle(), "who comes during a step waits for its end");
  now_ = std::max(now_, request.arrival);
  const std::optional<Scheduler::Id> id = scheduler_.add(request);
  if (!id) {
    ++out_.refused;
    return false;
  }
  if (*id >= requests_.size()) requests_.resize(*id + 1);
  requests_[*id] = {came, {}, {}, false};
  return true;
}

void PlayedEngine::play(Seconds until) {
  while (scheduler_.decided() < scheduler_.depth() && scheduler_.schedule()) {
  }
  if (scheduler_.decided() > 0) {
    stuck_ = false;
    step(scheduler_.front(), until);
    return;
  }
  SL_CHECK(!stuck_ && scheduler_.running() + scheduler_.waiting() > 0,
           "an engine with requests goes on after a step in which all lost their blocks");
  stuck_ = true;
}

void PlayedEngine::step(const StepBatch& batch, Seconds until) {
  DecodeStretch stretch{Seconds(0), Seconds(0), 1};
  std::uint64_t steps = 1;
  const bool prompts = !batch.prompts.empty();
  if (prompts) {
    stretch.start = times_.of(batch);
  } else {
    stretch = times_.decode(batch);
    if (jump_) steps = std::min(stretch.steps, scheduler_.steps_alike());
    steps = steps_until(stretch, until - now_, steps);
  }
  const Seconds from = now_, took = length(stretch, steps);
  now_ = from + took;
  out_.busy += took;
  if (prompts) out_.prompting += took;
  const double held = scheduler_.kv_held();
  out_.held += held * took.value;
  out_.most_held = std::max(out_.most_held, held);
  const auto running = static_cast<double>(scheduler_.running());
  out_.running += running * took.value;
  out_.series.add(from, now_, {running, static_cast<double>(scheduler_.waiting()), held, prompts});
  if (stepped_)
    stepped_({from, now_, steps, batch.decodes, static_cast<std::uint32_t>(batch.prompts.size()),
              batch.prompt_tokens(), scheduler_.waiting(), held});
  out_.steps += steps;
  ++out_.events;
  const Scheduler::Ended ended = scheduler_.finish_steps(steps);
  for (const Scheduler::Id id : ended.before) requests_[id].last = from;
  std::uint32_t steady = ended.others;  // requests whose last token came at the end of the step before
  for (const Scheduler::Id id : ended.named) steady += token(id, from, stretch, steps) ? 1 : 0;
  add(out_.itl, stretch.start, stretch.slope, steps, steady);
}

// A token at the end of the first step of a stretch, and of each that follows; whether all of them came one
// step after the one before.
bool PlayedEngine::token(Scheduler::Id id, Seconds from, const DecodeStretch& stretch, std::uint64_t steps) {
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

void PlayedEngine::leave(Scheduler::Id id) {
  const Scheduler::Request& r = scheduler_.request(id);
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

ServedRequests PlayedEngine::take_served() {
  out_.end = now_;
  out_.preemptions = scheduler_.preemptions();
  return std::move(out_);
}

}  // namespace shardline
