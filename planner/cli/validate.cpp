#include <fmt/format.h>

#include "calibrate/validate/apb_paper.hpp"
#include "planner/cli/validate_parts.hpp"
#include "reports/atomic_file.hpp"

namespace shardline::cli {

namespace {

PaperOptions paper_options(const ValidateOptions& o) {
  PaperOptions p;
  p.catalogs = catalogs();
  p.sensitivity = o.sensitivity;
  p.threads = o.threads;
  p.go_on = [] { return !interrupted(); };
  return p;
}

}  // namespace

int validate(const ValidateOptions& o, const Provenance& made_by) {
  if (o.paper == "all") {
    if (!o.truth.empty()) throw UserError("--truth is for validate context_parallel, kv_runahead and apb");
    PaperOptions options = paper_options(o);
    options.both_costs = true;
    return validate_all(options, o.out.empty() ? "out/validation" : o.out, made_by);
  }
  if (o.paper == "context_parallel") {
    if (!o.sensitivity) throw UserError("--no-sensitivity is for validate helix");
    return validate_context(o.truth, o.out, made_by);
  }
  if (o.paper == "kv_runahead" && (!o.truth.empty() || !o.out.empty()))
    return validate_chain(o.truth, o.out, made_by);
  if (o.paper == "apb") {
    if (!o.sensitivity || !o.out.empty()) throw UserError("validate apb takes --truth only");
    const ApbTruth truth = load_apb_truth(o.truth, catalogs());
    fmt::print("{}", terminal_text(apb_paper(truth, catalogs(), [] { return !interrupted(); })));
    return 0;
  }
  std::vector<std::string> names;
  for (const Paper& p : papers()) {
    names.emplace_back(p.id);
    if (o.paper != p.id) continue;
    if (!o.truth.empty() || !o.out.empty())
      throw UserError("--truth and --out are for validate context_parallel and kv_runahead");
    fmt::print("{}", terminal_text(p.report(paper_options(o))));
    return 0;
  }
  names.emplace_back("all");
  throw UserError({Diagnostic{{}, "unknown paper " + o.paper, expected_one_of(o.paper, names)}});
}

}  // namespace shardline::cli
