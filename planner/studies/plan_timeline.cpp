#include "planner/studies/plan_timeline.hpp"

#include <algorithm>

namespace shardline {

namespace {

// Where nothing was measured, all would be.
bool unmeasured(Evaluator& e, const OpCost& cost) {
  return !e.study().system.calibration.empty() && cost.basis >= Basis::extrapolated;
}

PlayedOp played(Evaluator& e, const Op& op, int rank, Seconds offset, const Span& span) {
  PlayedOp out;
  out.rank = rank;
  out.op = op;
  out.cost = e.cost().price(op);
  out.offset = offset;
  out.span = span;
  out.unmeasured = unmeasured(e, out.cost);
  return out;
}

// Detached lanes only where something runs on them.
std::vector<Lane> lanes_of(const Schedule& s) {
  std::vector<Lane> out;
  for (const Lane lane : {Lane::compute, Lane::communication, Lane::send, Lane::host}) {
    const bool used = std::any_of(s.ops.begin(), s.ops.end(), [&](const Op& op) { return op.lane == lane; });
    if (!is_detached(lane) || used) out.push_back(lane);
  }
  return out;
}

// Members of the collective that a task of `player` stands for.
std::vector<int> members_of(const Op& op, int player, bool in_step) {
  if (!in_step || !is_communication(op.kind) || op.kind == OpKind::send_recv) return {player};
  std::vector<int> out;
  const int first = player - player / op.group.stride % op.group.size * op.group.stride;
  for (int m = 0; m < op.group.size; ++m) out.push_back(first + m * op.group.stride);
  return out;
}

// The places in `ops` of what each task is: none of joins and of ops that take no time.
using Places = std::vector<std::vector<std::size_t>>;

// The tasks that take time and that a task waited for, through those that take none.
std::vector<TaskId> awaited(const TaskGraph& graph, const Places& places, TaskId task) {
  std::vector<TaskId> out, open(graph.dependencies(task).begin(), graph.dependencies(task).end());
  while (!open.empty()) {
    const TaskId t = open.back();
    open.pop_back();
    if (std::find(out.begin(), out.end(), t) != out.end()) continue;
    if (!places[t].empty()) {
      out.push_back(t);
    } else {
      open.insert(open.end(), graph.dependencies(t).begin(), graph.dependencies(t).end());
    }
  }
  return out;
}

// The op of `task` that is nearest to one of another task: on its lane, else on its rank.
std::size_t nearest(const std::vector<PlayedOp>& ops, const std::vector<std::size_t>& task,
                    const PlayedOp& to) {
  const auto far = [&](std::size_t i) {
    return (ops[i].rank != to.rank ? 2 : 0) + (ops[i].op.lane != to.op.lane);
  };
  return *std::min_element(task.begin(), task.end(),
                           [&](std::size_t a, std::size_t b) { return far(a) < far(b); });
}

// What op `to` waited for. Of what ended last at the same time the nearest counts: it waited for no other.
void add_waits(const std::vector<TaskId>& tasks, const Places& places, std::size_t to, PlanTimeline& out) {
  const std::vector<PlayedOp>& ops = out.ops;
  const auto elsewhere = [&](std::size_t i) {
    return ops[i].rank != ops[to].rank || ops[i].op.lane != ops[to].op.lane;
  };
  std::optional<std::size_t> last;
  std::vector<std::size_t> from;
  for (const TaskId t : tasks) {
    const std::size_t i = nearest(ops, places[t], ops[to]);
    const Seconds end = ops[i].span.end;
    if (!last || end > ops[*last].span.end || (end == ops[*last].span.end && !elsewhere(i))) last = i;
    if (ops[i].op.kind == OpKind::send_recv && ops[i].rank != ops[to].rank) from.push_back(i);
  }
  if (last && elsewhere(*last)) from.push_back(*last);
  std::sort(from.begin(), from.end());
  from.erase(std::unique(from.begin(), from.end()), from.end());
  for (const std::size_t i : from) out.waits.push_back({i, to});
}

void play_ranks(Evaluator& e, const std::optional<NoiseSpec>& noise, PlanTimeline& out) {
  Schedule once = e.schedule();
  for (Repeat& r : once.program) r.times = 1;
  for (Stage& stage : once.stages) stage.copies = 1;
  out.kind = TimelineKind::ranks;
  out.ranks = players(once, noise ? Players::ranks : Players::classes);
  const int all = static_cast<int>(once.stages.size()) * out.ranks;
  TaskGraph graph;
  lower_unfolded(once, e.cost(), graph, noise ? Players::ranks : Players::classes,
                 noise ? Meeting::in_step : Meeting::apart);
  if (noise) out.background = background_of(*noise, e.study().system.fabric, all, noise->seed);
  Timeline timeline;
  Engine().run(graph, e.cost().machine(all), noise ? *out.background : Background(), timeline);
  out.makespan = timeline.makespan();
  std::vector<bool> critical(graph.size(), false);
  for (const TaskId t : critical_path(graph, timeline)) critical[t] = true;
  Places places(graph.size());
  for (TaskId t = 0; t < graph.size(); ++t) {
    if (graph.tag(t) == kJoinTag) continue;
    const auto player = static_cast<int>(graph.tag(t) / once.ops.size());
    const auto index = static_cast<OpIndex>(graph.tag(t) % once.ops.size());
    const Span& span = timeline.spans[t];
    if (span.end == span.start) continue;
    for (const int k : members_of(once.ops[index], player, noise.has_value())) {
      places[t].push_back(out.ops.size());
      out.ops.push_back(
          played(e, once.op_of_class(index, noise ? once.class_of(k) : k), k, Seconds(0), span));
      out.ops.back().critical = critical[t];
    }
    const std::vector<TaskId> before = awaited(graph, places, t);
    for (const std::size_t to : places[t]) add_waits(before, places, to, out);
  }
}

void play_chunks(Evaluator& e, PlanTimeline& out) {
  PassScratch scratch(e.cost());
  simulate_pass(e.schedule(), e.cost(), scratch);
  out.kind = TimelineKind::chunks;
  out.chunks = play_rounds(e.schedule(), scratch.makespans);
  for (const RoundTime& r : out.chunks) out.makespan = std::max(out.makespan, r.sent);
}

void play_blocks(Evaluator& e, PlanTimeline& out) {
  const Schedule& s = e.schedule();
  PassScratch scratch(e.cost());
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[b];
    lower_block(s, block, e.cost(), scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    const std::vector<TaskId> path = critical_path(scratch.graph, scratch.timeline);
    Places places(scratch.graph.size());
    for (OpIndex i = block.first; i < block.last; ++i) {
      const Span& span = scratch.timeline.spans[i - block.first];
      if (span.end == span.start) continue;
      const TaskId task = i - block.first;
      places[task].push_back(out.ops.size());
      out.ops.push_back(played(e, s.ops[i], 0, out.makespan, span));
      out.ops.back().critical = std::find(path.begin(), path.end(), task) != path.end();
      add_waits(awaited(scratch.graph, places, task), places, out.ops.size() - 1, out);
      out.ops.back().block = block.name;
      out.ops.back().runs = runs[b];
    }
    out.makespan += scratch.timeline.makespan();
  }
}

}  // namespace

PlanTimeline plan_timeline(const Study& study, Evaluator& e, const Plan& plan) {
  e.simulate(plan);
  const Schedule& s = e.schedule();
  PlanTimeline out;
  out.lanes = lanes_of(s);
  if (s.classes > 1 || s.detached || study.sweep().noise) {  // chunks of unequal ranks, too
    play_ranks(e, study.sweep().noise, out);
  } else if (s.rounds > 1) {
    play_chunks(e, out);
  } else {
    play_blocks(e, out);
  }
  return out;
}

}  // namespace shardline
