// Timelines of one plan as a trace and a picture.
#include "planner/cli/simulate_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/cli/noise_parts.hpp"
#include "reports/plot.hpp"
#include "reports/trace.hpp"

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

void draw_ranks(const PlanTimeline& timeline, Drawn& d) {
  constexpr int kShown = 32;  // ranks of the picture; the trace has them all
  if (timeline.ranks > kShown)
    d.gantt.title += fmt::format("; the first {} of {} ranks", kShown, timeline.ranks);
  for (int k = 0; k < timeline.ranks; ++k)
    name_process(d, timeline, k, fmt::format("context-parallel rank {}", k));
  for (const PlayedOp& p : timeline.ops) d.events.push_back(trace_event(p, {}));
  // The lanes of a rank stand together.
  for (int k = 0; k < std::min(timeline.ranks, kShown); ++k) {
    for (const PlayedOp& p : timeline.ops) {
      if (p.rank != k) continue;
      const std::string lane(is_communication(p.op.kind) ? "messages" : to_string(p.op.lane));
      d.gantt.spans.push_back({fmt::format("rank {} {}", k, lane), p.span.start.value * 1e6,
                               p.span.end.value * 1e6, std::string(to_string(p.op.kind)), p.op.name,
                               p.unmeasured, p.critical});
    }
  }
  add_flows(timeline, d);
  if (timeline.background)
    add_bursts(*timeline.background, timeline.makespan, timeline.ranks, kShown, d.names, d.events, d.gantt);
}

void draw_chunks(const PlanTimeline& timeline, Drawn& d) {
  constexpr int kShown = 16;  // stages of the picture; the trace has them all
  d.gantt.pale.clear();
  for (const RoundTime& r : timeline.chunks) {
    if (r.round == 0) name_process(d, timeline, r.stage, fmt::format("stage {}", r.stage));
    const std::string chunk = fmt::format("chunk {}", r.round);
    d.events.push_back(
        {r.stage, static_cast<int>(Lane::compute), chunk, "layers", r.start, r.end - r.start, {}});
    if (r.sent > r.end) {
      d.events.push_back({r.stage,
                          static_cast<int>(Lane::communication),
                          chunk + " to the next stage",
                          "hand-off",
                          r.end,
                          r.sent - r.end,
                          {}});
    }
    if (r.stage < kShown) {
      d.gantt.spans.push_back({fmt::format("stage {}", r.stage), r.start.value, r.end.value,
                               r.round % 2 == 0 ? "even chunk" : "odd chunk", chunk, false});
    }
  }
}

void draw_blocks(const PlanTimeline& timeline, Drawn& d) {
  name_process(d, timeline, 0, "representative rank, one run of each block");
  const auto lane_name = [](Lane lane) { return lane == Lane::compute ? "compute" : "communication"; };
  for (const PlayedOp& p : timeline.ops) {
    d.events.push_back(trace_event(p, {{"block", fmt::format("{}, {} runs per pass", p.block, p.runs)}}));
    d.gantt.spans.push_back({lane_name(p.op.lane), (p.offset + p.span.start).value * 1e6,
                             (p.offset + p.span.end).value * 1e6, std::string(to_string(p.op.kind)),
                             p.op.name, p.unmeasured, p.critical});
  }
  add_flows(timeline, d);
}

}  // namespace

std::string message_text(const Op& op) { return to_string(message_bytes(op)); }

void write_timeline(const Study& study, const Plan& plan, const PlanTimeline& timeline, OutputFolder& files) {
  Drawn d;
  d.gantt = {to_string(plan) + ": one of each block, " + study.title,
             "time (us)",
             {},
             "pale: beyond data",
             "critical path"};
  if (timeline.kind == TimelineKind::chunks) {
    d.gantt.title = to_string(plan) + ": chunks, " + study.title;
    d.gantt.x_label = "time (s)";
    draw_chunks(timeline, d);
  } else if (timeline.kind == TimelineKind::ranks) {
    draw_ranks(timeline, d);
  } else {
    draw_blocks(timeline, d);
  }
  write_files(d, files);
}

}  // namespace shardline::cli
