#include "calibrate/validate/papers.hpp"

#include <array>

#include "calibrate/validate/apb_paper.hpp"
#include "calibrate/validate/context_paper.hpp"
#include "calibrate/validate/helix_report.hpp"
#include "calibrate/validate/kv_runahead_paper.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

PaperReport helix(const PaperOptions& o) {
  const Scenario scenario = load_scenario(o.catalogs.scenarios / "validate_helix.yaml", o.catalogs);
  const Scenario silicon = load_scenario(o.catalogs.scenarios / "r1_gb300_1m.yaml", o.catalogs);
  return helix_report(scenario, {o.sensitivity, o.both_costs, o.threads, o.steps, &silicon});
}

PaperReport context_parallel(const PaperOptions& o) {
  const ContextTruth truth = context_truth_of("", o.catalogs);
  const ContextReport solved = context_report(truth, simulated_times(o.catalogs), o.steps);
  PaperReport paper = context_paper(truth, solved, "");
  if (o.both_costs) {
    const ContextTimes measured = simulated_times(o.catalogs, {{"h100-gtt", "h100-gtt-measured"}});
    paper.sections.push_back(measured_kernels_section(solved, context_report(truth, measured, o.steps)));
  }
  return paper;
}

PaperReport kv_runahead(const PaperOptions& o) {
  return chain_paper(chain_truth_of("", o.catalogs), o.catalogs, o.steps);
}

PaperReport apb(const PaperOptions& o) {
  return apb_paper(load_apb_truth("", o.catalogs), o.catalogs, o.steps);
}

}  // namespace

std::span<const Paper> papers() {
  static constexpr std::array kPapers{Paper{"helix", helix}, Paper{"context_parallel", context_parallel},
                                      Paper{"kv_runahead", kv_runahead}, Paper{"apb", apb}};
  return kPapers;
}

std::vector<PaperReport> all_papers(const PaperOptions& options) {
  std::vector<PaperReport> out(papers().size());
  parallel_for(0, out.size(), thread_count(options.threads),
               [&](std::size_t i, std::size_t) { out[i] = papers()[i].report(options); });
  return out;
}

}  // namespace shardline
