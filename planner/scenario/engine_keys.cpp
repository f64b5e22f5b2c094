#include "planner/scenario/engine_keys.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/scenario/scenario_parts.hpp"

namespace shardline::scenario_parts {

namespace {

constexpr const char* kIdeal = "ideal";

std::shared_ptr<const EngineProfile> named(const std::string& name, const std::string& version,
                                           const Catalogs& catalogs) {
  if (name == kIdeal && version.empty()) return nullptr;
  return std::make_shared<const EngineProfile>(load_engine(name, version, catalogs.engines));
}

std::shared_ptr<const EngineProfile> at_key(const Reader& v, const Catalogs& catalogs) {
  const std::string name = v.is_map() ? v.at("name").text() : v.text();
  const auto version = v.is_map() ? v.find("version") : std::nullopt;
  if (v.is_map()) v.no_other_keys();
  if (name.empty()) return nullptr;  // the reader has said so
  try {
    return named(name, version ? version->text() : "", catalogs);
  } catch (const UserError& e) {
    for (const Diagnostic& d : e.diagnostics())
      (version && d.what.starts_with("no profile") ? *version : v).fault(d.what, d.details);
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<const EngineProfile> read_engine(const Reader& root, const Catalogs& catalogs,
                                                 const std::string& asked) {
  const auto v = root.find("engine");
  if (!asked.empty()) {
    const std::size_t space = asked.find(' ');
    return named(asked.substr(0, space), space == std::string::npos ? "" : asked.substr(space + 1), catalogs);
  }
  return v ? at_key(*v, catalogs) : nullptr;
}

void apply_engine(const EngineProfile& engine, System& system, const Catalogs& catalogs, bool own_kernels) {
  if (!own_kernels && !system.calibration.empty()) use_framework(system, engine.framework, catalogs.systems);
  system.host = {engine.host.step, engine.host.request, engine.host.prompt_token};
}

std::optional<ServedWorkload> read_served(const Reader& root, const EngineProfile* engine, bool sweeps,
                                          StepKind kind, const std::vector<Model>& models, bool any_context) {
  const auto v = root.find("workload");
  if (!v) return std::nullopt;
  ServedWorkload w;
  w.input = v->at("input").tokens(1, kLongest);
  w.output = v->at("output").tokens(2, kLongest);
  if (const auto lengths = v->find("lengths")) w.equal_lengths = choice(*lengths, {"drawn", "equal"}) == 1u;
  v->no_other_keys();
  if (!sweeps || kind != StepKind::decode) v->fault("workload is for sweeps of phase: decode");
  if (engine == nullptr)
    v->fault("a workload is served by an engine",
             {"expected engine: trtllm, vllm or sglang; bare kernels (ideal) serve nobody"});
  for (const Model& m : models) {
    if (!any_context && m.max_context > 0 && w.input + w.output > m.max_context)
      v->fault(fmt::format("input and output are {} tokens, {} is for {} at most", w.input + w.output, m.name,
                           m.max_context),
               {fmt::format("expected an output of at most {} tokens behind this input",
                            std::max(0LL, m.max_context - w.input))});
  }
  return w;
}

Kernels kernels_of(const EngineProfile* engine) {
  Kernels k;
  if (engine != nullptr) {
    k.separate_elementwise = !engine->fuses_elementwise;
    k.fused_split_merge = engine->fuses_split_merge;
  }
  return k;
}

}  // namespace shardline::scenario_parts
