#include "planner/scenario/engine_keys.hpp"

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

Kernels kernels_of(const EngineProfile* engine) {
  Kernels k;
  if (engine != nullptr) {
    k.separate_elementwise = !engine->fuses_elementwise;
    k.fused_split_merge = engine->fuses_split_merge;
  }
  return k;
}

}  // namespace shardline::scenario_parts
