#include "planner/serving/plan_stages.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/layers/host_work.hpp"
#include "planner/layers/stages.hpp"
#include "planner/layers/step.hpp"
#include "planner/search/step_power.hpp"
#include "planner/serving/plan_steps.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// What the host adds to kernels of some stages, and to the pass of all.
void add_host(std::span<StageTime> stages, Seconds host) {
  const auto sum = [](Seconds so_far, const StageTime& s) { return so_far + s.busy + s.handed; };
  const Seconds pass = std::accumulate(stages.begin(), stages.end(), Seconds(0), sum);
  for (StageTime& s : stages) s.occupied = beside_host(s.busy, host);
  stages.front().busy += beside_host(pass, host) - pass;
}

}  // namespace

PlanStageTimes::PlanStageTimes(const Case& c, const Plan& plan, AllReduceRule rule,
                               std::shared_ptr<FabricCache> cache)
    : study_(c), plan_(plan), cost_(study_.system, rule, std::move(cache)), scratch_(cost_) {
  plan_.batch = 1;
  std::vector<StageLayers> layers;
  stage_layers(study_, plan_.pp, layers);
  for (const StageLayers& s : layers) {
    const std::size_t first = kind_of_.size();
    kind_of_.insert(kind_of_.end(), static_cast<std::size_t>(s.copies), kinds_.size());
    kinds_.push_back({first, StepTable([this, first](const StepBatch& b) {
                        const Lowered& of = kernels(b);
                        return PricedStep{of.stages[first].busy, first == 0 ? of.drawn : StepEnergy{}};
                      }),
                      StepTable([this, first](const StepBatch& b) {
                        return PricedStep{kernels(b).stages[first].handed};
                      })});
  }
}

const PlanStageTimes::Lowered& PlanStageTimes::kernels(const StepBatch& batch, bool drawn) const {
  Lowered* out = &last_;
  if (batch.prompts.empty()) {
    out = &knots_[{batch.decodes, batch.cached, batch.longest}];
    if (!out->stages.empty()) return *out;
  }
  study_.batch = PlanStepTimes::batch_of(batch);
  lower(schedule_, study_, plan_);
  out->host = work_beside(study_, plan_) / static_cast<double>(plan_.in_flight);  // of one microbatch
  out->stages.clear();
  for (const StagePass& s : stage_passes(schedule_, cost_, scratch_))
    out->stages.push_back({s.busy, s.busy, s.handed});
  SL_CHECK(out->stages.size() == count(), "a lowering has the plan's stages");
  if (drawn) out->drawn = pass_energy(cost_, schedule_).all;
  if (batch.prompts.empty()) {
    if (hosts_.size() <= batch.decodes) hosts_.resize(batch.decodes + 1);
    hosts_[batch.decodes] = out->host;
  }
  return *out;
}

std::vector<StageTime> PlanStageTimes::lowered(const StepBatch& batch) const {
  const Lowered& of = kernels(batch);
  std::vector<StageTime> out = of.stages;
  add_host(out, of.host);
  return out;
}

void PlanStageTimes::of(const StepBatch& batch, std::span<StageTime> out) const { pass(batch, out); }

StepEnergy PlanStageTimes::pass(const StepBatch& batch, std::span<StageTime> out) const {
  SL_CHECK(!batch.empty() && out.size() == count(), "a step computes something in every stage");
  if (!batch.prompts.empty()) {
    const auto lowered = [&](bool drawn) {
      const Lowered& of = kernels(batch, drawn);
      std::copy(of.stages.begin(), of.stages.end(), out.begin());
      add_host(out, of.host);
      const auto sum = [](Seconds so_far, const StageTime& s) { return so_far + s.busy; };
      return PricedStep{std::accumulate(out.begin(), out.end(), Seconds(0), sum), of.drawn};
    };
    const auto timed = [&] { return lowered(false).time; };
    const auto priced = [&] { return lowered(true); };
    return power_.of(batch, 0, timed, priced).energy;
  }
  StepEnergy drawn;
  for (Kind& kind : kinds_) {
    const DecodeStretch busy = kind.busy.decode(batch);
    out[kind.first] = {busy.start, busy.start, kind.handed.decode(batch).start};
    drawn += busy.energy;
  }
  for (std::size_t s = 0; s < out.size(); ++s) out[s] = out[kinds_[kind_of_[s]].first];
  add_host(out, hosts_[batch.decodes]);
  return drawn;
}

double PlanStageTimes::largest_error() const {
  double out = 0;
  for (const Kind& k : kinds_) out = std::max({out, k.busy.largest_error(), k.handed.largest_error()});
  return out;
}

void PlanStageTimes::begin_play() {
  power_.begin_play();
  for (Kind& k : kinds_) {
    k.busy.begin_play();
    k.handed.begin_play();
  }
}

}  // namespace shardline
