#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "planner/cli/noise_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/searched_partition.hpp"
#include "reports/atomic_file.hpp"
#include "reports/plot.hpp"
#include "reports/table.hpp"
#include "reports/trace.hpp"

namespace shardline::cli {

namespace {

struct SimulateOptions {
  std::string scenario, costs, plan, model, out;
  std::optional<long long> noise_seed;  // the first, in place of the scenario's
};

const Study& study_of(const Scenario& s, const std::string& model) {
  if (model.empty()) return s.studies.front();
  std::vector<std::string> names;
  for (const Study& study : s.studies) {
    if (study.study.model.name == model) return study;
    names.push_back(study.study.model.name);
  }
  throw UserError({Diagnostic{{}, "the scenario has no model " + model, expected_one_of(model, names)}});
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0);
}

// The parts of a layer that some time falls on, the longest first.
std::string parts_of(const std::array<Seconds, static_cast<std::size_t>(Part::count)>& times) {
  std::vector<std::pair<double, Part>> parts;
  for (std::size_t p = 0; p < times.size(); ++p) {
    if (times[p] > Seconds(0)) parts.emplace_back(-times[p].value, static_cast<Part>(p));
  }
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const auto& [time, part] : parts) out += fmt::format("{}{}", out.empty() ? "" : ", ", to_string(part));
  return out;
}

void print_bases(const System& system, const Breakdown& b, const std::string& share) {
  Table t({"what the time rests on", "time", share, "parts"});
  for (std::size_t i = 0; i < kBases; ++i) {
    if (b.bases[i] > Seconds(0)) {
      t.add({std::string(to_string(static_cast<Basis>(i))), to_string(b.bases[i]),
             percent(b.bases[i].value, b.ttl.value), parts_of(b.basis_parts[i])});
    }
  }
  fmt::print("{}  costs: {}\n\n", t.text(), costs_text(system));
}

void print_plan(const Study& study, const Plan& plan, const Breakdown& b, const MemoryUse& use) {
  const Metrics m = metrics(b.ttl, plan);
  const bool prefill = study.study.phase == Phase::prefill;
  const std::string share = prefill ? "share of TTFT" : "share of TTL";
  fmt::print("{}\n{}\n\n", study.title, to_string(plan));
  if (prefill) {
    const double at_once = m.users * static_cast<double>(study.study.requests.size());
    fmt::print(
        "  TTFT {}   {:.1f} new tokens/s/GPU   {:.4g} GPU-seconds/request   {:.0f} requests on {} GPUs\n\n",
        to_string(b.ttl),
        m.users * static_cast<double>(study.study.fresh_tokens()) / (b.ttl.value * plan.gpus()),
        b.ttl.value * plan.gpus() / at_once, at_once, plan.gpus());
  } else {
    fmt::print("  TTL {}   {:.1f} tokens/s/user   {:.2f} tokens/s/GPU   {:.0f} users on {} GPUs\n\n",
               to_string(b.ttl), m.tokens_per_s_user, m.tokens_per_s_gpu, m.users, plan.gpus());
  }
  if (!strategy(plan.strategy).exact) {
    fmt::print(
        "  APPROXIMATE: other results than exact attention; {} of its (query, key) pairs are computed\n\n",
        computed_text(study, plan));
  }
  Table time({prefill ? "part of a prefill" : "part of a token", "time", share});
  for (std::size_t p = 0; p < b.parts.size(); ++p) {
    if (b.parts[p] > Seconds(0)) {
      time.add({std::string(to_string(static_cast<Part>(p))), to_string(b.parts[p]),
                percent(b.parts[p].value, b.ttl.value)});
    }
  }
  if (b.waiting > Seconds(1e-12))
    time.add({"waiting for a stage", to_string(b.waiting), percent(b.waiting.value, b.ttl.value)});
  fmt::print("{}\n", time.text());
  Table kinds({"op kind on the critical path", "time", share});
  for (std::size_t k = 0; k < b.kinds.size(); ++k) {
    if (b.kinds[k] > Seconds(0)) {
      kinds.add({std::string(to_string(static_cast<OpKind>(k))), to_string(b.kinds[k]),
                 percent(b.kinds[k].value, b.ttl.value)});
    }
  }
  fmt::print("{}\n", kinds.text());
  Table communication({"communication", "time", share});
  communication.add(
      {"exposed", to_string(b.exposed_communication), percent(b.exposed_communication.value, b.ttl.value)});
  communication.add(
      {"hidden", to_string(b.hidden_communication), percent(b.hidden_communication.value, b.ttl.value)});
  fmt::print("{}\n", communication.text());
  print_bases(study.study.system, b, share);
  const Bytes capacity = study.study.system.device.memory;
  Table memory({"memory per GPU", "size", "share of HBM"});
  for (const auto& [name, bytes] :
       {std::pair{"weights", use.weights}, std::pair{"KV cache", use.kv},
        std::pair{"activations", use.activations}, std::pair{"communication buffers", use.buffers},
        std::pair{"total", use.total()}}) {
    memory.add({name, to_string(bytes), percent(bytes.value, capacity.value)});
  }
  fmt::print("{}\n", memory.text());
}

// What a message was priced as: the algorithm that was fastest, or the library or engine that was measured.
std::string algorithm_of(const OpCost& c) {
  if (!c.fit) return std::string(to_string(c.algorithm));
  const bool nccl = c.fit->form->family == std::string_view("nccl");
  return (nccl ? "NCCL " : "") + c.fit->words.front();
}

// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_of(const Op& op) { return to_string(message_bytes(op)); }

// Of what message_of gives the bytes.
const char* message_meaning(OpKind kind) {
  if (kind == OpKind::all_reduce || kind == OpKind::reduce_scatter) return "the whole buffer";
  return kind == OpKind::all_gather ? "what each rank gives" : "what leaves each rank";
}

// What the messages of a table are: "the whole buffer (all_reduce), ...", for the kinds in it.
std::string message_legend(const std::vector<const Op*>& shown) {
  std::vector<std::pair<std::string, std::set<std::string_view>>> kinds;
  bool differs = false;
  for (const Op* op : shown) {
    const std::string meaning = message_meaning(op->kind);
    const auto same = [&](const auto& entry) { return entry.first == meaning; };
    auto at = std::find_if(kinds.begin(), kinds.end(), same);
    if (at == kinds.end()) at = kinds.insert(at, {meaning, {}});
    at->second.insert(to_string(op->kind));
    differs = differs || op->variants != kAlike;
  }
  std::string out;
  for (const auto& [meaning, of] : kinds)
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", meaning, fmt::join(of, ", "));
  return out + (differs ? "; where ranks differ, the first's" : "");
}

// Every kind of collective of the plan once.
void print_collectives(Evaluator& e) {
  Table t({"collective", "kind", "ranks", "stride", "message", "algorithm", "time", "basis"});
  std::vector<const Op*> shown;
  for (const Op& op : e.schedule().ops) {
    const auto same = [&](const Op* other) { return std::string_view(other->name) == op.name; };
    if (!is_communication(op.kind) || std::any_of(shown.begin(), shown.end(), same)) continue;
    shown.push_back(&op);
    const OpCost c = e.cost().price(op);
    t.add({op.name, std::string(to_string(op.kind)), std::to_string(op.group.size),
           std::to_string(op.group.stride), message_of(op), algorithm_of(c), to_string(e.cost().alone(c)),
           std::string(to_string(c.basis))});
  }
  if (!shown.empty()) fmt::print("{}  message: {}\n\n", t.text(), message_legend(shown));
}

void write_files(const TraceNames& names, const std::vector<TraceEvent>& events, const Gantt& gantt,
                 const std::string& out) {
  make_output_folder(out);
  const std::filesystem::path folder(out);
  write_file(folder / "trace.json", trace_json(names, events));
  fmt::print("  wrote {} (open in ui.perfetto.dev)\n", (folder / "trace.json").string());
  for (const char* kind : {"svg", "png"}) {
    const Rendered picture = render(gantt, kind);
    const auto file = folder / (std::string("timeline.") + kind);
    if (!picture.error.empty()) {
      fmt::print("  no {}: {}\n", file.string(), picture.error);
      continue;
    }
    write_file(file, picture.bytes);
    fmt::print("  wrote {}\n", file.string());
  }
}

using TraceArguments = std::vector<std::pair<std::string, std::string>>;

TraceEvent trace_event(Evaluator& e, const Op& op, int process, const Span& span, Seconds offset,
                       TraceArguments arguments) {
  const OpCost c = e.cost().price(op);
  arguments.emplace_back("part", std::string(to_string(op.part)));
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
    arguments.emplace_back("message", message_of(op) + ", " + message_meaning(op.kind));
    arguments.emplace_back("algorithm", algorithm_of(c));
    arguments.emplace_back("group", fmt::format("{} ranks, stride {}", op.group.size, op.group.stride));
  }
  return {process,
          static_cast<int>(op.lane),
          op.name,
          std::string(to_string(op.kind)),
          offset + span.start,
          span.end - span.start,
          std::move(arguments)};
}

// Where nothing was measured, bars would all be pale.
bool unmeasured(Evaluator& e, const Op& op) {
  return !e.study().system.calibration.empty() && e.cost().price(op).basis >= Basis::extrapolated;
}

void name_lanes(TraceNames& names, int process, const Schedule& s) {
  for (const Lane lane : {Lane::compute, Lane::communication, Lane::send, Lane::host}) {
    const bool used = std::any_of(s.ops.begin(), s.ops.end(), [&](const Op& op) { return op.lane == lane; });
    if (!is_detached(lane) || used)
      names.lanes.push_back({{process, static_cast<int>(lane)}, std::string(to_string(lane))});
  }
}

// Members of the collective that a task of `player` stands for.
std::vector<int> members_of(const Op& op, int player, bool in_step) {
  if (!in_step || !is_communication(op.kind) || op.kind == OpKind::send_recv) return {player};
  std::vector<int> out;
  const int first = player - player / op.group.stride % op.group.size * op.group.stride;
  for (int m = 0; m < op.group.size; ++m) out.push_back(first + m * op.group.stride);
  return out;
}

// One run of each block on one rank of every class, or on every rank beside the traffic of others: lag and
// messages between them show.
void collect_ranks(Evaluator& e, const std::optional<NoiseSpec>& noise, TraceNames& names,
                   std::vector<TraceEvent>& events, Gantt& gantt) {
  Schedule once = e.schedule();
  for (Repeat& r : once.program) r.times = 1;
  for (Stage& stage : once.stages) stage.copies = 1;
  const int ranks = players(once, noise ? Players::ranks : Players::classes);
  const int all = static_cast<int>(once.stages.size()) * ranks;
  TaskGraph graph;
  lower_unfolded(once, e.cost(), graph, noise ? Players::ranks : Players::classes,
                 noise ? Meeting::in_step : Meeting::apart);
  const Background background =
      noise ? background_of(*noise, e.study().system.fabric, all, noise->seed) : Background();
  Timeline timeline;
  Engine().run(graph, e.cost().machine(all), background, timeline);
  constexpr int kShown = 4;  // ranks of the picture; the trace has them all
  for (int k = 0; k < ranks; ++k) {
    names.processes.push_back({k, fmt::format("context-parallel rank {}", k)});
    name_lanes(names, k, once);
  }
  for (TaskId t = 0; t < graph.size(); ++t) {
    if (graph.tag(t) == kJoinTag) continue;
    const auto player = static_cast<int>(graph.tag(t) / once.ops.size());
    const auto index = static_cast<OpIndex>(graph.tag(t) % once.ops.size());
    const Span& span = timeline.spans[t];
    if (span.end == span.start) continue;
    for (const int k : members_of(once.ops[index], player, noise.has_value())) {
      const Op op = once.op_of_class(index, noise ? once.class_of(k) : k);
      events.push_back(trace_event(e, op, k, span, Seconds(0), {}));
      if (k >= kShown) continue;
      const std::string lane(is_communication(op.kind) ? "messages" : to_string(op.lane));
      gantt.spans.push_back({fmt::format("rank {} {}", k, lane), span.start.value * 1e6, span.end.value * 1e6,
                             std::string(to_string(op.kind)), op.name, unmeasured(e, op)});
    }
  }
  if (noise) add_bursts(background, timeline.makespan(), ranks, kShown, names, events, gantt);
}

// Every stage and chunk: how the chunks of a prefill fill the pipeline.
void collect_rounds(Evaluator& e, TraceNames& names, std::vector<TraceEvent>& events, Gantt& gantt) {
  PassScratch scratch(e.cost());
  const Schedule& s = e.schedule();
  simulate_pass(s, e.cost(), scratch);
  constexpr int kShown = 16;  // stages of the picture; the trace has them all
  gantt.pale.clear();
  for (const RoundTime& r : play_rounds(s, scratch.makespans)) {
    if (r.round == 0) {
      names.processes.push_back({r.stage, fmt::format("stage {}", r.stage)});
      name_lanes(names, r.stage, s);
    }
    const std::string chunk = fmt::format("chunk {}", r.round);
    events.push_back(
        {r.stage, static_cast<int>(Lane::compute), chunk, "layers", r.start, r.end - r.start, {}});
    if (r.sent > r.end) {
      events.push_back({r.stage,
                        static_cast<int>(Lane::communication),
                        chunk + " to the next stage",
                        "hand-off",
                        r.end,
                        r.sent - r.end,
                        {}});
    }
    if (r.stage < kShown) {
      gantt.spans.push_back({fmt::format("stage {}", r.stage), r.start.value, r.end.value,
                             r.round % 2 == 0 ? "even chunk" : "odd chunk", chunk, false});
    }
  }
}

// One run of each block, back to back.
void write_timeline(const Study& study, const Plan& plan, Evaluator& e, const std::string& out) {
  e.simulate(plan);
  const Schedule& s = e.schedule();
  TraceNames names;
  std::vector<TraceEvent> events;
  Gantt gantt{to_string(plan) + ": one of each block, " + study.title, "time (us)", {}, "pale: beyond data"};
  if (s.rounds > 1 && !study.noise) {
    gantt.title = to_string(plan) + ": chunks, " + study.title;
    gantt.x_label = "time (s)";
    collect_rounds(e, names, events, gantt);
    write_files(names, events, gantt, out);
    return;
  }
  if (s.classes > 1 || s.detached || study.noise) {
    collect_ranks(e, study.noise, names, events, gantt);
    write_files(names, events, gantt, out);
    return;
  }
  PassScratch scratch(e.cost());
  const auto lane_name = [](Lane lane) { return lane == Lane::compute ? "compute" : "communication"; };
  Seconds at;
  names.processes.push_back({0, "representative rank, one run of each block"});
  name_lanes(names, 0, s);
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[b];
    lower_block(s, block, e.cost(), scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    for (OpIndex i = block.first; i < block.last; ++i) {
      const Op& op = s.ops[i];
      const Span& span = scratch.timeline.spans[i - block.first];
      if (span.end == span.start) continue;
      events.push_back(trace_event(e, op, 0, span, at,
                                   {{"block", fmt::format("{}, {} runs per pass", block.name, runs[b])}}));
      gantt.spans.push_back({lane_name(op.lane), (at + span.start).value * 1e6, (at + span.end).value * 1e6,
                             std::string(to_string(op.kind)), op.name, unmeasured(e, op)});
    }
    at += scratch.timeline.makespan();
  }
  write_files(names, events, gantt, out);
}

void declare(Arguments& a, SimulateOptions& o) {
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario").required();
  a.add("--plan", o.plan, "Plan text, as sweep prints it").required();
  a.add("--model", o.model, "Which model of the scenario (default: the first)");
  add_costs(a, o.costs);
  a.add("--noise-seed", o.noise_seed,
        "First seed of the scenario's background traffic, and the one that the trace shows")
      .range(0, 1'000'000'000'000'000);
  a.add("-o,--out", o.out, "Folder for the Perfetto trace and the timeline picture");
}

int run(const SimulateOptions& o, const Provenance&) {
  const Scenario scenario = scenario_named(o.scenario, o.costs);
  Study study = study_of(scenario, o.model);
  require_question(study, o.scenario, Question::sweep);
  if (o.noise_seed) {
    if (!study.noise) throw UserError("--noise-seed: scenario " + scenario.name + " has no noise");
    study.noise->seed = static_cast<std::uint64_t>(*o.noise_seed);
  }
  Plan plan = plan_of(study.study, o.plan);
  if (const auto reason = check_plan(study.study, plan)) {
    throw UserError(
        fmt::format("plan {} is impossible for {}: {}", to_string(plan), study.study.model.name, *reason));
  }
  Evaluator e(study.study, study.search.all_reduce);
  if (takes_partition(study.study, plan)) plan.partition = searched_partition(e, plan).tokens;
  const MemoryUse use = memory_use(study.study, plan);
  if (const auto reason = does_not_fit(study.study, use)) {
    fmt::print(stderr, "{} does not fit {}: {}\n", to_string(plan), study.study.system.name, *reason);
    return 3;
  }
  const Breakdown b = break_down(e, plan);
  warn_unread(study, std::span(&plan, 1));
  print_plan(study, plan, b, use);
  print_collectives(e);
  if (study.noise) print_noise(*study.noise, noise_effect(e, plan, *study.noise, 0));
  for (const Deployment& d : deployments(study.study, plan)) {
    fmt::print("  {}:\n", d.engine);
    for (const std::string& line : d.lines) fmt::print("    {}\n", line);
    for (const std::string& note : d.notes) fmt::print("    # {}\n", note);
  }
  if (!o.out.empty()) {
    fmt::print("\n");
    write_timeline(study, plan, e, o.out);
  }
  return 0;
}

}  // namespace

const Command kSimulate{"simulate", "Simulate one plan: breakdown, memory, timeline",
                        "shardline simulate helix_gb200_1m --model llama-3.1-405b --plan "
                        "helix:kvp=8,tpa=8,tpf=64,batch=4 -o out/plan",
                        prepare<SimulateOptions, declare, run>};

}  // namespace shardline::cli
