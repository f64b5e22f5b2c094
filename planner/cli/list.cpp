#include <fmt/format.h>

#include "models/model/catalog.hpp"
#include "planner/cli/commands.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

std::string billions(double n) { return fmt::format("{:.2f} B", n / 1e9); }

struct ListOptions {
  std::string what;
};

void declare(Arguments& a, ListOptions& o) {
  a.add("what", o.what, "models, systems, strategies or scenarios").required();
}

int run(const ListOptions& o, const Provenance&) {
  const std::string& what = o.what;
  const std::vector<std::string> kinds{"models", "systems", "strategies", "scenarios"};
  if (what == "models") {
    Table t({"model", "parameters", "active", "layers", "KV per token, FP4", "attention"});
    for (const std::string& name : catalog_names(shipped_catalogs().models)) {
      const Model m = load_model(name, shipped_catalogs().models);
      t.add({name, billions(parameter_count(m)), billions(active_parameters(m)), std::to_string(m.layers),
             to_string(kv_bytes_per_token(m, bytes_per_element(Dtype::fp4))),
             m.attention.kind == AttentionKind::mla ? "MLA" : "GQA"});
    }
    fmt::print("{}", t.text());
  } else if (what == "systems") {
    Table t({"system", "GPUs", "HBM per GPU", "HBM bandwidth", "calibration", "summary"});
    for (const std::string& name : system_names(shipped_catalogs().systems)) {
      const System s = load_system(name, shipped_catalogs().systems);
      t.add({name, std::to_string(s.gpus()), to_string(s.device.memory), to_string(s.device.memory_bandwidth),
             s.calibration.empty()        ? "none"
             : s.calibration.like.empty() ? "own"
                                          : "like " + s.calibration.like,
             s.summary});
    }
    fmt::print("{}", t.text());
  } else if (what == "strategies") {
    Table t({"strategy", "results", "summary", "source"});
    for (const Strategy* s : strategies())
      t.add({s->name, s->exact ? "exact" : "approximate", s->summary, s->source});
    fmt::print("{}", t.text());
  } else if (what == "scenarios") {
    Table t({"scenario", "summary"});
    for (const std::string& name : scenario_names()) t.add({name, scenario_named(name).summary});
    fmt::print("{}", t.text());
  } else {
    throw UserError({Diagnostic{{}, "nothing to list is called " + what, expected_one_of(what, kinds)}});
  }
  return 0;
}

}  // namespace

const Command kList{"list", "List models, systems, strategies or scenarios", "shardline list models",
                    prepare<ListOptions, declare, run>};

}  // namespace shardline::cli
