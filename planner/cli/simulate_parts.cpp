// Timelines of one plan as a trace and a picture.
#include "planner/cli/simulate_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/noise_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/serving/served_plan.hpp"
#include "reports/plot.hpp"
#include "reports/terminal.hpp"
#include "reports/trace.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct Drawn {
  TraceNames names;
  std::vector<TraceEvent> events;
  std::vector<TraceFlow> flows;
  Gantt gantt;
};

void write_files(const Drawn& d, OutputFolder& files) {
  files.write("trace.json", trace_json(d.names, d.events, d.flows));
  for (const char* kind : {"svg", "png"}) files.add(render(d.gantt, kind), std::string("timeline.") + kind);
}

using TraceArguments = std::vector<std::pair<std::string, std::string>>;

TraceEvent trace_event(const PlayedOp& played, TraceArguments arguments) {
  const Op& op = played.op;
  const OpCost& c = played.cost;
  arguments.emplace_back("part", std::string(to_string(op.part)));
  arguments.emplace_back("critical path", played.critical ? "yes" : "no");
  if (flops(op) > Flops(0)) arguments.emplace_back("flops", to_string(flops(op)));
  if (c.memory > Bytes(0)) arguments.emplace_back("HBM bytes", to_string(c.memory));
  arguments.emplace_back("basis", std::string(to_string(c.basis)));
  if (c.fit) {
    arguments.emplace_back("fit", c.fit->name());
  }
  if (c.fit && c.basis == Basis::measured) {
    const FitError& error = c.fit->correction.empty() ? c.fit->alone : c.fit->corrected;
    arguments.emplace_back("error of the fit",
                           fmt::format("median {:.1f} %, p90 {:.1f} %", 100 * error.median, 100 * error.p90));
  }
  if (is_communication(op.kind)) {
    arguments.emplace_back("message", message_text(op) + ", " + message_meaning(op.kind));
    arguments.emplace_back("algorithm", algorithm_text(c));
  }
  arguments.emplace_back("op", describe(op));
  return {played.rank,
          static_cast<int>(op.lane),
          op.name,
          std::string(to_string(op.kind)),
          played.offset + played.span.start,
          played.span.end - played.span.start,
          std::move(arguments)};
}

// Arrows between ops, which are the first events, in their order.
void add_flows(const PlanTimeline& timeline, Drawn& d) {
  for (const PlayedWait& w : timeline.waits) {
    const Op& awaited = timeline.ops[w.from].op;
    d.flows.push_back({w.from, w.to, std::string(is_communication(awaited.kind) ? "message" : "result")});
  }
}

void name_process(Drawn& d, const PlanTimeline& timeline, int process, std::string name) {
  d.names.processes.push_back({process, std::move(name)});
  for (const Lane lane : timeline.lanes)
    d.names.lanes.push_back({{process, static_cast<int>(lane)}, std::string(to_string(lane))});
}

// The critical path on a lane of its own, above all others: what it is made of, one after the other.
void add_path(Drawn& d, int process, std::vector<TraceEvent> parts) {
  d.names.processes.push_back({process, "critical path"});
  d.names.lanes.push_back({{process, 0}, "what the end waited for"});
  d.names.top = process;
  for (TraceEvent& part : parts) {
    part.process = process;
    part.lane = 0;
    d.events.push_back(std::move(part));
  }
}

// "rank 9 (as rank 1)": of equal work. A rank that stands for others that are not drawn says how many.
std::string rank_name(const PlanTimeline& timeline, int rank) {
  if (!timeline.as_rank.empty()) {
    const int first = timeline.as_rank[static_cast<std::size_t>(rank)];
    return first == rank ? fmt::format("rank {}", rank) : fmt::format("rank {} (as rank {})", rank, first);
  }
  if (timeline.kind == TimelineKind::blocks)
    return fmt::format("one of {} equal ranks, one run of each block", timeline.stage_ranks);
  return fmt::format("class {} of ranks, {} equal ones", rank, timeline.stage_ranks / timeline.ranks);
}

TraceEvent op_event(const PlayedOp& p) {
  if (*p.block == '\0') return trace_event(p, {});
  return trace_event(p, {{"block", fmt::format("{}, {} runs per pass", p.block, p.runs)}});
}

void trace_ops(const PlanTimeline& timeline, Drawn& d) {
  for (int k = 0; k < timeline.ranks; ++k) name_process(d, timeline, k, rank_name(timeline, k));
  for (const PlayedOp& p : timeline.ops) d.events.push_back(op_event(p));
  std::vector<TraceEvent> path;
  for (const std::size_t i : timeline.path) {
    path.push_back(op_event(timeline.ops[i]));
    if (timeline.ranks > 1) path.back().name += fmt::format(" (rank {})", timeline.ops[i].rank);
  }
  add_path(d, timeline.ranks, std::move(path));
  add_flows(timeline, d);
}

// The lanes of a rank stand together.
void picture_ranks(const PlanTimeline& timeline, int shown, Gantt& gantt) {
  if (timeline.ranks > shown) gantt.title += fmt::format("; the first {} of {} ranks", shown, timeline.ranks);
  for (int k = 0; k < std::min(timeline.ranks, shown); ++k) {
    for (const PlayedOp& p : timeline.ops) {
      if (p.rank != k) continue;
      const std::string lane(is_communication(p.op.kind) ? "messages" : to_string(p.op.lane));
      gantt.spans.push_back({fmt::format("rank {} {}", k, lane), p.span.start.value * 1e6,
                             p.span.end.value * 1e6, std::string(to_string(p.op.kind)), p.op.name,
                             p.unmeasured, p.critical});
    }
  }
}

// The tokens of chunks of a prompt; of several prompts, whose chunks differ, nothing is said.
struct ChunkTokens {
  long long fresh = 0, cached = 0, size = 0;  // size 0: nothing

  static ChunkTokens of(const Study& study, const Plan& plan) {
    const std::vector<Segment>& prompts = study.study.batch.prefill;
    if (prompts.size() != 1 || prompts.front().count != 1) return {};
    return {prompts.front().fresh, prompts.front().cached, plan[kPrefillChunk]};
  }
  TraceArguments arguments(long long chunk) const {
    if (size <= 0) return {};
    const long long before = chunk * size;
    return {{"new tokens", std::to_string(std::min(size, fresh - before))},
            {"tokens before them", std::to_string(cached + before)}};
  }
};

TraceEvent chunk_event(const RoundTime& r, const ChunkTokens& tokens) {
  return {
      r.stage,         static_cast<int>(Lane::compute), fmt::format("chunk {}", r.round), "layers", r.start,
      r.end - r.start, tokens.arguments(r.round)};
}

TraceEvent hand_off_event(const RoundTime& r) {
  return {r.stage,
          static_cast<int>(Lane::communication),
          fmt::format("chunk {} to the next stage", r.round),
          "hand-off",
          r.end,
          r.sent - r.end,
          {}};
}

// A stage stands for its ranks, which are alike.
std::string stage_name(const PlanTimeline& timeline, int stage) {
  if (timeline.stage_ranks == 1) return fmt::format("stage {}", stage);
  return fmt::format("stage {}, {} equal ranks", stage, timeline.stage_ranks);
}

void trace_chunks(const PlanTimeline& timeline, const ChunkTokens& tokens, Drawn& d) {
  int stages = 0;
  std::vector<std::size_t> layers, sent;  // of each chunk: its events
  CancelCheck check;
  for (const RoundTime& r : timeline.chunks) {
    check();
    stages = std::max(stages, r.stage + 1);
    if (r.round == 0) name_process(d, timeline, r.stage, stage_name(timeline, r.stage));
    layers.push_back(d.events.size());
    d.events.push_back(chunk_event(r, tokens));
    if (r.sent > r.end) d.events.push_back(hand_off_event(r));
    sent.push_back(d.events.size() - 1);
  }
  // Stage by stage, as many chunks in each.
  const std::size_t rounds = timeline.chunks.size() / static_cast<std::size_t>(std::max(stages, 1));
  for (std::size_t to = rounds; to < timeline.chunks.size(); ++to)
    d.flows.push_back({sent[to - rounds], layers[to], "message"});
  std::vector<TraceEvent> path;
  for (const PlayedChunk& part : timeline.chunk_path) {
    path.push_back(part.hand_off ? hand_off_event(part.time) : chunk_event(part.time, tokens));
    path.back().name += fmt::format(" (stage {})", part.time.stage);
  }
  add_path(d, stages, std::move(path));
}

void picture_chunks(const PlanTimeline& timeline, Gantt& gantt) {
  constexpr int kShown = 16;  // stages of the picture; the trace has them all
  gantt.pale.clear();
  for (const RoundTime& r : timeline.chunks) {
    if (r.stage >= kShown) continue;
    gantt.spans.push_back({fmt::format("stage {}", r.stage), r.start.value, r.end.value,
                           r.round % 2 == 0 ? "even chunk" : "odd chunk", fmt::format("chunk {}", r.round),
                           false});
  }
}

// Times in us become ms or s where the last one would be 20,000 or more.
void in_fewer_digits(Gantt& gantt) {
  double end = 0;
  for (const GanttSpan& s : gantt.spans) end = std::max(end, s.end);
  for (const char* const label : {"time (ms)", "time (s)"}) {
    if (end < 2e4) return;
    end /= 1e3;
    gantt.x_label = label;
    for (GanttSpan& s : gantt.spans) {
      s.start /= 1e3;
      s.end /= 1e3;
    }
  }
}

void picture_blocks(const PlanTimeline& timeline, Gantt& gantt) {
  const auto lane_name = [](Lane lane) { return lane == Lane::compute ? "compute" : "communication"; };
  for (const PlayedOp& p : timeline.ops) {
    gantt.spans.push_back({lane_name(p.op.lane), (p.offset + p.span.start).value * 1e6,
                           (p.offset + p.span.end).value * 1e6, std::string(to_string(p.op.kind)), p.op.name,
                           p.unmeasured, p.critical});
  }
}

}  // namespace

std::string message_text(const Op& op) {
  const Bytes bytes = message_bytes(op);
  return bytes > Bytes(0) ? to_string(bytes) : "latency only";  // a few bytes per token
}

std::string requests_on(double requests, int gpus) {
  return fmt::format("{:.0f} request{} on {}", requests, requests == 1 ? "" : "s", gpus_text(gpus));
}

std::string time_name(const Study& study, const PlanTimes& t) {
  return study.study.batch.kind() == StepKind::prefill ? "TTFT" : t.served() ? "TPOT" : "TTL";
}

std::string rate_name(const Study& study) {
  return study.study.batch.kind() == StepKind::prefill ? "new tokens/s/GPU" : "tokens/s/GPU";
}

std::string rate_text(const Study& study, double tokens_per_s_gpu) {
  return fmt::format("{:.{}f}", tokens_per_s_gpu, study.study.batch.kind() == StepKind::prefill ? 1 : 2);
}

namespace {

// ", TTFT 280.5 ms (-11/+40 %)" of a served plan, as `simulate` has it.
std::string first_token_text(const Study& study, const Plan& plan, const PlanTimes& t) {
  if (!t.served()) return "";
  ServedWorkload load = *workload_of(study);
  load.users = std::llround(t.users);
  const auto range = preempts(study.study, plan, load)
                         ? std::nullopt
                         : served_ttft_error(*study.study.engine, load.equal_lengths,
                                             static_cast<double>(load.users), t.ttft_errors);
  return fmt::format(", TTFT {} ({})", to_string(t.ttft),
                     range ? ttft_range_text(range) : "its error was not measured");
}

}  // namespace

std::string outcome_text(const Study& study, const Plan& plan, const PlanTimes& t) {
  const ErrorRange off = t.served() ? served_time_error(*study.study.engine, t.errors) : time_error(t.errors);
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  const std::string wait = t.waiting > 0 ? fmt::format(", {:.0f} of whom wait", t.waiting) : "";
  return fmt::format(
      "{} {} ({}){}, {} {}, {}{}", time_name(study, t), to_string(t.time()), range_text(off),
      first_token_text(study, plan, t), rate_text(study, t.tokens_per_s_gpu), rate_name(study),
      prefill ? requests_on(t.users, plan.gpus()) : users_on(fmt::format("{:.0f}", t.users), plan.gpus()),
      wait);
}

void print_misfit(const Study& study, const SimulatedPlan& simulated) {
  fmt::print(stderr, "{}",
             wrapped_messages(fmt::format("{} does not fit {}: {}\n", to_string(simulated.plan),
                                          study.study.system.name, *simulated.misfit),
                              error_width()));
}

std::string write_timeline(const Study& study, Evaluator& e, const Plan& plan, OutputFolder& files) {
  constexpr int kPictured = 32;              // ranks of the picture
  constexpr std::size_t kTraceOps = 20'000;  // of all ranks in the trace: some 10 MB
  const PlanTimeline timeline = group_timeline(study, e, plan, kTraceOps);
  Drawn d;
  d.gantt = {to_string(plan) + ": one of each block, " + study.title,
             "time (us)",
             {},
             "pale: beyond data",
             "critical path"};
  if (timeline.kind == TimelineKind::chunks) {
    d.gantt.title = to_string(plan) + ": chunks, " + study.title;
    d.gantt.x_label = "time (s)";
    picture_chunks(timeline, d.gantt);
    trace_chunks(timeline, ChunkTokens::of(study, plan), d);
  } else {
    if (timeline.kind == TimelineKind::ranks) {
      picture_ranks(timeline, kPictured, d.gantt);
    } else {
      picture_blocks(timeline, d.gantt);
    }
    trace_ops(timeline, d);
    if (timeline.background)
      add_bursts(*timeline.background, timeline.makespan, timeline.ranks, kPictured, d.names, d.events,
                 d.gantt);
    in_fewer_digits(d.gantt);
  }
  write_files(d, files);
  if (timeline.kind == TimelineKind::chunks || timeline.ranks == timeline.stage_ranks) return "";
  return fmt::format("one rank for each class of equal ones: all {} ranks would be more than {} slices",
                     timeline.stage_ranks, kTraceOps);
}

}  // namespace shardline::cli
