// calibrate --engine: an engine profile's four numbers from measured serving.
#pragma once

#include <string>
#include <vector>

#include "reports/cli/command.hpp"

namespace shardline::cli {

struct CalibrateEngine {
  std::vector<std::string> measurements;
  std::string engine, source, out, csv;
  std::string date;
  bool play = false;  // rows are played request by request, too
};
int calibrate_engine(const CalibrateEngine& asked, const Provenance& made_by);

}  // namespace shardline::cli
