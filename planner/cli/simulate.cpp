// simulate: one plan, rendered.
#include "planner/studies/simulated_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "planner/api/convert.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/launch_parts.hpp"
#include "planner/cli/named_plans.hpp"
#include "planner/cli/noise_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/simulate_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/search/memory_need.hpp"
#include "planner/serving/served_plan.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

struct SimulateOptions {
  std::string scenario, costs, plan, model, out;
  EngineOptions engine;
  std::optional<long long> noise_seed;  // the first, in place of the scenario's
  int copies = 1;                       // of the plan, in launch files
};

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
             percent(b.bases[i].value, b.time.value), parts_of(b.basis_parts[i])});
    }
  }
  print_notes("{}{}\n", fitted(t), costs_line(system));
}

// What the line above may be in truth, and whose errors make most of that.
void print_interval(const Study& study, const SimulatedPlan& s) {
  const ErrorTerms& errors = s.breakdown.errors;
  const ErrorRange time = time_error(errors), rate = rate_error(errors);
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  const double per_gpu = prefill ? prefill_metrics(study.study, s.breakdown.time, s.plan).new_tokens_per_s_gpu
                                 : decode_metrics(study.study, s.breakdown.time, s.plan).tokens_per_s_gpu;
  const Seconds t = s.breakdown.time;
  print_notes("  {} {} to {} ({}), {:.{}f} to {:.{}f} {}tokens/s/GPU ({}):\n  {}\n  most of it: {}\n",
              prefill ? "TTFT" : "TTL", to_string(t * (1 + time.low)), to_string(t * (1 + time.high)),
              range_text(time), per_gpu * (1 + rate.low), prefill ? 1 : 2, per_gpu * (1 + rate.high),
              prefill ? 1 : 2, prefill ? "new " : "", range_text(rate), what_intervals_are(study.study),
              sources_text(study.study.system, errors));
}

// How far apart libraries are, where the question leaves it open whose kernels are run.
void print_spread(const Study& study, const SimulatedPlan& s) {
  if (s.breakdown.others.empty()) return;
  std::string times = fmt::format("{} {}", to_string(s.breakdown.time), study.study.system.kernels.framework);
  for (const FrameworkTime& f : s.breakdown.others)
    times += fmt::format(", {} {}", to_string(f.time), f.framework);
  print_notes("  by whose kernels: {}; name one with kernels: {{framework: ...}}\n", times);
}

// What users get of the plan, prompts included.
void print_served(const Study& study, const SimulatedPlan& s) {
  const EngineProfile& engine = *study.study.engine;
  const ServedWorkload& load = *workload_of(study);
  const Served& got = s.served->served;
  const ErrorRange time = served_time_error(engine, s.breakdown.errors);
  // What an engine does not start has no numbers of that engine.
  print_notes("  {} {} {}{}: requests of {} tokens and {} of answer, {} user{}, prompts on the same GPUs\n",
              s.refusal ? "not started; as if served by" : "served by", engine.title, engine.version,
              s.refusal ? " all the same" : "", load.input, load.output, s.served->users,
              s.served->users == 1 ? "" : "s");
  if (s.asked.batch > s.plan.batch)
    print_notes(
        "  memory has room for {} of {} requests of an attention group: they run, {:.0f} of a group wait for "
        "room\n",
        s.plan.batch, s.asked.batch, got.waiting);
  if (s.plan.dp > 1) print_notes("  {}\n", groups_text(engine, load.equal_lengths));
  if (!s.served->serves()) {
    print_notes("  no request of this length fits\n");
    return;
  }
  print_notes("  TPOT {} ({}), of it {:.0f} % prompts of others and {:.0f} % host\n", to_string(got.tpot),
              range_text(time), 100 * got.prefill_part,
              100 * (1 - got.prefill_part) *
                  (s.breakdown.parts[static_cast<std::size_t>(Part::host)] / s.breakdown.time));
  ServedWorkload all = load;
  all.users = s.served->users;
  const bool takes_back = preempts(study.study, s.plan, all);
  const auto first = takes_back ? std::nullopt
                                : served_ttft_error(engine, load.equal_lengths,
                                                    static_cast<double>(s.served->users), s.ttft_errors);
  print_notes("  TTFT {} ({}); {} if all users come at once\n", to_string(got.ttft),
              first ? ttft_range_text(first) : "its error was not measured", to_string(got.burst));
  if (takes_back) print_notes("  {}\n", kPreempts);
  print_notes(
      "  {:.2f} tokens/s/GPU of answers, {:.1f} of prompts ({}); {:.0f} users decode on average in a group\n",
      s.served->output_per_s_gpu, s.served->input_per_s_gpu,
      range_text(served_rate_error(engine, s.breakdown.errors)), got.decoding);
}

// The line below the title: what a user sees, by phase.
void print_outcome(const Study& study, const SimulatedPlan& s) {
  const Plan& plan = s.plan;
  if (study.study.batch.kind() == StepKind::prefill) {
    const PrefillMetrics m = prefill_metrics(study.study, s.breakdown.time, plan);
    print_notes("  TTFT {}   {} new tokens/s/GPU   {:.4g} GPU-seconds/request   {}\n", to_string(m.ttft),
                rate_text(study, m.new_tokens_per_s_gpu), m.gpu_seconds_per_request,
                requests_on(m.requests, plan.gpus()));
  } else {
    const DecodeMetrics m = decode_metrics(study.study, s.breakdown.time, plan);
    if (s.served) {
      print_served(study, s);
      print_notes("\n  decode only, between prompts:\n");
    } else if (workload_of(study) != nullptr) {
      print_notes("  decode only: {} needs a pool of its own for prompts\n", to_string(plan.strategy));
      if (s.asked.batch > plan.batch)
        print_notes("  memory has room for {} of {} requests of an attention group: the others wait\n",
                    plan.batch, s.asked.batch);
    }
    print_notes("  TTL {}   {:.1f} tokens/s/user   {:.2f} tokens/s/GPU   {}\n", to_string(m.ttl),
                m.tokens_per_s_user, m.tokens_per_s_gpu,
                users_on(fmt::format("{:.0f}", m.users), plan.gpus()));
    if (study.study.batch.prefills())
      print_notes(
          "  while every step also prefills: {:.1f} new tokens/s/GPU of prompts beside those decoded\n",
          m.prefilled_per_s_gpu);
  }
  print_interval(study, s);
  if (!study.study.engine) print_spread(study, s);
  print_notes("\n");
  if (!strategy(plan.strategy).exact) {
    print_notes(
        "  APPROXIMATE: other results than exact attention; {} of its (query, key) pairs are computed\n\n",
        computed_text(study, plan));
  }
}

void print_times(const Study& study, const Breakdown& b) {
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  const std::string share = prefill ? "share of TTFT" : "share of TTL";
  Table time({prefill ? "part of a prefill" : "part of a token", "time", share});
  for (std::size_t p = 0; p < b.parts.size(); ++p) {
    if (b.parts[p] > Seconds(0)) {
      time.add({std::string(to_string(static_cast<Part>(p))), to_string(b.parts[p]),
                percent(b.parts[p].value, b.time.value)});
    }
  }
  if (b.waiting > Seconds(1e-12))
    time.add({"waiting for a stage", to_string(b.waiting), percent(b.waiting.value, b.time.value)});
  print_notes("{}\n", fitted(time));
  Table kinds({"op kind on the critical path", "time", share});
  for (std::size_t k = 0; k < b.kinds.size(); ++k) {
    if (b.kinds[k] > Seconds(0)) {
      kinds.add({std::string(to_string(static_cast<OpKind>(k))), to_string(b.kinds[k]),
                 percent(b.kinds[k].value, b.time.value)});
    }
  }
  print_notes("{}\n", fitted(kinds));
  Table communication({"communication", "time", share});
  communication.add(
      {"exposed", to_string(b.exposed_communication), percent(b.exposed_communication.value, b.time.value)});
  communication.add(
      {"hidden", to_string(b.hidden_communication), percent(b.hidden_communication.value, b.time.value)});
  print_notes("{}\n", fitted(communication));
  print_bases(study.study.system, b, share);
}

void print_memory(const Bytes capacity, const MemoryUse& use) {
  Table memory({"memory per GPU", "size", "share of HBM"});
  for (const auto& [name, bytes] :
       {std::pair{"weights", use.weights}, std::pair{"KV cache", use.kv},
        std::pair{"activations", use.activations}, std::pair{"communication buffers", use.buffers},
        std::pair{"total", use.total()}}) {
    memory.add({name, to_string(bytes), percent(bytes.value, capacity.value)});
  }
  print_notes("{}\n", fitted(memory));
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

void print_collectives(const std::vector<PricedCollective>& collectives) {
  Table t({"collective", "kind", "ranks", "stride", "message", "algorithm", "time", "basis", "fit"});
  std::vector<const Op*> shown;
  for (const auto& [op, cost, alone] : collectives) {
    shown.push_back(&op);
    t.add({op.name, std::string(to_string(op.kind)), std::to_string(op.group.size),
           std::to_string(op.group.stride), message_text(op), algorithm_text(cost), to_string(alone),
           std::string(to_string(cost.basis)),
           cost.fit != nullptr ? cost.fit->name() : "none: the system file's parameters"});
  }
  if (!shown.empty()) print_notes("{}  message: {}\n\n", fitted(t), message_legend(shown));
}

// A plan that the engine refuses is priced all the same.
void print_launchable(const Case& c, const SimulatedPlan& s) {
  if (const auto note = longer_than_model(c)) print_notes("  {}\n", *note);
  const Strategy& of = strategy(s.plan.strategy);
  if (!c.engine && engines_with(of.launched_as).empty())
    print_notes("  engines: none, no engine runs {}{}\n", of.name,
                *of.deployed_as == '\0'
                    ? ""
                    : fmt::format("; those with context parallelism run {}", of.deployed_as));
  if (s.refusal)
    print_notes("  {} does not start this plan: {}\n    its rule: {} ({})\n", title_of(*c.engine),
                s.refusal->text, s.refusal->says, s.refusal->source);
}

void print(const Study& study, const SimulatedPlan& s, int copies) {
  print_notes("{}\n{}\n{}\n", study.title, to_string(s.plan),
              engine_text(study.study) + checkpoint_text(study.study) + precision_text(study.study) +
                  chunk_text(study.study) + drafts_text(study.study));
  const Plan plans[]{s.plan};
  if (const std::string host = unmeasured_host_text(study.study, plans); !host.empty())
    print_notes("  {}\n", host);
  print_launchable(study.study, s);
  print_outcome(study, s);
  if (const std::string kept = kept_text(study, s); !kept.empty()) print_notes("  {}\n", kept);
  print_times(study, s.breakdown);
  print_memory(study.study.system.device.memory, s.memory);
  print_collectives(s.collectives);
  if (s.noise) print_noise(*study.sweep().noise, *s.noise);
  const long long gpus = static_cast<long long>(copies) * s.plan.gpus();
  if (gpus > study.study.system.gpus())
    print_notes("  {} copies take {} GPUs: {} has {}\n", copies, gpus, study.study.system.name,
                study.study.system.gpus());
  const std::vector<Launch> launches = launches_of(study.study, s.plan, "1", copies);
  const bool any =
      std::any_of(launches.begin(), launches.end(), [](const Launch& l) { return l.files.size() > 0; });
  print_notes("  How to start it{}\n",
              any ? ": the engine's options; -o FOLDER writes scripts that have them and "
                    "machines' addresses"
                  : "");
  // Commands, whose quoted words no line may break.
  fmt::print("{}", launch_text(s.plan, launches, output_width()));
}

void declare(Arguments& a, SimulateOptions& o) {
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario")
      .required()
      .offers(offered_sweeps)
      .files();
  a.add("--plan", o.plan, "Plan text, as sweep prints it").required();
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
  a.add("--noise-seed", o.noise_seed,
        "First seed of the scenario's background traffic, and the one that the trace shows")
      .range(0, 1'000'000'000'000'000);
  a.add("--copies", o.copies,
        "Servers of this plan in launch files: one script starts any of them, one stands in front")
      .range(1, 1024);
  a.add("-o,--out", o.out,
        "Folder for run.json (the answer as --json has it), the Perfetto trace, the timeline picture and "
        "launch files")
      .output_folder();
}

void write(const Study& study, Evaluator& e, const Plan& plan, int copies, const std::string& out,
           const std::string& answer) {
  OutputFolder files(out);
  files.write("run.json", answer);
  const std::string left_out = write_timeline(study, e, plan, files);
  const std::string launches = write_launches(files, study, {{to_string(plan), plan, {}, copies}});
  print_notes("\n{}{}  trace.json: open it in ui.perfetto.dev{}{}\n", files.publish(), launches,
              left_out.empty() ? "" : "; it has ", left_out);
}

std::string document(const SimulateOptions& o, const Scenario& scenario, const Study& study,
                     const SimulatedPlan& simulated, const Provenance& made_by) {
  api::SimulateResult result = api::simulate_result(study, simulated, o.copies);
  result.version = made_by.version;
  result.command = made_by.command;
  result.scenario = scenario.name;
  result.question = {o.scenario, "", o.model, o.plan, o.noise_seed, o.copies};
  return api::to_json(result);
}

int run(const SimulateOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.engine));
  Study study = study_of(scenario, o.model);
  require_question<Sweep>(study, o.scenario);
  if (o.noise_seed) {
    if (!study.sweep().noise) throw UserError("--noise-seed: scenario " + scenario.name + " has no noise");
    study.sweep().noise->seed = static_cast<std::uint64_t>(*o.noise_seed);
  }
  const std::string text = plan_of_scenario(study, o.plan);
  const Plan plan = possible_plan(study, text);
  require_memory(o.out.empty() ? need_of_step(study.study, plan) : need_of_trace(study.study, plan));
  Evaluator e(study.study, study.sweep().search.all_reduce);
  WorkBar bar(study.study.model.name);
  SimulatedPlan simulated = simulate_plan(study, e, plan);
  bar.end();
  if (!simulated.misfit)
    add_idle_settings(
        simulated.unread,
        idle_settings(study, std::span(&simulated.plan, 1), o.engine.settings, std::span(&text, 1),
                      study_with_settings(o.scenario, o.costs, o.engine, study.study.model.name)));
  const std::string answer = document(o, scenario, study, simulated, made_by);
  if (made_by.document != nullptr) made_by.document->set(answer);
  print_warnings(simulated.unread);
  if (simulated.misfit) {
    print_misfit(study, simulated);
    return 3;
  }
  print_warnings(simulated.narrow);
  print(study, simulated, o.copies);
  if (!o.out.empty()) write(study, e, simulated.plan, o.copies, o.out, answer);
  return keeps_constraints(study, simulated).value_or(true) ? 0 : 3;
}

}  // namespace

const Command kSimulateCommand{"simulate", "Simulate one plan: breakdown, memory, timeline",
                               "shardline simulate helix_gb200_1m --model llama-3.1-405b --plan "
                               "helix:kvp=8,tpa=8,tpf=64,batch=4 -o out/plan",
                               prepare<SimulateOptions, declare, run>};

}  // namespace shardline::cli
