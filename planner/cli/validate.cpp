#include <fmt/format.h>

#include "calibrate/validate/apb_paper.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/cli/validate_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/staged_folder.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/base/parallel.hpp"

namespace shardline::cli {

namespace {

struct ValidateOptions {
  std::string paper = "all";
  bool sensitivity = true;  // helix
  std::string truth;        // context_parallel: a file of published figures (empty: the shipped one)
  std::string out;          // all: a folder (empty: out/validation); context_parallel: a folder, or none
  int threads = 0;
};

PaperOptions paper_options(const ValidateOptions& o) {
  PaperOptions p;
  p.catalogs = shipped_catalogs();
  p.sensitivity = o.sensitivity;
  p.threads = o.threads;
  return p;
}

const char* papers_text() {
  static const std::string text = [] {
    std::string names;
    for (const Paper& p : papers()) names += std::string(p.id) + ", ";
    return names + "or all (default): one report on every paper";
  }();
  return text.c_str();
}

std::vector<std::string> offered_papers() {
  std::vector<std::string> names{"all"};
  for (const Paper& p : papers()) names.emplace_back(p.id);
  return names;
}

void declare(Arguments& a, ValidateOptions& o) {
  a.add("paper", o.paper, papers_text()).offers(offered_papers);
  a.flag_off("--no-sensitivity", o.sensitivity,
             "Leave out the sensitivity of each ratio to the parameters (helix, all)");
  a.add("--truth", o.truth,
        "File of published or measured times (context_parallel, kv_runahead, apb; default: the paper's)")
      .files();
  a.add("-o,--out", o.out,
        "Folder for validation.md and plots (all; default: out/validation), or CSV and plot "
        "(context_parallel, kv_runahead)")
      .output_folder();
  add_threads(a, o.threads);
}

template <class Make>
PaperReport shown(const char* paper, Make make) {
  StepProgress progress(paper, Progress::terminal(), "steps");
  return make(shown_on(progress));
}

int report(const PaperReport& paper, const Provenance& made_by) {
  print_notes("{}", terminal_text(paper));
  set_document({&paper, 1}, made_by);
  return 0;
}

// Measured as peak resident memory (tests/golden/memory.py asks again), rounded up: of the reports on all
// papers, whose configurations are those of their tables, and of what a thread keeps of them.
MemoryNeed need_of_validation(int threads) {
  constexpr double kProcess = 50e6, kThread = 45e6;
  const std::size_t workers = thread_count(threads);
  return {Bytes(kProcess + kThread * static_cast<double>(workers)),
          fmt::format("searches of published configurations on each of {} threads", workers),
          "fewer --threads"};
}

int run(const ValidateOptions& o, const Provenance& made_by) {
  require_memory(need_of_validation(o.threads));
  if (o.paper == "all") {
    if (!o.truth.empty()) throw UserError("--truth is for validate context_parallel, kv_runahead and apb");
    PaperOptions options = paper_options(o);
    options.both_costs = true;
    if (!o.out.empty()) return validate_all(options, o.out, made_by);
    const std::filesystem::path folder = "out/validation";
    const FolderClaim claim(folder);
    return validate_all(options, folder, made_by);
  }
  if (o.paper == "context_parallel") {
    if (!o.sensitivity) throw UserError("--no-sensitivity is for validate helix");
    return validate_context(o.truth, o.out, made_by);
  }
  if (o.paper == "kv_runahead" && (!o.truth.empty() || !o.out.empty()))
    return validate_chain(o.truth, o.out, made_by);
  if (o.paper == "apb") {
    if (!o.sensitivity || !o.out.empty()) throw UserError("validate apb takes --truth only");
    const ApbTruth truth = load_apb_truth(o.truth, shipped_catalogs());
    return report(shown("apb", [&](const WorkSteps& s) { return apb_paper(truth, shipped_catalogs(), s); }),
                  made_by);
  }
  std::vector<std::string> names;
  for (const Paper& p : papers()) {
    names.emplace_back(p.id);
    if (o.paper != p.id) continue;
    if (!o.truth.empty() || !o.out.empty())
      throw UserError("--truth and --out are for validate context_parallel and kv_runahead");
    return report(shown(p.id,
                        [&](const WorkSteps& steps) {
                          PaperOptions options = paper_options(o);
                          options.steps = steps;
                          return p.report(options);
                        }),
                  made_by);
  }
  names.emplace_back("all");
  throw UserError({Diagnostic{{}, "unknown paper " + o.paper, expected_one_of(o.paper, names)}});
}

}  // namespace

const Command kValidateCommand{"validate", "Compare with published figures, side by side",
                               "shardline validate all -o out/validation",
                               prepare<ValidateOptions, declare, run>};

}  // namespace shardline::cli
