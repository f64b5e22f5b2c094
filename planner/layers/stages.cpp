#include "planner/layers/stages.hpp"

#include <algorithm>

#include "planner/engines/profile.hpp"
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

std::pair<int, int> layers_of_stage(const Case& c, int stages, int stage) {
  using More = PipelineStages::More;
  const int layers = c.model.layers(), more = layers % stages;
  const More which = c.engine ? c.engine->stages.more : More::first;
  // Stages before `begin` have none more; those behind the last that has one, all.
  const int begin =
      which == More::first || more == 0 ? 0 : stages - more - (which == More::before_last ? 1 : 0);
  const auto first = [&](int s) { return layers / stages * s + std::clamp(s - begin, 0, more); };
  return {first(stage), first(stage + 1)};
}

bool takes_choice(const Model& model, int layer) {
  for (const LayerRun& run : model.runs) {
    if (layer < run.count) {
      const auto& index = model.attentions[static_cast<std::size_t>(run.attention)].index;
      return index && index->shared;
    }
    layer -= run.count;
  }
  SL_CHECK(false, "a layer of the model");
  return false;
}

bool hands_choices(const Case& c, int stages) {
  if (stages == 1 || !shares_index(c.model)) return false;
  for (int s = 1; s < stages; ++s)
    if (takes_choice(c.model, layers_of_stage(c, stages, s).first)) return true;
  return false;
}

void stage_layers(const Case& c, int stages, std::vector<StageLayers>& out) {
  const Model& model = c.model;
  const int layers = model.layers();
  SL_CHECK(stages >= 1 && stages <= layers, "every stage holds a layer");
  const bool shares = shares_index(model);
  std::size_t used = 0;
  Front front(model);
  thread_local std::vector<LayerRun> kinds;
  for (int s = 0; s < stages; ++s) {
    const auto [first_layer, end_layer] = layers_of_stage(c, stages, s);
    front.take(end_layer - first_layer, kinds);
    const bool first = s == 0, last = s == stages - 1;
    const bool takes = shares && !first && takes_choice(model, first_layer),
               hands = shares && !last && takes_choice(model, end_layer);
    if (used > 0 && !last && !out[used - 1].first && out[used - 1].kinds == kinds &&
        out[used - 1].takes_choice == takes && out[used - 1].hands_choice == hands) {
      ++out[used - 1].copies;
      continue;
    }
    if (used == out.size()) out.emplace_back();
    StageLayers& stage = out[used++];
    stage.kinds = kinds;
    stage.first = first;
    stage.last = last;
    stage.takes_choice = takes;
    stage.hands_choice = hands;
    stage.copies = 1;
  }
  out.resize(used);
}

}  // namespace shardline
