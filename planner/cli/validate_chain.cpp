#include <fmt/format.h>

#include "calibrate/validate/kv_runahead_paper.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/cli/validate_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

int validate_chain(const std::string& truth_file, const std::string& out, const Provenance& made_by) {
  const ChainTruth truth = chain_truth_of(truth_file, shipped_catalogs());
  if (!out.empty()) make_output_folder(out);
  const PaperReport paper = [&] {
    StepProgress progress("kv_runahead", Progress::terminal(), "steps");
    return chain_paper(truth, shipped_catalogs(), shown_on(progress));
  }();
  print_notes("{}", terminal_text(paper));
  set_document({&paper, 1}, made_by);
  if (out.empty()) return 0;
  OutputFolder files(out);
  files.write("kv_runahead.csv", values_csv({&paper, 1}));
  files.draw(scatter_plot(paper, "shardline " + made_by.version + ": " + made_by.command), "kv_runahead");
  print_notes("{}", files.publish(""));
  return 0;
}

}  // namespace shardline::cli
