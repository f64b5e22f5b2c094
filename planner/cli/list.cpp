#include "planner/studies/listing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/api/convert_list.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/columns.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

std::string billions(double n) { return fmt::format("{:.2f} B", n / 1e9); }

std::string models_text() {
  Table t({"model", "parameters", "active", "layers", "KV per token, FP4", "windows, chunks", "attention"});
  for (const ListedModel& m : list_models(shipped_catalogs())) {
    t.add({m.name, billions(m.parameters), billions(m.active), std::to_string(m.model.layers()),
           to_string(m.kv_per_token), m.kv_local > Bytes(0) ? to_string(m.kv_local) : "",
           attention_text(m.model)});
  }
  return fitted(t);
}

std::string systems_text() {
  Table t({"system", "GPUs", "HBM per GPU", "HBM bandwidth", "calibration", "summary"});
  for (const auto& [name, s] : list_systems(shipped_catalogs())) {
    t.add({name, std::to_string(s.gpus()), to_string(s.device.memory), to_string(s.device.memory_bandwidth),
           calibration_text(s), s.summary});
  }
  return fitted(t);
}

std::string strategies_text() {
  Table t({"strategy", "phases", "results", "engines", "summary", "source"});
  for (const Strategy* s : strategies())
    t.add({s->name, kinds_text(*s), s->exact ? "exact" : "approximate", engine_names_of(*s), s->summary,
           s->source});
  return fitted(t);
}

// Two lines each: the whole would be wider than a terminal.
std::string options_text() {
  std::string text;
  for (const OptionRow& row : option_rows())
    text += fmt::format("  {}: {}   [{}]\n      {}\n", row.key, row.values, row.strategies, row.help);
  const std::size_t width = output_width();
  return width > 0 ? wrapped_lines(text, width) : text;
}

std::string scenarios_text() {
  Table t({"scenario", "summary"});
  for (const auto& [name, summary] : list_scenarios()) t.add({name, summary});
  return fitted(t);
}

std::string acceptance_text() {
  Table t({"acceptance", "p", "g", "off", "drafts 1", "2", "3", "4", "5", "6", "7", "8", "source"});
  for (const PublishedAcceptance& c : load_published_acceptance(shipped_catalogs().acceptance())) {
    std::vector<std::string> row{c.name(), fmt::format("{:g}", c.form.p), fmt::format("{:g}", c.form.g),
                                 fmt::format("{:.1f} %", 100 * c.largest_error)};
    for (int k = 1; k <= 8; ++k) row.push_back(fmt::format("{:.2f}", c.curve().mean_at(k).mean));
    row.push_back(c.source);
    t.add(std::move(row));
  }
  return fitted(t);
}

struct Kind {
  const char* name;
  std::string (*text)();
};
constexpr Kind kKinds[] = {{"models", models_text},         {"systems", systems_text},
                           {"strategies", strategies_text}, {"options", options_text},
                           {"scenarios", scenarios_text},   {"acceptance", acceptance_text}};

std::vector<std::string> offered_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

struct ListOptions {
  std::string what;
};

void declare(Arguments& a, ListOptions& o) {
  a.add("what", o.what,
        "models, systems, strategies, options (of plans), scenarios or acceptance (of drafts)")
      .required()
      .offers(offered_kinds);
}

int run(const ListOptions& o, const Provenance& made_by) {
  if (made_by.document != nullptr) {
    api::ListResult result = api::listed(o.what);
    result.version = made_by.version;
    result.command = made_by.command;
    made_by.document->set(api::to_json(result));
    return 0;
  }
  for (const Kind& kind : kKinds) {
    if (o.what != kind.name) continue;
    print_notes("{}", kind.text());
    return 0;
  }
  std::vector<std::string> details;
  for (const char* of_systems : {"gpus", "gpu", "devices", "hardware", "clusters"}) {
    if (o.what == of_systems) details.emplace_back("GPUs are parts of systems: shardline list systems");
  }
  if (o.what == "engines" || o.what == "engine")
    details.push_back(
        fmt::format("engines are those that --engine takes: {}", fmt::join(offered_engines(), ", ")));
  api::nothing_called(o.what, std::move(details));
}

}  // namespace

const Command kListCommand{
    "list", "List models, systems, strategies, options of plans, scenarios or acceptance of drafts",
    "shardline list models", prepare<ListOptions, declare, run>};

}  // namespace shardline::cli
