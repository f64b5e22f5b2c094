#include "planner/search/plan_errors.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/host_work.hpp"

namespace shardline {

namespace {

// The sources of tasks, each once, in ascending order.
std::vector<ErrorSourceId> sources_of(const std::vector<TaskError>& errors) {
  std::vector<ErrorSourceId> out;
  for (const TaskError& e : errors) {
    if (!e.any) continue;
    const auto at = std::lower_bound(out.begin(), out.end(), e.source);
    if (at == out.end() || *at != e.source) out.insert(at, e.source);
  }
  return out;
}

// What takes no time, or is never waited for, has no term.
void add_change(ErrorTerms& terms, ErrorSourceId source, const std::array<double, 3>& times, double time) {
  constexpr double kNoChange = 1e-12;
  if (!(time > 0)) return;
  const ErrorTerm term{source, times[0] / time - 1, times[1] / time - 1, times[2] / time - 1};
  if (std::max(std::abs(term.low), std::abs(term.high)) > kNoChange) terms.add(term);
}

// Of a host beside kernels that take so long: what it adds if it takes as long as its band says.
void add_host_change(ErrorTerms& terms, const System& system, Seconds kernels, Seconds host) {
  if (!(host > Seconds(0))) return;
  const ErrorBand& b = system.host.band;
  const auto step = [&](double ln) { return beside_host(kernels, host * std::exp(ln)).value; };
  add_change(terms, kHostSource, {step(b.low), step((b.low + b.high) / 2), step(b.high)},
             beside_host(kernels, host).value);
}

}  // namespace

BlockErrors::BlockErrors(CostModel& cost, const Schedule& schedule, Seconds host)
    : cost_(cost), schedule_(schedule), host_(host), plain_(schedule.blocks.size(), 0) {}

void BlockErrors::add(BlockIndex block, const TaskGraph& graph, const Timeline& timeline) {
  const Calibration& calibration = cost_.system().calibration;
  errors_.clear();
  for (TaskId t = 0; t < graph.size(); ++t)
    errors_.push_back(task_error(calibration, cost_.interval(schedule_.ops[graph.tag(t)])));
  plain_[block] = timeline.makespan().value;
  for (Source& s : sources_) {
    for (auto& of_end : s.makespans) of_end[block] = plain_[block];
  }
  for (const ErrorSourceId id : sources_of(errors_)) {
    const std::array<double, 3> times = makespans_of_errors(graph, timeline, errors_, id, ends_);
    auto at = std::find_if(sources_.begin(), sources_.end(), [&](const Source& s) { return s.id == id; });
    if (at == sources_.end()) at = sources_.insert(at, {id, {plain_, plain_, plain_}});
    for (std::size_t k = 0; k < times.size(); ++k) at->makespans[k][block] = times[k];
  }
}

ErrorTerms BlockErrors::terms() const {
  const auto time = [&](const std::vector<double>& makespans) {
    return beside_host(token_time(schedule_, add_up(schedule_, makespans)), host_).value;
  };
  const double plain = time(plain_);
  ErrorTerms out;
  for (const Source& s : sources_)
    add_change(out, s.id, {time(s.makespans[0]), time(s.makespans[1]), time(s.makespans[2])}, plain);
  add_host_change(out, cost_.system(), token_time(schedule_, add_up(schedule_, plain_)), host_);
  return out;
}

ErrorTerms errors_of_classes(CostModel& cost, const Schedule& s, const TaskGraph& graph,
                             const Timeline& timeline, Seconds host) {
  const Calibration& calibration = cost.system().calibration;
  std::vector<TaskError> known(s.ops.size() * static_cast<std::size_t>(s.classes)), errors(graph.size());
  for (TaskId t = 0; t < graph.size(); ++t) {
    const std::uint32_t tag = graph.tag(t);
    if (tag == kJoinTag) continue;
    const std::size_t op = tag % s.ops.size(), rank = tag / s.ops.size();
    TaskError& error = known[op * static_cast<std::size_t>(s.classes) + rank];
    if (!error.any)
      error = task_error(calibration,
                         cost.interval(s.op_of_class(static_cast<OpIndex>(op), static_cast<int>(rank))));
    errors[t] = error;
  }
  const auto step = [&](double makespan) { return beside_host(Seconds(makespan), host).value; };
  std::vector<std::array<double, 3>> ends;
  ErrorTerms out;
  for (const ErrorSourceId id : sources_of(errors)) {
    const std::array<double, 3> times = makespans_of_errors(graph, timeline, errors, id, ends);
    add_change(out, id, {step(times[0]), step(times[1]), step(times[2])}, step(timeline.makespan().value));
  }
  add_host_change(out, cost.system(), timeline.makespan(), host);
  return out;
}

}  // namespace shardline
