#include "planner/search/block_times.hpp"

namespace shardline {

namespace {

constexpr int kKnownBits = 19;
constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;

}  // namespace

std::size_t BlockTimes::ViewHash::operator()(const View& v) const {
  std::uint64_t hash = static_cast<std::uint64_t>(v.block);
  const auto mix = [&](int i) { hash = (hash ^ static_cast<std::uint32_t>(i)) * kMix + (hash >> 29); };
  mix(static_cast<int>(v.plan.strategy));
  for (const DegreeField& degree : kDegrees) mix(v.plan.*degree.member);
  for (const OptionValues::Value& option : v.plan.options.all()) mix(option.value);
  return hash;
}

BlockTimes::BlockTimes(Evaluator& evaluator) : evaluator_(evaluator), scratch_(evaluator.cost()) {}

void BlockTimes::start(const Plan& plan) {
  const Case& c = evaluator_.study();
  plan_ = plan;
  in_blocks_ = has_views(plan);
  if (!in_blocks_) return;
  plan_.batch = least_batch(plan);
  // Which blocks run, and how often, does not depend on the batch.
  lower(whole_, c, plan_);
  // Ops beside the blocks that follow outlast their own.
  in_blocks_ = !whole_.detached;
  if (!in_blocks_) return;
  if (known_.empty()) known_.resize(std::size_t{1} << kKnownBits);
  makespans_.resize(whole_.blocks.size());
  plan_.batch = 1;
  parts_.clear();
  for (const StepBlock block : step_blocks(c, plan)) {
    Part& part = parts_.emplace_back(Part{block, block_view(plan_, block)});
    View view{block, part.view};
    view.plan.batch = 0;
    part.id = ids_.emplace(std::move(view), ids_.size()).first->second;
  }
}

Seconds BlockTimes::time(Kind kind, int batch) {
  plan_.batch = batch;
  if (!in_blocks_) {
    if (kind == Kind::floor) return evaluator_.floor(plan_);
    return kind == Kind::bound ? evaluator_.bound(plan_) : evaluator_.simulate(plan_);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) makespans_[i] = block_time(kind, parts_[i], batch);
  return token_time(whole_, add_up(whole_, makespans_));
}

double BlockTimes::block_time(Kind kind, const Part& part, int batch) {
  const int own = part.view.batch * batch;  // several groups together have more
  const std::uint64_t key = part.id << 32 | static_cast<std::uint32_t>(own);
  // Batches of one view lie side by side.
  Known& known =
      known_[((part.id * kMix >> (64 - kKnownBits)) + static_cast<std::uint32_t>(own)) & (known_.size() - 1)];
  if (known.key != key) {
    known.key = key;
    known.times.fill(kUnknown);
  }
  double& time = known.times[static_cast<std::size_t>(kind)];
  if (time != kUnknown) return time;
  Plan view = part.view;
  view.batch = own;
  ScheduleBuilder builder(block_);
  add_block(builder, evaluator_.study(), view, part.block);
  const Block& block = block_.blocks.front();
  CostModel& cost = evaluator_.cost();
  if (kind == Kind::floor) time = floor_block(block_, block, cost, scratch_);
  if (kind == Kind::bound) time = bound_block(block_, block, cost, scratch_);
  if (kind == Kind::simulated) time = simulate_block(block_, block, cost, scratch_);
  return time;
}

}  // namespace shardline
