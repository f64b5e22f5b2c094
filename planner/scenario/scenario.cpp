#include "planner/scenario/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "models/model/catalog.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/engines/model_names.hpp"
#include "planner/plan/timed.hpp"
#include "planner/scenario/engine_keys.hpp"
#include "planner/scenario/everyday.hpp"
#include "planner/scenario/kernel_keys.hpp"
#include "planner/scenario/launch_keys.hpp"
#include "planner/scenario/load_at.hpp"
#include "planner/scenario/precision_keys.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "planner/scenario/settings.hpp"
#include "planner/scenario/speculative_keys.hpp"
#include "planner/scenario/sweep_keys.hpp"
#include "planner/scenario/titles.hpp"

namespace shardline {

using scenario_parts::choice;

namespace {

Routing read_routing(const Reader& r) {
  Routing routing;
  const auto kind = choice(r.at("kind"), {"uniform", "zipf"});
  if (kind == 1u) {
    routing.kind = RoutingKind::zipf;
    routing.skew = r.at("skew").number(0, kLargestSkew);
  } else if (const auto skew = r.find("skew"); skew && kind) {
    skew->fault(
        "routing.skew is for kind: zipf; every expert is as popular as the others with kind: uniform");
  }
  if (const auto v = r.find("load")) {
    routing.load = v->one_of({"mean", "busiest"}) == 0 ? ExpertLoad::mean : ExpertLoad::busiest;
  }
  r.no_other_keys();
  return routing;
}

// Of the first model that the device cannot compute: others would say the same.
// An engine says first what it makes of a checkpoint whose arithmetic the device does not have.
void check_precision(const scenario_parts::PrecisionKeys& precision, const std::vector<Model>& models,
                     const System& system, const scenario_parts::AskedEngine& engine, const Reader& root) {
  // What a checkpoint is computed in is up to its engine.
  if (engine.unknown && !precision.says_math()) return;
  for (const Model& m : models) {
    if (engine.profile && m.checkpoint && !m.checkpoint->unread.empty()) {
      Case c = make_case(m, system, Precision{}, 1, 1, Routing{});
      c.engine = engine.profile;
      if (scenario_parts::check_files(root, c)) return;
    }
    if (scenario_parts::check_unread(precision, m, engine.profile.get(), root)) return;
    if (engine.profile && !precision.faulty && !precision.says_math()) {
      Case c = make_case(m, system, scenario_parts::precision_of(precision, m, system, engine.profile.get()),
                         1, 1, Routing{});
      c.engine = engine.profile;
      c.kv_block = own_block_of(c.engine->name, c);  // of types alone: the user's block comes later
      if (scenario_parts::check_case(root, c)) return;
    }
    if (scenario_parts::check_units(precision, m, system.device, root)) return;
  }
}

// An engine loads a checkpoint, it does not choose a type: that of the model's maker where none is named.
std::vector<Model> read_models(const Reader& list, const Catalogs& catalogs, bool by_engine) {
  std::vector<Model> models;
  constexpr std::size_t kMost = 256;
  if (scenario_parts::is_one_model(list)) return models;
  if (const std::size_t n = list.is_sequence() ? list.items().size() : 1; n == 0 || n > kMost) {
    list.fault(n == 0 ? "models is empty" : fmt::format("{} models: more than {}", n, kMost),
               {"expected a list of models"});
    return models;
  }
  std::vector<std::string> named;
  for (const Reader& r : list.items()) {
    // {file: PATH, as: llama} reads a config.json of an unknown model_type as a known one.
    const std::optional<Reader> as = r.is_map() ? r.find("as") : std::nullopt;
    const Reader at = r.is_map() ? r.at("file") : r;
    if (r.is_map()) r.no_other_keys();
    if (!at.is_scalar()) {
      if (!r.is_map()) r.fault(r.path() + ": expected the name of a model or a file");
      continue;
    }
    const bool twice = std::find(named.begin(), named.end(), at.text()) != named.end();
    if (twice) at.fault("model " + at.text() + " is listed twice");
    named.push_back(at.text());
    if (auto m = scenario_parts::load_at(at, [&](const std::string& given) {
          const std::string name = without_address(given);
          Model loaded = !as && looks_like_repository(name)
                             ? published_model(name, catalogs.models)
                             : load_model(name, catalogs.models, as ? as->text() : "");
          require_timed(loaded);
          return loaded;
        })) {
      // Results of a model are found by its name.
      const auto same = [&](const Model& other) { return other.name == m->name; };
      if (std::any_of(models.begin(), models.end(), same) && !twice)
        at.fault(fmt::format("the model of {} is named {}, as one before it", at.text(), m->name),
                 {"expected models of different names"});
      if (by_engine && !m->checkpoint) m->checkpoint = checkpoint_by_default(*m);
      models.push_back(std::move(*m));
    }
  }
  return models;
}

// The question of a scenario, with its own keys.
Question read_question(const Reader& root, int system_gpus) {
  Question asked;
  if (const auto v = root.find("conversation")) asked = scenario_parts::read_conversation(*v, system_gpus);
  if (const auto v = root.find("thresholds")) {
    if (root.has("conversation"))
      v->fault("a scenario asks for a conversation or for thresholds, not for both");
    asked = scenario_parts::read_thresholds(*v, system_gpus);
  }
  if (const auto v = root.find("partition")) {
    if (root.has("conversation") || root.has("thresholds"))
      v->fault("a scenario asks for partitions, for a conversation or for thresholds, for one of them");
    asked = scenario_parts::read_partition(*v, system_gpus);
  }
  return asked;
}

StepKind read_phase(const Reader& root, bool sweeps) {
  StepKind kind = sweeps ? StepKind::decode : StepKind::prefill;
  if (const auto v = root.find("phase")) {
    const auto i = choice(*v, {"decode", "prefill", "mixed"});
    if (i && !sweeps)
      v->fault("phase is for sweeps: a conversation has both, thresholds and partitions are of prefill");
    if (i) kind = static_cast<StepKind>(*i);
  }
  return kind;
}

scenario_parts::StepsAsked steps_asked(const Question& asked, StepKind kind, bool serves) {
  if (std::holds_alternative<Conversation>(asked)) return {true, true};
  return {kind != StepKind::decode || serves, kind != StepKind::prefill};
}

// Keys of what no listed model has and no step asked for runs.
void refuse_idle_keys(const Reader& root, const std::vector<Model>& models,
                      scenario_parts::StepsAsked steps) {
  if (models.empty()) return;
  if (const auto v = root.find("precision")) scenario_parts::check_parts(*v, models);
  if (const auto v = root.find("kernels")) scenario_parts::check_named_families(*v, models, steps);
  if (const auto v = root.find("routing"); v && std::none_of(models.begin(), models.end(), has_experts))
    v->fault("routing is of nothing: no listed model has experts");
}

constexpr int kUsualBlock = 16;  // tokens, of vLLM

// What is to be served, apart from the model.
struct Workload {
  Batch batch;  // empty: the question has requests of its own
  bool persistent = false;
  Kernels kernels;
  std::optional<int> block;  // the user's
};

void read_tokens(const Reader& root, StepKind kind, bool sweeps, const ServedWorkload* served, Workload& w) {
  const auto context = root.find("context"), decode = root.find("decode");
  if (served != nullptr) {
    for (const auto& v : {context, decode, root.find("requests")}) {
      if (v) v->fault(v->path() + " follows from the workload: leave it out");
    }
    w.batch = decode_batch(served->context());
    return;
  }
  if (kind == StepKind::prefill) {
    if (context) context->fault("context is for phase: decode; a prefill has requests");
    if (decode) decode->fault("decode is for phase: decode and mixed; a prefill has requests");
    if (sweeps) {
      w.batch.prefill = scenario_parts::read_requests(root.at("requests"));
    } else if (const auto v = root.find("requests")) {
      v->fault(
          "requests are for sweeps: a conversation has turns, thresholds have a grid, partitions have "
          "contexts");
    }
    return;
  }
  if (decode) w.batch.decode = scenario_parts::read_decoding(*decode);
  if (context && decode) decode->fault("a step has a context, or decode with several of them, not both");
  if (context || !decode) w.batch = decode_batch(root.at("context").tokens(1, scenario_parts::kLongest));
  if (kind == StepKind::mixed) {
    w.batch.prefill = scenario_parts::read_requests(root.at("requests"));
  } else if (const auto v = root.find("requests")) {
    v->fault("requests are for phase: prefill and mixed; a decode step has a context");
  }
}

Workload read_workload(const Reader& root, StepKind kind, const Question& asked, const EngineProfile* engine,
                       const ServedWorkload* served) {
  Workload w;
  w.kernels = scenario_parts::kernels_of(engine);
  read_tokens(root, kind, std::holds_alternative<Sweep>(asked), served, w);
  w.persistent = std::holds_alternative<Conversation>(asked) || std::holds_alternative<ThresholdGrid>(asked);
  if (const auto v = root.find("persistent_kv")) {
    w.persistent = v->boolean();
    if (kind != StepKind::prefill) v->fault("persistent_kv is for prefill");
  }
  if (const auto v = root.find("kernels")) {
    w.kernels = scenario_parts::read_kernels(*v, w.kernels);
    const auto own = v->is_map() ? v->find("elementwise") : std::nullopt;
    if (own && std::holds_alternative<Sweep>(asked) && kind != StepKind::decode)
      own->fault("kernels.elementwise is for phase: decode; beside prefills they are kernels of their own");
  }
  if (const auto v = root.find("kv_block")) w.block = static_cast<int>(v->tokens(1, 1'000'000));
  return w;
}

std::optional<NoiseSpec> read_noise_of(const Reader& root, StepKind kind, bool sweeps,
                                       const std::optional<System>& system) {
  const auto v = root.find("noise");
  if (!v) return std::nullopt;
  const NoiseSpec noise = scenario_parts::read_noise(*v);
  if (kind != StepKind::prefill || !sweeps) v->fault("noise is for sweeps of phase: prefill");
  if (system && noise.links == NoiseLinks::network && system->fabric.nodes == 1)
    v->fault(fmt::format("noise.links is network, but {} is one node", system->name),
             {"expected one of: nvlink, all"});
  return noise;
}

Study study_for(const Question& asked, Case served, const Workload& w,
                const scenario_parts::Constraints& limits) {
  Study out;
  out.question = asked;
  out.title = fmt::format("{} on {}{}{}", served.model.name, served.system.name, set_text(served.system),
                          served.served.total() > 0 && w.batch.decodes()
                              ? scenario_parts::request_text(served.served.input, served.served.output)
                              : scenario_parts::workload_text(w.batch));
  out.study = std::move(served);
  // What the user says holds or is refused (rule kv_block).
  if (const auto& e = out.study.engine; e && !w.block) out.study.kv_block = own_block_of(e->name, out.study);
  out.study.memory_limit = limits.memory;
  // Grids and partitions put requests of their own in its place.
  out.study.batch = w.batch == Batch{} ? prefill_batch({{0, 1}}) : w.batch;
  out.study.persistent_kv = w.persistent;
  out.study.kernels = w.kernels;
  return out;
}

// What the engine brings, and the kernels that the scenario names.
void give_kernels(const Reader& root, const Catalogs& catalogs, const EngineProfile* engine, System& system) {
  const auto kernels = root.find("kernels");
  const bool own = kernels && kernels->is_map() && kernels->has("framework");
  if (engine != nullptr && own)
    kernels->at("framework")
        .fault(fmt::format("the kernels are those of engine: {}", engine->name),
               {"expected no framework, or engine: ideal"});
  if (engine != nullptr) scenario_parts::apply_engine(*engine, system, catalogs);
  if (!kernels) return;
  if (engine != nullptr && !scenario_parts::check_kernels(*kernels, *engine, system, catalogs)) return;
  scenario_parts::read_kernel_names(*kernels, system, catalogs);
}

// Of other questions.
void refuse_what_sweeps_have(const Reader& root, const std::optional<Reader>& constraints_at,
                             const scenario_parts::Constraints& constraints, const EngineProfile* engine) {
  scenario_parts::refuse_sweep_keys(root);
  if (engine != nullptr)
    root.at("engine").fault(
        "engine is for sweeps: conversations, thresholds and partitions are of bare kernels",
        {"expected engine: ideal"});
  if (constraints.time > Seconds(0)) constraints_at->at("ttft").fault("constraints.ttft is for sweeps");
}

std::optional<System> read_system_of(const Reader& root, const Catalogs& catalogs, const Overrides& overrides,
                                     std::vector<Diagnostic>& faults) {
  return scenario_parts::load_at(root.at("system"), [&](const std::string& name) {
    return scenario_parts::load_set_system(name, catalogs, overrides, faults);
  });
}

// Those of the command line go before the file's.
std::optional<Costs> read_costs(const Reader& root, std::optional<Costs> overriding) {
  const auto v = root.find("costs");
  const auto i = v ? choice(*v, {"calibrated", "parameters"}) : std::nullopt;
  return i && !overriding ? static_cast<Costs>(*i) : overriding;
}

// What the user pays for a GPU; of sweeps, whose answers have a cost.
double read_gpu_hour(const Reader& root, bool sweep) {
  const auto v = root.find("gpu_hour_price");
  if (!v) return 0;
  if (!sweep) v->fault("gpu_hour_price is for sweeps: conversations, thresholds and partitions have no cost");
  return v->number(1e-6, 1e6);
}

scenario_parts::Constraints constraints_of(const std::optional<Reader>& at, StepKind kind, bool serves) {
  return at ? scenario_parts::read_constraints(*at, kind, serves) : scenario_parts::Constraints{};
}

// A workload's users wait where memory is full.
void constrain(SearchOptions& o, const scenario_parts::Constraints& limits, const ServedWorkload* load) {
  o.most_time = limits.time;
  o.most_ttft = limits.ttft;
  if (load == nullptr) return;
  o.workload = *load;
  o.queues = true;
  o.pool_gpus = limits.pool_gpus;
}

scenario_parts::PrecisionKeys read_precision_of(const Reader& root) {
  const auto v = root.find("precision");
  return v ? scenario_parts::read_precision(*v) : scenario_parts::PrecisionKeys{};
}

Scenario read_scenario(Document& document, const Catalogs& catalogs, const Overrides& overrides) {
  Scenario s;
  std::vector<Diagnostic> faults;
  const Reader root = document.root();
  s.name = root.at("name").text();
  if (const auto v = root.find("summary")) s.summary = v->text();
  auto system = read_system_of(root, catalogs, overrides, faults);
  const std::optional<Costs> costs = read_costs(root, overrides.costs);
  const auto engine = scenario_parts::read_engine(root, catalogs, overrides.engine);
  const EngineProfile* const profile = engine.profile.get();
  const scenario_parts::LiftedRules lifted = scenario_parts::read_lifted_rules(root, overrides);
  if (system) give_kernels(root, catalogs, profile, *system);
  if (system && costs == Costs::parameters) system->calibration.fits = {};  // its source still has a name
  const std::vector<Model> models =
      read_models(root.at("models"), catalogs, profile != nullptr || engine.unknown);
  const int system_gpus = system ? system->gpus() : std::numeric_limits<int>::max();
  Question asked = read_question(root, system_gpus);
  Sweep* const sweep = std::get_if<Sweep>(&asked);
  const StepKind kind = read_phase(root, sweep != nullptr);
  const auto load = scenario_parts::read_served(root, engine, sweep, kind, models, lifted.any_context);
  const Workload workload = read_workload(root, kind, asked, profile, load ? &load->load : nullptr);
  const auto precision = read_precision_of(root);
  const Routing routing = root.has("routing") ? read_routing(root.at("routing")) : Routing{};
  refuse_idle_keys(root, models, steps_asked(asked, kind, load.has_value()));
  const auto acceptance = scenario_parts::read_speculative(document, root, kind, models, profile, catalogs);
  const std::optional<NoiseSpec> noise = read_noise_of(root, kind, sweep != nullptr, system);
  const double gpu_hour = read_gpu_hour(root, sweep != nullptr);
  const auto constraints_at = root.find("constraints");
  const auto constraints = constraints_of(constraints_at, kind, load.has_value());
  if (sweep != nullptr) {
    sweep->search =
        scenario_parts::read_search(root, system_gpus, kind, load ? &load->users : nullptr, profile);
    sweep->compare = scenario_parts::read_comparison(root, sweep->search, kind);
    sweep->noise = noise;
    constrain(sweep->search, constraints, load ? &load->load : nullptr);
    if (profile != nullptr) scenario_parts::check_strategies(root, *profile, overrides);
  } else {
    refuse_what_sweeps_have(root, constraints_at, constraints, profile);
  }
  if (system) check_precision(precision, models, *system, engine, root);
  root.no_other_keys(scenario_parts::instead_of);
  scenario_parts::finish(document, std::move(faults));
  const auto frameworks = std::make_shared<const MeasuredFrameworks>(catalogs.systems);
  for (const Model& m : models) {
    Case served =
        make_case(m, *system, scenario_parts::precision_of(precision, m, *system, engine.profile.get()), 1,
                  workload.block.value_or(kUsualBlock), routing);
    served.engine = engine.profile;
    served.frameworks = frameworks;
    served.acceptance = acceptance;
    if (load) served.served = {load->load.input, load->load.output};
    served.any_gpus = lifted.any_gpus;
    served.any_context = lifted.any_context;
    s.studies.push_back(study_for(asked, std::move(served), workload, constraints));
    s.studies.back().gpu_hour = gpu_hour;
    if (sweep != nullptr) scenario_parts::check_case(root, s.studies.back().study);
  }
  document.finish();
  return s;
}

}  // namespace

Scenario load_scenario(const std::filesystem::path& file, const Catalogs& catalogs,
                       const Overrides& overrides) {
  Document document = Document::load(file);
  scenario_parts::refuse_other_documents(document.root());
  scenario_parts::set_keys(document, overrides);
  Scenario s = read_scenario(document, catalogs, overrides);
  s.file = file;
  return s;
}

Scenario parse_scenario(const std::string& name, const std::string& text, const Catalogs& catalogs,
                        const Overrides& overrides) {
  Document document = Document::parse(name, text);
  scenario_parts::refuse_other_documents(document.root());
  scenario_parts::set_keys(document, overrides);
  return read_scenario(document, catalogs, overrides);
}

}  // namespace shardline
