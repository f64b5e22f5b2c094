#include "sim/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void Engine::run(const TaskGraph& graph, const Machine& machine, Timeline& out) {
  rates_ = nullptr;
  background_ = nullptr;
  execute(graph, machine, out);
}

void Engine::run(const TaskGraph& graph, const Machine& machine, Timeline& out,
                 std::vector<RateChange>& rates) {
  rates.clear();
  rates_ = &rates;
  background_ = nullptr;
  execute(graph, machine, out);
}

void Engine::run(const TaskGraph& graph, const Machine& machine, const Background& background, Timeline& out,
                 std::vector<RateChange>* rates) {
  if (rates != nullptr) rates->clear();
  rates_ = rates;
  background_ = background.empty() ? nullptr : &background;
  execute(graph, machine, out);
}

void Engine::execute(const TaskGraph& graph, const Machine& machine, Timeline& out) {
  SL_CHECK(graph.resource_bound() <= machine.size(), "every demand names a resource of the machine");
  check_cancelled();
  graph_ = &graph;
  machine_ = &machine;
  ++run_;
  if (pools_.size() < graph.resource_bound()) pools_.resize(graph.resource_bound());
  resize_asking(out.spans, graph.size());
  replayed_ = method_ == Method::automatic && rates_ == nullptr && background_ == nullptr && replay(out);
  if (replayed_) return;
  ++run_;
  play(out);
}

Engine::Pool& Engine::pool(ResourceId resource) {
  Pool& pool = pools_[resource];
  if (pool.run != run_) {
    pool = Pool{};
    pool.run = run_;
  }
  return pool;
}

double Engine::alone(TaskId task) const {
  double longest = 0;
  for (const Demand& demand : graph_->demands(task)) {
    SL_CHECK(demand.unit == machine_->unit(demand.resource), "a demand has the unit of its resource");
    longest = std::max(longest, demand.amount / machine_->capacity(demand.resource));
  }
  SL_CHECK(std::isfinite(longest), "a task alone ends");
  return longest;
}

double Engine::weight(TaskId task, double alone_time) const {
  if (graph_->sharing(task) == Sharing::equal_slowdown) return 1;
  double bytes = 0;
  for (const Demand& demand : graph_->demands(task)) {
    if (demand.unit == Unit::bytes) bytes = std::max(bytes, demand.amount);
  }
  const double weight = machine_->fastest_pipe().value * (alone_time / bytes);
  SL_CHECK(std::isfinite(weight) && weight > 0, "the weight of an equal_rate task is positive and finite");
  return weight;
}

bool Engine::replay(Timeline& out) {
  const auto count = static_cast<TaskId>(graph_->size());
  for (TaskId task = 0; task < count; ++task) {
    if (task % (1U << 12) == 0) check_cancelled();  // a task with many demands takes microseconds
    Seconds ready;
    for (const TaskId d : graph_->dependencies(task)) ready = std::max(ready, out.spans[d].end);
    const double drain = ready.value + graph_->latency(task).value;
    const double end = drain + alone(task);
    for (const Demand& demand : graph_->demands(task)) {
      Pool& used = pools_[demand.resource];
      const bool shared = used.run == run_ && drain < used.free_at;
      const bool lost = !(drain < end);  // work below the clock's resolution: coincidence is undecided
      if (shared || lost) return false;
      used.run = run_;
      used.free_at = end;
    }
    SL_CHECK(std::isfinite(end), "no time overflows");
    out.spans[task] = {ready, Seconds(end)};
  }
  return true;
}

// Graphs of millions of tasks are asked about even here.
void Engine::prepare() {
  CancelCheck check;
  const std::size_t count = graph_->size();
  flows_.clear();
  resize_asking(flows_, count);
  resize_asking(claims_, graph_->demand_count());
  resize_asking(successors_, graph_->dependency_count());
  successors_begin_.clear();
  resize_asking(successors_begin_, count + 1);
  for (TaskId task = 0; task < count; ++task) {
    check();
    const auto dependencies = graph_->dependencies(task);
    flows_[task].pending = static_cast<std::uint32_t>(dependencies.size());
    for (const TaskId d : dependencies) ++successors_begin_[d];
  }
  // Prefix sums point past each row; filling backwards leaves them at its begin.
  std::uint32_t sum = 0;
  for (std::uint32_t& begin : successors_begin_) begin = sum += begin;
  for (auto task = static_cast<TaskId>(count); task-- > 0;) {
    check();
    for (const TaskId d : graph_->dependencies(task)) successors_[--successors_begin_[d]] = task;
  }
  events_.clear();
  ready_.clear();
  changed_.clear();
  now_ = 0;
  visit_ = 0;
  ticket_ = 0;
  done_ = 0;
  crowd_count_ = 0;
}

void Engine::prepare_background() {
  if (background_ == nullptr) return;
  clocks_.clear();
  beside_.assign(machine_->size(), 0);
  for (std::size_t i = 0; i < background_->sources().size(); ++i) {
    const BurstSource& source = background_->sources()[i];
    clocks_.emplace_back(*background_, i);
    for (const ResourceId r : source.resources) {
      SL_CHECK(r < machine_->size() && machine_->unit(r) == Unit::bytes,
               "background traffic is on pipes of the machine");
      if (clocks_[i].on()) beside_[r] += source.flows;
    }
  }
  next_bursts_.clear();
  for (std::uint32_t i = 0; i < clocks_.size(); ++i) next_bursts_.emplace_back(clocks_[i].until(), i);
  std::make_heap(next_bursts_.begin(), next_bursts_.end(), std::greater<>());
}

// Bursts that begin or end now.
void Engine::pass_bursts() {
  while (next_bursts_.front().first <= now_) {
    std::pop_heap(next_bursts_.begin(), next_bursts_.end(), std::greater<>());
    auto& [time, i] = next_bursts_.back();
    BurstClock& clock = clocks_[i];
    clock.advance();
    time = clock.until();
    const BurstSource& source = background_->sources()[i];
    for (const ResourceId r : source.resources) {
      beside_[r] += clock.on() ? source.flows : -source.flows;
      const bool used = r < pools_.size() && pools_[r].run == run_ && pools_[r].first != kNone;
      if (used) changed_.push_back(r);
    }
    std::push_heap(next_bursts_.begin(), next_bursts_.end(), std::greater<>());
  }
}

int Engine::flows_beside(ResourceId resource) const { return background_ == nullptr ? 0 : beside_[resource]; }

void Engine::play(Timeline& out) {
  prepare();
  prepare_background();
  for (TaskId task = 0; task < graph_->size(); ++task) {
    if (flows_[task].pending == 0) ready_.push_back(task);
  }
  CancelCheck check;
  while (true) {
    check();
    while (!ready_.empty()) {
      check();
      const TaskId task = ready_.back();
      ready_.pop_back();
      start(task, out);
    }
    // All changes of one instant are in: rates depend on who is active, not on the order of events.
    ++visit_;
    for (const ResourceId resource : changed_) {
      check();
      share(resource);
    }
    changed_.clear();
    while (!events_.empty() && flows_[events_.top().task].ticket != events_.top().ticket) events_.pop();
    if (events_.empty()) break;
    if (background_ != nullptr && next_bursts_.front().first <= events_.top().time) {
      // Ends at this very instant come in the next turn: until then no time passes.
      now_ = next_bursts_.front().first;
      pass_bursts();
      continue;
    }
    now_ = events_.top().time;
    while (!events_.empty() && events_.top().time == now_) {
      check();
      const HeapEvent event = events_.top();
      events_.pop();
      Flow& flow = flows_[event.task];
      if (flow.ticket != event.ticket) continue;
      flow.ticket = 0;
      if (flow.phase == Phase::latency) {
        begin_work(event.task, out);
      } else if (Crowd* crowd = open_crowd_of(event.task)) {
        end_first(*crowd, out);
      } else {
        unlink(event.task);
        finish(event.task, out);
      }
    }
  }
  SL_CHECK(done_ == graph_->size(), "every task ends");
}

void Engine::start(TaskId task, Timeline& out) {
  out.spans[task].start = Seconds(now_);
  const double latency = graph_->latency(task).value;
  if (latency > 0) {
    flows_[task].phase = Phase::latency;
    schedule(task, now_ + latency);
  } else {
    begin_work(task, out);
  }
}

void Engine::begin_work(TaskId task, Timeline& out) {
  Flow& flow = flows_[task];
  flow.alone = alone(task);
  if (flow.alone == 0) {
    finish(task, out);
    return;
  }
  flow.weight = weight(task, flow.alone);
  flow.left = flow.alone;
  flow.since = now_;
  flow.phase = Phase::draining;
  link(task);
}

void Engine::finish(TaskId task, Timeline& out) {
  flows_[task].phase = Phase::done;
  ++done_;
  out.spans[task].end = Seconds(now_);
  const std::uint32_t end = successors_begin_[task + 1];
  for (std::uint32_t i = successors_begin_[task]; i < end; ++i) {
    if (--flows_[successors_[i]].pending == 0) ready_.push_back(successors_[i]);
  }
}

std::span<Engine::Claim> Engine::claims(TaskId task) {
  return {claims_.data() + graph_->first_demand(task), graph_->demands(task).size()};
}

void Engine::link(TaskId task) {
  const double alone_time = flows_[task].alone;
  std::uint32_t at = graph_->first_demand(task);
  for (const Demand& demand : graph_->demands(task)) {
    Claim& claim = claims_[at];
    claim = {demand.amount / machine_->capacity(demand.resource) / alone_time, demand.resource, task, kNone,
             kNone};
    if (claim.size > 0) {
      Pool& used = pool(demand.resource);
      if (Crowd* crowd = open_crowd_on(used)) join(*crowd, task);
      claim.next = used.first;
      if (used.first != kNone) claims_[used.first].previous = at;
      used.first = at;
      changed_.push_back(demand.resource);
    }
    ++at;
  }
}

void Engine::unlink(TaskId task) {
  if (rates_ != nullptr) rates_->push_back({Seconds(now_), task, PerSecond(0)});
  for (const Claim& claim : claims(task)) {
    if (!(claim.size > 0)) continue;
    Pool& used = pools_[claim.resource];
    (claim.previous == kNone ? used.first : claims_[claim.previous].next) = claim.next;
    if (claim.next != kNone) claims_[claim.next].previous = claim.previous;
    changed_.push_back(claim.resource);
  }
}

void Engine::share(ResourceId seed) {
  const Pool& start = pools_[seed];
  if (start.visit == visit_ || start.first == kNone) return;
  if (share_crowd(seed)) return;
  collect(seed);
  if (gather(seed)) return;
  const auto shared = [&](ResourceId resource) { return flows_beside(resource) > 0; };
  if (group_.size() == 1 && std::none_of(territory_.begin(), territory_.end(), shared)) {
    set_speed(group_.front(), 1);
  } else {
    solve();
  }
  double earliest = std::numeric_limits<double>::infinity();
  for (const TaskId task : group_) earliest = std::min(earliest, flows_[task].end);
  // Only the next end of a group is an event: any change in the group comes back here first.
  for (const TaskId task : group_) {
    flows_[task].ticket = 0;
    if (flows_[task].end == earliest) schedule(task, earliest);
  }
}

void Engine::collect(ResourceId seed) {
  group_.clear();
  territory_.clear();
  visit(seed);
  for (std::size_t i = 0; i < group_.size(); ++i) {
    for (const Claim& claim : claims(group_[i])) {
      if (claim.size > 0) visit(claim.resource);
    }
  }
  // The lists remember history; sorted, the same users get the same bits.
  std::sort(group_.begin(), group_.end());
}

void Engine::visit(ResourceId resource) {
  Pool& used = pools_[resource];
  if (used.visit == visit_) return;
  used.visit = visit_;
  used.local = static_cast<std::uint32_t>(territory_.size());
  territory_.push_back(resource);
  for (std::uint32_t i = used.first; i != kNone; i = claims_[i].next) {
    Flow& flow = flows_[claims_[i].task];
    if (flow.visit == visit_) continue;
    flow.visit = visit_;
    group_.push_back(claims_[i].task);
  }
}

void Engine::solve() {
  fair_share_.clear();
  for (const TaskId task : group_) {
    fair_share_.add_task(flows_[task].weight);
    for (const Claim& claim : claims(task)) {
      if (claim.size > 0) fair_share_.add_claim(pools_[claim.resource].local, claim.size);
    }
  }
  for (const ResourceId resource : territory_) {
    if (flows_beside(resource) == 0) continue;
    fair_share_.add_task(weight_beside(resource));
    fair_share_.add_claim(pools_[resource].local, 1);
  }
  const std::span<const double> speeds = fair_share_.solve();
  for (std::size_t i = 0; i < group_.size(); ++i) set_speed(group_[i], speeds[i]);
}

void Engine::settle(Flow& flow) {
  flow.left -= (now_ - flow.since) * flow.speed;
  if (flow.left < kRoundingRest * flow.alone) flow.left = 0;
  flow.since = now_;
}

void Engine::set_speed(TaskId task, double speed) {
  Flow& flow = flows_[task];
  if (flow.speed == speed) return;  // keeps the end free of needless rounding
  settle(flow);
  flow.speed = speed;
  flow.end = now_ + flow.left / speed;
  if (rates_ != nullptr) rates_->push_back({Seconds(now_), task, PerSecond(speed / flow.alone)});
}

void Engine::schedule(TaskId task, double time) {
  SL_CHECK(std::isfinite(time), "no time overflows");
  flows_[task].ticket = ++ticket_;
  events_.push({time, task, ticket_});
}

Timeline simulate(const TaskGraph& graph, const Machine& machine) {
  Timeline out;
  Engine().run(graph, machine, out);
  return out;
}

}  // namespace shardline
