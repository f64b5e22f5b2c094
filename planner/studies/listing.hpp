// What there is to choose from: the entries of the catalogues.
#pragma once

#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

/// "GQA", "MLA", or the kinds of layers: "GQA: 18 window 128, 18 full".
std::string attention_text(const Model& model);

struct ListedModel {
  std::string name;
  Model model;
  double parameters = 0, active = 0;
  // With a KV cache in FP4: what each token adds at any length, and what a request holds at most of layers
  // that keep the tokens of a window or a chunk.
  Bytes kv_per_token = Bytes(0), kv_local = Bytes(0);
};
/// In the order of the names. Throws UserError of a faulty file, as the lists below.
std::vector<ListedModel> list_models(const Catalogs& catalogs);

struct ListedSystem {
  std::string name;
  System system;
};
std::vector<ListedSystem> list_systems(const Catalogs& catalogs);

/// Whose prices a system has: "none", "own", or "like h100-hgx".
std::string calibration_text(const System& system);

struct ListedScenario {
  std::string name, summary;
};
/// The shipped ones.
std::vector<ListedScenario> list_scenarios();

}  // namespace shardline
