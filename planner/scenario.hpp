// A scenario file: what to serve, on what, and which plans to look at. Schema: scenarios/README.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "planner/search.hpp"

namespace shardline {

/// Two groups of strategies whose frontiers are compared.
struct Comparison {
  std::vector<StrategyId> candidate, baseline;
};

/// One model of a scenario with everything that its search needs.
struct Study {
  Case study;
  SearchOptions search;
  Comparison compare;
  std::string title;  // "DeepSeek-R1 on gb200-nvl72, 1M tokens"
};

struct Scenario {
  std::string name, summary;
  std::filesystem::path file;
  std::vector<Study> studies;  // one per model
};

struct Catalogs {
  std::filesystem::path models, systems, scenarios;
};

/// Throws UserError with every fault of the file (and of the models and systems it names).
Scenario load_scenario(const std::filesystem::path& file, const Catalogs& catalogs);
Scenario parse_scenario(const std::string& name, const std::string& text, const Catalogs& catalogs);

}  // namespace shardline
