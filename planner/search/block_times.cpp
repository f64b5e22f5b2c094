#include "planner/search/block_times.hpp"

#include <bit>

namespace shardline {

namespace {

constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;

}  // namespace

std::size_t KnownBlocks::ViewHash::operator()(const View& v) const {
  std::uint64_t hash = static_cast<std::uint64_t>(v.block.kind);
  const auto mix = [&](int i) { hash = (hash ^ static_cast<std::uint32_t>(i)) * kMix + (hash >> 29); };
  mix(v.block.index);
  mix(static_cast<int>(v.plan.strategy));
  for (const DegreeField& degree : kDegrees) mix(v.plan.*degree.member);
  for (const OptionValues::Value& option : v.plan.options.all()) mix(option.value);
  return hash;
}

std::uint64_t KnownBlocks::id(const View& view) {
  const std::lock_guard lock(mutex_);
  if (slots_.empty()) slots_ = std::vector<Slot>(std::size_t{1} << kBits);
  return ids_.emplace(view, ids_.size() + 1).first->second;
}

// Batches of one view lie side by side, both kinds of each together.
std::size_t KnownBlocks::place(std::uint64_t id, int batch, Kind kind) const {
  const std::uint64_t first = id * kMix >> (64 - kBits);
  return (first + 2 * static_cast<std::uint32_t>(batch) + static_cast<std::size_t>(kind)) &
         (slots_.size() - 1);
}

std::optional<double> KnownBlocks::find(std::uint64_t id, int batch, Kind kind) const {
  const Slot& slot = slots_[place(id, batch, kind)];
  const std::uint64_t value = slot.value.load(std::memory_order_relaxed);
  if ((slot.mixed.load(std::memory_order_relaxed) ^ value) != key_of(id, batch, kind)) return std::nullopt;
  return std::bit_cast<double>(value);
}

void KnownBlocks::keep(std::uint64_t id, int batch, Kind kind, double seconds) {
  Slot& slot = slots_[place(id, batch, kind)];
  const auto value = std::bit_cast<std::uint64_t>(seconds);
  slot.value.store(value, std::memory_order_relaxed);
  slot.mixed.store(key_of(id, batch, kind) ^ value, std::memory_order_relaxed);
}

BlockTimes::BlockTimes(Evaluator& evaluator, std::shared_ptr<KnownBlocks> known)
    : evaluator_(evaluator), scratch_(evaluator.cost()), known_(std::move(known)) {}

void BlockTimes::start(const Plan& plan) {
  const Case& c = evaluator_.study();
  plan_ = plan;
  in_blocks_ = has_views(plan);
  if (!in_blocks_) return;
  plan_.batch = least_batch(c, plan);
  // Which blocks run, and how often, does not depend on the batch.
  lower(whole_, c, plan_);
  // Ops beside the blocks that follow outlast their own.
  in_blocks_ = !whole_.detached;
  if (!in_blocks_) return;
  if (!known_) known_ = std::make_shared<KnownBlocks>();
  makespans_.resize(whole_.blocks.size());
  plan_.batch = 1;
  parts_.clear();
  step_blocks(c, plan, blocks_);
  for (const StepBlock block : blocks_) {
    Part& part = parts_.emplace_back(Part{block, block_view(c, plan_, block)});
    KnownBlocks::View view{block, part.view};
    view.plan.batch = 0;
    part.id = known_->id(view);
  }
}

Seconds BlockTimes::time(Kind kind, int batch) {
  plan_.batch = batch;
  if (!in_blocks_) {
    return kind == Kind::bound ? evaluator_.bound(plan_) : evaluator_.simulate(plan_);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) makespans_[i] = block_time(kind, parts_[i], batch);
  return token_time(whole_, add_up(whole_, makespans_));
}

double BlockTimes::block_time(Kind kind, const Part& part, int batch) {
  Plan view = part.view;
  view.batch *= batch;  // several groups together have more
  if (const auto known = known_->find(part.id, view.batch, kind)) return *known;
  ScheduleBuilder builder(block_);
  add_block(builder, evaluator_.study(), view, part.block);
  const Block& block = block_.blocks.front();
  CostModel& cost = evaluator_.cost();
  const double time = kind == Kind::bound ? bound_block(block_, block, cost, scratch_)
                                          : simulate_block(block_, block, cost, scratch_);
  known_->keep(part.id, view.batch, kind, time);
  return time;
}

}  // namespace shardline
