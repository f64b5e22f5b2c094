#include "planner/studies/plan_timeline.hpp"

#include <algorithm>
#include <cstddef>

#include "sim/base/cancel.hpp"

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
  std::vector<bool> seen(graph.size(), false);
  while (!open.empty()) {
    const TaskId t = open.back();
    open.pop_back();
    if (seen[t]) continue;
    seen[t] = true;
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

// Of ops that ended last at the same time, on as many ranks: that of the rank before `rank`, of the first the
// last.
std::optional<std::size_t> neighbour(const std::vector<PlayedOp>& ops, const std::vector<std::size_t>& last,
                                     int rank) {
  std::optional<std::size_t> before, highest;
  for (const std::size_t i : last) {
    if (ops[i].rank == rank) continue;
    if (!highest || ops[i].rank > ops[*highest].rank) highest = i;
    if (ops[i].rank < rank && (!before || ops[i].rank > ops[*before].rank)) before = i;
  }
  return before ? before : highest;
}

// What op `to` waited for. Of what ended last at the same time the nearest counts: it waited for no other.
void add_waits(const std::vector<TaskId>& tasks, const Places& places, std::size_t to, PlanTimeline& out) {
  const std::vector<PlayedOp>& ops = out.ops;
  const auto elsewhere = [&](std::size_t i) {
    return ops[i].rank != ops[to].rank || ops[i].op.lane != ops[to].op.lane;
  };
  std::optional<std::size_t> last;
  std::vector<std::size_t> from, together;
  for (const TaskId t : tasks) {
    const std::size_t i = nearest(ops, places[t], ops[to]);
    const Seconds end = ops[i].span.end;
    if (last && end > ops[*last].span.end) together.clear();
    if (!last || end >= ops[*last].span.end) together.push_back(i);
    if (!last || end > ops[*last].span.end || (end == ops[*last].span.end && !elsewhere(i))) last = i;
    if (ops[i].op.kind == OpKind::send_recv && ops[i].rank != ops[to].rank) from.push_back(i);
  }
  if (last && elsewhere(*last)) from.push_back(*last);
  // A collective for which nobody was late.
  const Op& op = ops[to].op;
  if (is_communication(op.kind) && op.kind != OpKind::send_recv) {
    if (const auto i = neighbour(ops, together, ops[to].rank)) from.push_back(*i);
  }
  std::sort(from.begin(), from.end());
  from.erase(std::unique(from.begin(), from.end()), from.end());
  for (const std::size_t i : from) out.waits.push_back({i, to});
}

// One run of what a pass repeats, stage after stage.
Schedule run_once(const Schedule& s) {
  Schedule once = s;
  for (Repeat& r : once.program) r.times = 1;
  for (Stage& stage : once.stages) stage.copies = 1;
  return once;
}

// One run of each block, in their order.
Schedule blocks_once(const Schedule& s) {
  Schedule once = s;
  once.order.clear();
  for (BlockIndex b = 0; b < once.blocks.size(); ++b) once.order.push_back(b);
  once.program = {{0, static_cast<std::uint32_t>(once.order.size()), 1, 0}};
  once.stages = {{0, 1, 1}};
  return once;
}

// The block that an op is of, and how often a pass runs it.
void name_block(const Schedule& s, const std::vector<double>& runs, OpIndex op, PlayedOp& out) {
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    if (op < s.blocks[b].first || op >= s.blocks[b].last) continue;
    out.block = s.blocks[b].name;
    out.runs = runs[b];
  }
}

// The first rank of the class of each.
std::vector<int> equal_ranks(const Schedule& s) {
  std::vector<int> first(static_cast<std::size_t>(s.classes), -1), out;
  for (int r = 0; r < s.ranks_per_stage; ++r) {
    int& of_class = first[static_cast<std::size_t>(s.class_of(r))];
    if (of_class < 0) of_class = r;
    out.push_back(of_class);
  }
  return out;
}

// `once` is what is played of e.schedule().
void play_ranks(Evaluator& e, const Schedule& once, Players who, const std::optional<NoiseSpec>& noise,
                PlanTimeline& out) {
  out.kind = TimelineKind::ranks;
  out.ranks = players(once, who);
  if (who == Players::ranks) out.as_rank = equal_ranks(once);
  const int all = static_cast<int>(once.stages.size()) * out.ranks;
  TaskGraph graph;
  lower_unfolded(once, e.cost(), graph, who, noise ? Meeting::in_step : Meeting::apart);
  if (noise) out.background = background_of(*noise, e.study().system.fabric, all, noise->seed);
  Timeline timeline;
  Engine().run(graph, e.cost().machine(all), noise ? *out.background : Background(), timeline);
  out.makespan = timeline.makespan();
  const std::vector<TaskId> path = critical_path(graph, timeline);
  std::vector<bool> critical(graph.size(), false);
  for (const TaskId t : path) critical[t] = true;
  const std::vector<double> runs = executions(e.schedule());
  Places places(graph.size());
  CancelCheck check;
  for (TaskId t = 0; t < graph.size(); ++t) {
    check();
    if (graph.tag(t) == kJoinTag) continue;
    const auto player = static_cast<int>(graph.tag(t) / once.ops.size());
    const auto index = static_cast<OpIndex>(graph.tag(t) % once.ops.size());
    const Span& span = timeline.spans[t];
    if (span.end == span.start) continue;
    for (const int k : members_of(once.ops[index], player, noise.has_value())) {
      places[t].push_back(out.ops.size());
      const int rank_class = who == Players::ranks ? once.class_of(k) : k;
      out.ops.push_back(played(e, once.op_of_class(index, rank_class), k, Seconds(0), span));
      out.ops.back().critical = critical[t];
      name_block(e.schedule(), runs, index, out.ops.back());
    }
    const std::vector<TaskId> before = awaited(graph, places, t);
    for (const std::size_t to : places[t]) add_waits(before, places, to, out);
  }
  for (const TaskId t : path) {
    if (!places[t].empty()) out.path.push_back(places[t].front());
  }
}

// Backwards from the end: what each chunk waited for, in its stage or on its link. Chunks are in the order of
// play_rounds: stage by stage, as many of each.
std::vector<PlayedChunk> critical_chunks(const std::vector<RoundTime>& chunks) {
  const auto rounds = static_cast<std::size_t>(chunks.back().round) + 1;
  const auto find = [&](int stage, int round) {
    if (stage < 0 || round < 0) return chunks.end();
    const auto place = static_cast<std::size_t>(stage) * rounds + static_cast<std::size_t>(round);
    return chunks.begin() + static_cast<std::ptrdiff_t>(place);
  };
  CancelCheck check;
  std::vector<PlayedChunk> out;
  RoundTime at = chunks.back();
  for (bool sending = true;;) {
    check();
    const auto before = find(at.stage, at.round - 1), upstream = find(at.stage - 1, at.round);
    if (sending) {
      const bool queued = before != chunks.end() && before->sent > at.end;
      RoundTime part = at;
      if (queued) part.end = before->sent;
      if (part.sent > part.end) out.push_back({part, true});
      sending = queued;
      if (queued) at = *before;
      continue;
    }
    out.push_back({at, false});
    if (before != chunks.end() && before->end == at.start) {
      at = *before;
    } else if (upstream != chunks.end()) {
      at = *upstream;
      sending = true;
    } else {
      break;
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void play_chunks(Evaluator& e, PlanTimeline& out) {
  PassScratch scratch(e.cost());
  simulate_pass(e.schedule(), e.cost(), scratch);
  out.kind = TimelineKind::chunks;
  out.chunks = play_rounds(e.schedule(), scratch.makespans);
  for (const RoundTime& r : out.chunks) out.makespan = std::max(out.makespan, r.sent);
  out.chunk_path = critical_chunks(out.chunks);
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
      if (out.ops.back().critical) out.path.push_back(out.ops.size() - 1);
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
  out.stage_ranks = s.ranks_per_stage;
  const std::optional<NoiseSpec>& noise = study.sweep().noise;
  if (s.classes > 1 || s.detached || noise) {  // chunks of unequal ranks, too
    play_ranks(e, run_once(s), noise ? Players::ranks : Players::classes, noise, out);
  } else if (s.rounds > 1) {
    play_chunks(e, out);
  } else {
    play_blocks(e, out);
  }
  return out;
}

PlanTimeline group_timeline(const Study& study, Evaluator& e, const Plan& plan, std::size_t most_ops) {
  e.simulate(plan);
  const Schedule& s = e.schedule();
  const bool by_class = s.classes > 1 || s.detached;
  const Schedule once = by_class ? run_once(s) : blocks_once(s);
  std::size_t ops = 0;
  for (const Stage& stage : once.stages) {
    for (const Repeat& repeat : once.program_of(stage)) {
      for (const BlockIndex b : once.blocks_of(repeat)) ops += once.blocks[b].last - once.blocks[b].first;
    }
  }
  const bool chunks = s.rounds > 1 && !by_class;
  if (study.sweep().noise || chunks || ops * static_cast<std::size_t>(s.ranks_per_stage) > most_ops)
    return plan_timeline(study, e, plan);
  PlanTimeline out;
  out.lanes = lanes_of(s);
  out.stage_ranks = s.ranks_per_stage;
  play_ranks(e, once, Players::ranks, std::nullopt, out);
  return out;
}

}  // namespace shardline
