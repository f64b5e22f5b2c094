// What there is to choose from: the entries of the catalogues.
#pragma once

#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

struct ListedModel {
  std::string name;
  Model model;
  double parameters = 0, active = 0;
  Bytes kv_per_token;  // with a KV cache in FP4
};
/// In the order of the names. Throws UserError of a faulty file, as the lists below.
std::vector<ListedModel> list_models(const Catalogs& catalogs);

struct ListedSystem {
  std::string name;
  System system;
};
std::vector<ListedSystem> list_systems(const Catalogs& catalogs);

struct ListedScenario {
  std::string name, summary;
};
/// The shipped ones.
std::vector<ListedScenario> list_scenarios();

}  // namespace shardline
