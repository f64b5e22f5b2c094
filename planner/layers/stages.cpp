#include "planner/layers/stages.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

void stage_layers(const Model& model, int stages, std::vector<StageLayers>& out) {
  SL_CHECK(stages >= 1 && stages <= model.layers, "every stage holds a layer");
  out.clear();
  int begin = 0;
  for (int s = 0; s < stages; ++s) {
    const int count = model.layers / stages + (s < model.layers % stages ? 1 : 0);
    StageLayers layers;
    layers.dense = std::clamp(model.dense_layers - begin, 0, count);
    layers.experts = count - layers.dense;
    layers.first = s == 0;
    layers.last = s == stages - 1;
    begin += count;
    if (!out.empty() && !layers.last && out.back().dense == layers.dense &&
        out.back().experts == layers.experts && !out.back().first) {
      ++out.back().copies;
    } else {
      out.push_back(layers);
    }
  }
}

}  // namespace shardline
