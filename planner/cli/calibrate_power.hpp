// calibrate --power: the law of a board's watts from measured kernels.
#pragma once

#include <string>
#include <vector>

#include "reports/cli/command.hpp"

namespace shardline::cli {

struct CalibratePower {
  std::vector<std::string> measurements;  // tables, or folders with tables called power_*.csv
  std::string system, source, out;
  int folds = 4;
};
int calibrate_power(const CalibratePower& asked, const Provenance& made_by);

}  // namespace shardline::cli
