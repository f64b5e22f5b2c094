#include "planner/studies/listing.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/cli/commands.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/strategies/columns.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

std::string billions(double n) { return fmt::format("{:.2f} B", n / 1e9); }

// "GQA", "MLA", or the kinds of layers: "GQA: 18 window 128, 18 full".
std::string attention_text(const Model& m) {
  const auto latents = [](const Attention& a) { return has_latents(a); };
  const bool all = std::all_of(m.attentions.begin(), m.attentions.end(), latents);
  const char* const family = all ? "MLA" : has_latents(m) ? "MLA, GQA" : "GQA";
  if (one_attention(m) && !has_local_attention(m)) return family;
  std::vector<std::string> kinds;
  for (int i = 0; i < std::ssize(m.attentions); ++i)
    kinds.push_back(fmt::format("{} {}", layers_of_attention(m, i),
                                to_string(m.attentions[static_cast<std::size_t>(i)].reach)));
  return fmt::format("{}: {}", family, fmt::join(kinds, ", "));
}

std::string models_text() {
  Table t({"model", "parameters", "active", "layers", "KV per token, FP4", "windows, chunks", "attention"});
  for (const ListedModel& m : list_models(shipped_catalogs())) {
    t.add({m.name, billions(m.parameters), billions(m.active), std::to_string(m.model.layers()),
           to_string(m.kv_per_token), m.kv_local > Bytes(0) ? to_string(m.kv_local) : "",
           attention_text(m.model)});
  }
  return t.text();
}

std::string systems_text() {
  Table t({"system", "GPUs", "HBM per GPU", "HBM bandwidth", "calibration", "summary"});
  for (const auto& [name, s] : list_systems(shipped_catalogs())) {
    t.add({name, std::to_string(s.gpus()), to_string(s.device.memory), to_string(s.device.memory_bandwidth),
           s.calibration.empty()        ? "none"
           : s.calibration.like.empty() ? "own"
                                        : "like " + s.calibration.like,
           s.summary});
  }
  return t.text();
}

// Those that run it, without their versions.
std::string engines_text(const Strategy& s) {
  std::string out;
  for (const std::string& engine : engines_with(s.launched_as))
    out += (out.empty() ? "" : ", ") + engine.substr(0, engine.rfind(' '));
  return out.empty() ? "none" : out;
}

std::string strategies_text() {
  Table t({"strategy", "phases", "results", "engines", "summary", "source"});
  for (const Strategy* s : strategies())
    t.add({s->name, kinds_text(*s), s->exact ? "exact" : "approximate", engines_text(*s), s->summary,
           s->source});
  return t.text();
}

// Two lines each: the whole would be wider than a terminal.
std::string options_text() {
  std::string text;
  for (const OptionRow& row : option_rows())
    text += fmt::format("  {}: {}   [{}]\n      {}\n", row.key, row.values, row.strategies, row.help);
  return text;
}

std::string scenarios_text() {
  Table t({"scenario", "summary"});
  for (const auto& [name, summary] : list_scenarios()) t.add({name, summary});
  return t.text();
}

struct Kind {
  const char* name;
  std::string (*text)();
};
constexpr Kind kKinds[] = {{"models", models_text},
                           {"systems", systems_text},
                           {"strategies", strategies_text},
                           {"options", options_text},
                           {"scenarios", scenarios_text}};

struct ListOptions {
  std::string what;
};

void declare(Arguments& a, ListOptions& o) {
  a.add("what", o.what, "models, systems, strategies, options (of plans) or scenarios").required();
}

int run(const ListOptions& o, const Provenance&) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    names.emplace_back(kind.name);
    if (o.what != kind.name) continue;
    fmt::print("{}", kind.text());
    return 0;
  }
  throw UserError({Diagnostic{{}, "nothing to list is called " + o.what, expected_one_of(o.what, names)}});
}

}  // namespace

const Command kListCommand{"list", "List models, systems, strategies, options of plans or scenarios",
                           "shardline list models", prepare<ListOptions, declare, run>};

}  // namespace shardline::cli
