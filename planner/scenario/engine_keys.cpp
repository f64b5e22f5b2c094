#include "planner/scenario/engine_keys.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "hardware/machine/frameworks.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/requests/prefill_delayer.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "planner/scenario/everyday.hpp"
#include "planner/scenario/scenario_parts.hpp"

namespace shardline::scenario_parts {

namespace {

constexpr int kMostUsers = 1'000'000;      // of a deployment
constexpr std::size_t kMostCounts = 1024;  // numbers of them

std::vector<int> read_users(const Reader& r) {
  std::vector<int> out = read_counts(r, kMostUsers);
  if (out.size() > kMostCounts) {
    r.fault(fmt::format("{} has {} numbers of users, at most {} can be asked for", r.path(), out.size(),
                        kMostCounts),
            {"expected a list such as [16, 64, 256] or {from: 1, to: 1024, step: double}"});
    out.resize(kMostCounts);  // batches follow from each: of a million that would take seconds
  }
  return out;
}

std::shared_ptr<const EngineProfile> named(const EngineName& asked, const Catalogs& catalogs) {
  if (same_engine(asked.name, kIdealEngine) && asked.version.empty()) return nullptr;
  return std::make_shared<const EngineProfile>(load_engine(asked, catalogs.engines));
}

// Null: faults have said so. A text of blanks names nothing, as a version it would be taken for any.
std::optional<std::string> named_at(const Reader& v, std::string_view what) {
  const std::string text = v.text();
  if (text.find_first_not_of(" \t") != std::string::npos) return text;
  if (v.is_scalar() && !v.is_null())
    v.fault(fmt::format("{}: expected the name of {}, found an empty text", v.path(), what));
  return std::nullopt;
}

std::shared_ptr<const EngineProfile> delaying(const EngineProfile& profile) {
  auto out = std::make_shared<EngineProfile>(profile);
  out->delay_passes = static_cast<int>(DelayerKnobs{}.max_delay_passes);
  return out;
}

// [P38] The option as this engine starts with it; without a profile there is nothing to start.
std::shared_ptr<const EngineProfile> with_delayer(std::shared_ptr<const EngineProfile> profile,
                                                  const Reader& at) {
  if (!at.boolean()) return profile;
  if (!profile || !same_engine(profile->name, "sglang")) {
    at.fault(at.path() + " is an option of SGLang (--enable-prefill-delayer)",
             {profile ? fmt::format("{} has none like it", profile->title) : "expected name: sglang"});
    return profile;
  }
  return delaying(*profile);
}

AskedEngine at_key(const Reader& v, const Catalogs& catalogs) {
  const auto delayer = v.is_map() ? v.find("prefill_delayer") : std::nullopt;
  const auto version = v.is_map() ? v.find("version") : std::nullopt;
  const auto name = named_at(v.is_map() ? v.at("name") : v, "an engine");
  EngineName asked = engine_name(name.value_or(""));
  if (version) {
    const auto text = named_at(*version, "a version");
    if (!text) return {nullptr, true};
    asked.version = *text;
  }
  if (v.is_map()) v.no_other_keys();
  if (!name) return {nullptr, true};
  try {
    auto profile = named(asked, catalogs);
    return {delayer ? with_delayer(std::move(profile), *delayer) : std::move(profile)};
  } catch (const UserError& e) {
    for (const Diagnostic& d : e.diagnostics())
      (version && d.what.starts_with("no profile") ? *version : v).fault(d.what, d.details);
    return {nullptr, true};
  }
}

}  // namespace

AskedEngine read_engine(const Reader& root, const Catalogs& catalogs, const std::string& asked) {
  const auto v = root.find("engine");
  const AskedEngine of_file = v ? at_key(*v, catalogs) : AskedEngine{};  // whose faults are said in any case
  if (asked.empty()) return of_file;
  auto own = named(engine_name(asked), catalogs);
  // An option of the file's engine stays where the command line names the same engine.
  const bool delays = of_file.profile && of_file.profile->delay_passes > 0;
  if (!delays || !own || !same_engine(own->name, of_file.profile->name)) return AskedEngine{std::move(own)};
  return AskedEngine{delaying(*own)};
}

void apply_engine(const EngineProfile& engine, System& system, const Catalogs& catalogs) {
  if (!system.calibration.empty()) use_framework(system, engine.framework, catalogs.systems);
  // The four numbers were fitted together, so that what models left out were off is theirs.
  system.host = {engine.host.step,
                 engine.host.request,
                 engine.host.prompt_token,
                 engine.launch_time(system.device),
                 engine.error.rows > 0 ? engine.error.tpot : kAssumedBand,
                 engine.title + " " + engine.version};
}

std::optional<ServedKeys> read_served(const Reader& root, const AskedEngine& engine, bool sweeps,
                                      StepKind kind, const std::vector<Model>& models, bool any_context) {
  const auto v = root.find("workload");
  if (!v) return std::nullopt;
  ServedKeys out;
  ServedWorkload& w = out.load;
  w.input = v->at("input").tokens(1, kLongest);
  w.output = v->at("output").tokens(2, kLongest);
  if (const auto lengths = v->find("lengths")) w.equal_lengths = choice(*lengths, {"drawn", "equal"}) == 1u;
  // The loop whose TTFT was measured, so that its interval is of the number that is shown.
  w.rounds = kMeasuredRounds;
  if (const auto users = v->find("users")) out.users = read_users(*users);
  v->no_other_keys(instead_in_workload);
  if (!sweeps || kind != StepKind::decode) v->fault("workload is for sweeps of phase: decode");
  if (!engine.profile && !engine.unknown)
    v->fault("a workload is served by an engine",
             {"expected engine: trtllm, vllm or sglang; bare kernels (ideal) serve nobody"});
  for (const Model& m : models) {
    if (any_context || m.max_context == 0 || w.input + w.output <= m.max_context) continue;
    std::vector<std::string> details{
        m.max_context > w.input + 1
            ? fmt::format("expected an output of at most {} tokens behind this input",
                          m.max_context - w.input)
            : fmt::format("expected an input of at most {} tokens", m.max_context - w.output),
        "any_context: true lifts that; the engine then takes any length"};
    if (engine.profile) details.push_back(length_rule(*engine.profile));
    v->fault(fmt::format("input and output are {} tokens, {} is for {} at most", w.input + w.output, m.name,
                         m.max_context),
             std::move(details));
  }
  return out;
}

Kernels kernels_of(const EngineProfile* engine) {
  const EngineProfile bare = engine != nullptr ? EngineProfile{} : bare_kernels();
  const EngineProfile& of = engine != nullptr ? *engine : bare;
  Kernels k;
  k.separate_elementwise = !of.fuses_elementwise;
  k.fused_split_merge = of.fuses_split_merge;
  return k;
}

}  // namespace shardline::scenario_parts
