#include "planner/serving/plan_steps.hpp"

#include <algorithm>

#include "planner/layers/drafts.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/search/step_power.hpp"
#include "planner/serving/plan_stages.hpp"
#include "planner/serving/prompt_power.hpp"
#include "sim/base/error.hpp"

namespace shardline {

struct PlanStepTimes::Lowering {
  Lowering(const Case& c, const Plan& p, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
      : study(c), plan(p), evaluator(study, rule, std::move(cache)) {
    plan.batch = 1;
  }
  Case study;
  Plan plan;
  Evaluator evaluator;
  PromptPower power;
};

PlanStepTimes::PlanStepTimes(const Case& c, const Plan& plan, AllReduceRule rule,
                             std::shared_ptr<FabricCache> cache)
    : lowering_(std::make_unique<Lowering>(c, plan, rule, cache)),
      table_([this](const StepBatch& step) { return lowered_priced(batch_of(step)); }) {
  if (plan.pp > 1) stages_ = std::make_unique<PlanStageTimes>(c, plan, rule, std::move(cache));
}

PlanStepTimes::~PlanStepTimes() = default;

const StageTimes* PlanStepTimes::stages() const { return stages_.get(); }

PlanStepTimes::Effort PlanStepTimes::effort() const {
  Effort out{lowered_, table_.cells(), table_.largest_error()};
  if (stages_) out.largest_error = std::max(out.largest_error, stages_->largest_error());
  return out;
}

void PlanStepTimes::begin_play() {
  table_.begin_play();
  lowering_->power.begin_play();
  if (stages_) stages_->begin_play();
}

Seconds PlanStepTimes::lowered(const Batch& batch, const std::optional<GroupRows>& groups) const {
  ++lowered_;
  Lowering& l = *lowering_;
  l.study.batch = batch;
  l.study.groups = groups;
  // The whole step: an evaluator's times are of a token, of which one with drafts yields several.
  return l.evaluator.simulate(with_both_halves(l.study, l.plan)) * tokens_per_step(l.study, l.plan);
}

PricedStep PlanStepTimes::lowered_priced(const Batch& batch, const std::optional<GroupRows>& groups) const {
  const Seconds time = lowered(batch, groups);
  Evaluator& e = lowering_->evaluator;
  const PassEnergy of_pass = pass_energy(e.cost(), e.schedule());
  const double passes = e.schedule().in_flight;  // all microbatches pass in a step
  return {time, of_pass.all * passes, of_pass.shared * passes};
}

Batch PlanStepTimes::batch_of(const StepBatch& step) {
  Batch out;
  const std::uint64_t others = step.decodes > 1 ? step.decodes - 1 : 0;
  if (step.decodes > 0) {
    out.decode.push_back({static_cast<long long>(step.longest), 1, 1});
    const std::uint64_t rest = step.cached > step.longest ? step.cached - step.longest : 0;
    const std::uint64_t each = others > 0 ? rest / others : 0, longer = others > 0 ? rest % others : 0;
    if (longer > 0) out.decode.push_back({static_cast<long long>(each + 1), 1, static_cast<int>(longer)});
    if (others > longer)
      out.decode.push_back({static_cast<long long>(each), 1, static_cast<int>(others - longer)});
    if (out.decode.size() == 2 && out.decode[0].cached == out.decode[1].cached) {
      out.decode[0].count += out.decode[1].count;
      out.decode.pop_back();
    }
  }
  for (const PromptPart& p : step.prompts) {
    const Segment part{p.past, p.tokens, 1};
    const auto same = std::find_if(out.prefill.begin(), out.prefill.end(), [&](const Segment& s) {
      return s.cached == part.cached && s.fresh == part.fresh;
    });
    if (same != out.prefill.end())
      ++same->count;
    else
      out.prefill.push_back(part);
  }
  return out;
}

DecodeStretch PlanStepTimes::decode(const StepBatch& batch) const { return table_.decode(batch); }

Seconds PlanStepTimes::of(const StepBatch& batch) const {
  SL_CHECK(!batch.empty(), "a step computes something");
  return batch.prompts.empty() ? decode(batch).start : lowered(batch_of(batch));
}

PricedStep PlanStepTimes::priced(const StepBatch& batch) const {
  SL_CHECK(!batch.empty(), "a step computes something");
  if (batch.prompts.empty()) {
    const DecodeStretch line = decode(batch);
    return {line.start, line.energy};
  }
  const Batch whole = batch_of(batch);
  const auto timed = [&] { return lowered(whole); };
  return lowering_->power.of(batch, 0, timed, [&] { return lowered_priced(whole); });
}

Seconds PlanStepTimes::of_group(std::span<const StepBatch* const> groups, std::size_t which) const {
  return lowered(batch_of(*groups[which]), rows_of(groups, which));
}

PricedStep PlanStepTimes::priced_group(std::span<const StepBatch* const> groups, std::size_t which) const {
  const GroupRows all = rows_of(groups, which);
  const Batch whole = batch_of(*groups[which]);
  const auto timed = [&] { return lowered(whole, all); };
  const auto rows = static_cast<std::uint64_t>(all.rows);
  return lowering_->power.of(*groups[which], rows, timed, [&] { return lowered_priced(whole, all); });
}

GroupRows PlanStepTimes::rows_of(std::span<const StepBatch* const> groups, std::size_t which) const {
  GroupRows all;
  for (const StepBatch* b : groups) {
    const Count rows = b->decodes * new_tokens(lowering_->plan) + static_cast<Count>(b->prompt_tokens());
    all.rows += rows;
    all.most = std::max(all.most, rows);
    all.decodes += b->decodes;
    all.prompts += std::ssize(b->prompts);
    all.busiest = std::max<Count>(all.busiest, b->decodes + std::ssize(b->prompts));
  }
  SL_CHECK(all.prompts > 0 && !groups[which]->empty(), "a group computes something, and some group prompts");
  Lowering& l = *lowering_;
  l.study.batch = batch_of(*groups[which]);
  set_groups(l.study, l.plan, all);
  return *l.study.groups;
}

}  // namespace shardline
