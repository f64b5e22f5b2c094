#include "planner/requests/played_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "planner/requests/group_times.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Of the first k steps.
Seconds length(const DecodeStretch& s, std::uint64_t k) {
  const auto n = static_cast<double>(k);
  return n * s.start + s.slope * (n * (n - 1) / 2);
}

// Drawn in the first k steps.
StepEnergy drawn(const DecodeStretch& s, std::uint64_t k) {
  const auto n = static_cast<double>(k);
  return s.energy * n + s.rise * (n * (n - 1) / 2);
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
    : PlayedEngine(std::vector<Scheduler*>{&scheduler}, ReplicaGroups{}, times, jump, std::move(answered),
                   std::move(stepped)) {}

PlayedEngine::PlayedEngine(std::vector<Scheduler*> schedulers, const ReplicaGroups& groups,
                           const StepTimes& times, bool jump, Answered answered, Stepped stepped)
    : rule_(groups),
      router_(groups.routing, schedulers.size()),
      times_(times),
      jump_(jump),
      answered_(std::move(answered)),
      stepped_(std::move(stepped)),
      batches_(schedulers.size()),
      counts_(schedulers.size()) {
  SL_CHECK(groups.count == schedulers.size(), "each group has a scheduler");
  SL_CHECK(groups.routing != GroupRouting::from_queue || groups.places > 0, "a group has a place");
  for (Scheduler* s : schedulers) {
    SL_CHECK(s->depth() == schedulers.front()->depth(), "groups decide equally many steps ahead");
    groups_.push_back({s});
  }
  if (groups.delayer.enabled) delayer_.emplace(groups.delayer);
  if (times.stages() == nullptr) return;
  SL_CHECK(groups.count == 1, "groups do not meet in stages");
  clock_.emplace(*times.stages(), schedulers.front()->stage_order());
}

bool PlayedEngine::idle() const {
  return queue_.empty() && wave_ == 0 &&
         std::all_of(groups_.begin(), groups_.end(), [](const Group& g) { return idle(*g.scheduler); });
}

std::size_t PlayedEngine::waiting() const {
  std::size_t out = queue_.size();
  for (const Group& g : groups_) out += g.scheduler->waiting();
  return out;
}

// Nothing comes or goes in between.
void PlayedEngine::hold(Seconds from, Seconds to) {
  if (groups_.size() == 1) return;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    counts_[i] = {groups_[i].scheduler->waiting(), groups_[i].scheduler->running()};
  router_.hold(from, to, counts_);
}

bool PlayedEngine::take(const TraceRequest& request, Seconds came) {
  SL_CHECK(!open(), "nobody comes in the middle of a stretch");
  SL_CHECK(request.arrival <= now_ || idle() || asleep_, "who comes during a step waits for its end");
  if (request.arrival > now_) {
    hold(now_, request.arrival);
    // An engine with nothing to do looks for it all the time: no group is still to learn of its last step
    // when others begin the next.
    if (groups_.size() > 1) decide();
    SL_CHECK(steps_.empty(), "an engine with nothing to do decides nothing");
    if (idle())
      for (const Group& g : groups_) g.scheduler->rests();
  }
  wake(request.arrival);
  const bool queued = queues();
  if (!queued) taken_by_ = router_.route(request.arrival, request.number);
  const bool taken =
      queued ? groups_.front().scheduler->takes(request) : give(groups_[taken_by_], request, came, taken_);
  if (!taken) {
    ++out_.refused;
    return false;
  }
  if (queued) queue(request, came);
  ++taken_;
  return true;
}

void PlayedEngine::wake(Seconds now) {
  now_ = std::max(now_, now);
  asleep_ = false;
}

bool PlayedEngine::give(Group& group, const TraceRequest& request, Seconds came, std::uint64_t number) {
  const std::optional<Scheduler::Id> id = group.scheduler->add(request);
  if (!id) return false;
  if (*id >= group.requests.size()) {
    grow_asking(group.requests, *id + 1 - group.requests.size());
    group.requests.resize(*id + 1);
  }
  group.requests[*id] = {came, {}, {}, number, false};
  group.tokens += group.scheduler->request(*id).prompt;
  return true;
}

void PlayedEngine::decide() {
  const std::size_t depth = groups_.front().scheduler->depth();
  // now_ is a sum, which may be a rounding before the look that ended the last of the steps.
  const auto decides = [this] { return !clock_ || steps_.empty() || clock_->decides(now_); };
  while (steps_.size() < depth && decides()) {
    if (!(rule_.wave > 0 ? decide_or_dummy() : decide_once())) break;
  }
  if (clock_ && decides()) clock_->waits(now_);
}

// A step in which no group has anything to do is none, or [R19] one of dummy batches. False: nothing is to be
// decided now.
bool PlayedEngine::decide_once() {
  deal();
  if (delayer_) hold_prompts();
  works_.clear();
  for (Group& g : groups_) {
    works_.push_back(g.scheduler->schedule() ? 1 : 0);
    take_firsts(g);
  }
  if (std::count(works_.begin(), works_.end(), 1) > 0) {
    steps_.push_back(std::move(works_));
    if (clock_) {
      const Scheduler& only = *groups_.front().scheduler;
      clock_->decided(now_, only.back(), only.back_answers());
    }
    return true;
  }
  // Passes in which nobody computes anything count as any other, and take no time here.
  const auto again = [](const Group& g) { return g.scheduler->decides_again(); };
  return steps_.empty() && (held_ || std::any_of(groups_.begin(), groups_.end(), again));
}

// [R40] Before the next step is decided.
void PlayedEngine::hold_prompts() {
  bids_.clear();
  for (const Group& g : groups_) bids_.push_back(g.scheduler->prompt_bid());
  bidden_ = std::any_of(bids_.begin(), bids_.end(), [](const PromptBid& b) { return b.prompts; });
  held_ = !delayer_->allows(bids_, now_);
  for (const Group& g : groups_) g.scheduler->hold_prompts(held_);
}

// [R14] A token that came with its cache is the client's when the step that goes on from it is decided.
void PlayedEngine::take_firsts(Group& group) {
  firsts_.clear();
  group.scheduler->take_firsts(firsts_);
  for (const Scheduler::Id id : firsts_) {
    Times& t = group.requests[id];
    t.first = t.last = now_;
    t.any = true;
    out_.end = std::max(out_.end, now_);
    if (!group.scheduler->request(id).done) continue;
    leave(group, id);
    left_early_ = true;
  }
}

void PlayedEngine::play(Seconds until) {
  begin();
  end(until);
}

void PlayedEngine::begin() {
  decided_at_ = now_;
  dealt_.clear();
  left_early_ = false;
  SL_CHECK(!open() && !idle(), "an engine that begins with steps has requests, and none under way");
  decide();
  if (!steps_.empty()) {
    tries_ = 0;
    step();
    return;
  }
  if (idle()) return;  // somebody had all of its answer with its cache
  asleep_ = std::any_of(groups_.begin(), groups_.end(),
                        [](const Group& g) { return g.scheduler->waits_for_transfers(); });
  if (asleep_) return;
  // A step in which all lost their blocks is followed by one in which some have them again.
  if (++tries_ < 2) return;
  throw UserError({Diagnostic{
      {},
      fmt::format("after {} of simulated time no request goes on: those that are there wait for each other's "
                  "KV blocks, and the scheduler's own rules take none of them",
                  to_string(now_)),
      {"an engine may stand still so, too: give the pool more blocks, another capacity_scheduler_policy, or "
       "fewer requests at once (planner/requests/README.md [R9])"}}});
}

// How many steps, from the first on, each group computes something alike in, or nothing.
std::uint64_t PlayedEngine::steps_alike() const {
  std::uint64_t out = Scheduler::kEndless;
  for (const Group& g : groups_) {
    const Scheduler& s = *g.scheduler;
    // One without requests may have rows in vain in a step that was decided before.
    if (idle(s) && s.decided() == 0) continue;
    out = std::min(out, s.decided() == steps_.size() ? s.steps_alike() : 1);
  }
  if (bidden_) return 1;                         // the next step's bids count
  if (left_early_ && !queue_.empty()) return 1;  // its place is somebody's when steps are next decided
  if (const std::uint64_t wave = rule_.wave; wave > 0 && !unfinished())
    out = std::min(out, (wave - wave_ % wave) % wave + 1);
  return out;
}

void PlayedEngine::look_at_groups() {
  static const StepBatch kNothing;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    batches_[i] = steps_.front()[i] != 0 ? &groups_[i].scheduler->front() : &kNothing;
}

// Of several steps nobody knows yet how many are played; a single one ends at once, with what comes of it.
void PlayedEngine::step() {
  look_at_groups();
  prompts_ =
      std::any_of(batches_.begin(), batches_.end(), [](const StepBatch* b) { return !b->prompts.empty(); });
  dummy_ = std::all_of(batches_.begin(), batches_.end(), [](const StepBatch* b) { return b->empty(); });
  stretch_ = {Seconds(0), Seconds(0), 1};
  open_ = 1;
  if (clock_) {
    if (!pass_stages()) return;
  } else if (prompts_) {
    const PricedStep one = priced_step_of_groups(times_, batches_);
    stretch_ = {one.time, Seconds(0), 1, one.energy};
  } else {
    stretch_ = dummy_ ? dummy_steps(times_) : stretch_of_groups(times_, batches_);
    if (jump_) open_ = std::min(stretch_.steps, steps_alike());
    open_ = steps_until(stretch_, dies_ - now_, open_);
  }
  if (ends() > dies_ && --open_ == 0)
    die();
  else if (open_ == 1)
    end_open();
}

// Dummy batches that nothing but what comes from outside ends have no end.
Seconds PlayedEngine::ends() const {
  if (open_ == Scheduler::kEndless) return Seconds(std::numeric_limits<double>::infinity());
  return now_ + length(stretch_, open_);
}

void PlayedEngine::end(Seconds at) {
  if (!open()) return;
  open_ = steps_until(stretch_, at - now_, open_);
  end_open();
}

void PlayedEngine::end_open() {
  const Seconds from = now_;
  const std::uint64_t steps = std::exchange(open_, 0);
  if (rule_.wave > 0) wave_ += steps - 1;
  now_ = from + length(stretch_, steps);
  hold(from, now_);
  out_.energy += drawn(stretch_, steps);
  account(from, length(stretch_, steps), steps);
  works_ = std::move(steps_.front());
  steps_.pop_front();
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (works_[i] != 0) finish(groups_[i], from, steps);
}

// In the middle of a step.
void PlayedEngine::die() {
  const Seconds from = now_;
  now_ = dies_;
  dead_ = true;
  // Of a pipeline: in the time behind the step before.
  if (stretch_.start > Seconds(0)) out_.energy += stretch_.energy * ((now_ - from) / stretch_.start);
  account(from, now_ - from, 0);
}

void PlayedEngine::finish(Group& group, Seconds from, std::uint64_t steps) {
  const Scheduler::Ended ended = group.scheduler->finish_steps(steps);
  for (const Scheduler::Id id : ended.before) group.requests[id].last = from;
  std::uint32_t steady = ended.others;  // requests whose last token came at the end of the step before
  for (const Scheduler::Id id : ended.named) steady += token(group, id, from, steps) ? 1 : 0;
  add(out_.itl, stretch_.start, stretch_.slope, steps, steady);
}

// A token at the end of the first step of a stretch, and of each that follows; whether all of them came one
// step after the one before.
bool PlayedEngine::token(Group& group, Scheduler::Id id, Seconds from, std::uint64_t steps) {
  Times& t = group.requests[id];
  const bool steady = t.any && t.last == from;
  const Seconds first = from + stretch_.start;
  if (t.any && !steady) {
    out_.itl.add((first - t.last).value);
    add(out_.itl, stretch_.start + stretch_.slope, stretch_.slope, steps - 1, 1);
  }
  if (!t.any) {  // what was read is answered in steps that only decode
    t.first = first;
    add(out_.itl, stretch_.start + stretch_.slope, stretch_.slope, steps - 1, 1);
  }
  t.any = true;
  t.last = now_;
  if (group.scheduler->request(id).done) leave(group, id);
  return steady;
}

void PlayedEngine::leave(Group& group, Scheduler::Id id) {
  const Scheduler::Request& r = group.scheduler->request(id);
  const Times& t = group.requests[id];
  out_.ttft.add((t.first - t.came).value);
  if (r.answer > 1) out_.tpot.add((t.last - t.first).value / (r.answer - 1));
  out_.e2e.add((t.last - t.came).value);
  ++out_.answered;
  out_.prompt_tokens += r.prompt;
  out_.found_tokens += r.found;
  out_.answer_tokens += r.answer;
  if (answered_) answered_({t.number, t.came, t.first, t.last, r.prompt, r.answer, r.found, r.preempted});
  group.tokens -= r.prompt;
  group.scheduler->forget(id);
}

void merge(ServedRequests& to, const ServedRequests& more) {
  to.ttft.merge(more.ttft);
  to.tpot.merge(more.tpot);
  to.itl.merge(more.itl);
  to.e2e.merge(more.e2e);
  to.answered += more.answered;
  to.refused += more.refused;
  to.preemptions += more.preemptions;
  to.steps += more.steps;
  to.events += more.events;
  to.prompt_tokens += more.prompt_tokens;
  to.found_tokens += more.found_tokens;
  to.answer_tokens += more.answer_tokens;
  to.end = std::max(to.end, more.end);
  to.busy += more.busy;
  to.prompting += more.prompting;
  to.held += more.held;
  to.running += more.running;
  to.most_held = std::max(to.most_held, more.most_held);
  to.dummies += more.dummies;
  to.dummy_time += more.dummy_time;
  to.energy += more.energy;
  to.series.merge(more.series);
}

ServedRequests PlayedEngine::take_served() {
  for (const Group& g : groups_) out_.preemptions += g.scheduler->preemptions();
  return std::move(out_);
}

}  // namespace shardline
