// Which layers a pipeline stage holds.
#pragma once

#include <utility>
#include <vector>

#include "models/model/model.hpp"

namespace shardline {

struct StageLayers {
  std::vector<LayerRun> kinds;  // how many layers of each pair of kinds, in the order of their first ones
  bool first = false, last = false;
  int copies = 1;  // consecutive stages that are alike
};

/// Layers [first, second) of a stage of `stages`: floor or ceil of layers / stages, the earlier ones more.
std::pair<int, int> layers_of_stage(int layers, int stages, int stage);

/// Layers in order over `stages` stages, the first (layers mod stages) of them holding one more. Alike
/// neighbours are folded. stages <= layers. `out` is reused.
void stage_layers(const Model& model, int stages, std::vector<StageLayers>& out);

}  // namespace shardline
