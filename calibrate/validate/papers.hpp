// The published papers that shardline is compared with. To add one: a function that returns a PaperReport,
// and a row in papers.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/validate/paper_report.hpp"
#include "calibrate/validate/work_steps.hpp"
#include "planner/scenario/scenario.hpp"

namespace shardline {

struct PaperOptions {
  Catalogs catalogs;
  bool sensitivity = true;  // helix: each assumed parameter changed in turn
  bool both_costs = false;  // helix: with assumed parameters and with measured costs
  int threads = 0;          // 0: all cores; results do not depend on it
  WorkSteps steps = {};
};

struct Paper {
  const char* id;  // its name on the command line
  PaperReport (*report)(const PaperOptions& options);
};
std::span<const Paper> papers();

/// All papers in the table's order. Throws UserError if `steps` do not go on.
std::vector<PaperReport> all_papers(const PaperOptions& options);

}  // namespace shardline
