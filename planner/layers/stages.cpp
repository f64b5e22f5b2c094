#include "planner/layers/stages.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Layers of the model's runs, taken from the front.
class Front {
 public:
  explicit Front(const Model& m) : runs_(m.runs) {}

  void take(int count, std::vector<LayerRun>& kinds) {
    kinds.clear();
    while (count > 0) {
      const LayerRun& run = runs_[at_];
      const int some = std::min(count, run.count - taken_);
      const auto same = [&](const LayerRun& k) { return k.attention == run.attention && k.ffn == run.ffn; };
      const auto known = std::find_if(kinds.begin(), kinds.end(), same);
      if (known == kinds.end())
        kinds.push_back({run.attention, run.ffn, some});
      else
        known->count += some;
      count -= some;
      taken_ += some;
      if (taken_ == run.count) {
        ++at_;
        taken_ = 0;
      }
    }
  }

 private:
  const std::vector<LayerRun>& runs_;
  std::size_t at_ = 0;
  int taken_ = 0;  // of run `at_`
};

}  // namespace

std::pair<int, int> layers_of_stage(int layers, int stages, int stage) {
  const auto first = [&](int s) { return layers / stages * s + std::min(s, layers % stages); };
  return {first(stage), first(stage + 1)};
}

void stage_layers(const Model& model, int stages, std::vector<StageLayers>& out) {
  const int layers = model.layers();
  SL_CHECK(stages >= 1 && stages <= layers, "every stage holds a layer");
  std::size_t used = 0;
  Front front(model);
  thread_local std::vector<LayerRun> kinds;
  for (int s = 0; s < stages; ++s) {
    const auto [first_layer, end_layer] = layers_of_stage(layers, stages, s);
    front.take(end_layer - first_layer, kinds);
    const bool first = s == 0, last = s == stages - 1;
    if (used > 0 && !last && !out[used - 1].first && out[used - 1].kinds == kinds) {
      ++out[used - 1].copies;
      continue;
    }
    if (used == out.size()) out.emplace_back();
    StageLayers& stage = out[used++];
    stage.kinds = kinds;
    stage.first = first;
    stage.last = last;
    stage.copies = 1;
  }
  out.resize(used);
}

}  // namespace shardline
