// Which layers a pipeline stage holds.
#pragma once

#include <utility>
#include <vector>

#include "models/model/model.hpp"
#include "planner/plan/case.hpp"

namespace shardline {

struct StageLayers {
  std::vector<LayerRun> kinds;  // how many layers of each pair of kinds, in the order of their first ones
  bool first = false, last = false;
  // Whether the first layer of this stage, and of the next one, takes the choice of an index in the stage
  // before it (IndexShare): then that is handed on, too.
  bool takes_choice = false, hands_choice = false;
  int copies = 1;  // consecutive stages that are alike
};

/// Whether a layer takes the choice of an earlier one's index. layer: of the model's, in order.
bool takes_choice(const Model& model, int layer);
/// Whether a stage but the first begins on such a layer.
bool hands_choices(const Case& c, int stages);

/// Layers [first, second) of a stage of `stages`: floor or ceil of layers / stages. Which ones have more is
/// the engine's rule; without one the first have.
std::pair<int, int> layers_of_stage(const Case& c, int stages, int stage);

/// Layers in order over `stages` stages, as layers_of_stage() cuts them. Alike neighbours are folded. stages
/// <= layers. `out` is reused.
void stage_layers(const Case& c, int stages, std::vector<StageLayers>& out);

}  // namespace shardline
