#include "planner/search/block_times.hpp"

#include <algorithm>

#include "planner/layers/drafts.hpp"
#include "planner/layers/host_work.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;

}  // namespace

std::size_t KnownBlocks::ViewHash::operator()(const View& v) const {
  std::uint64_t hash = static_cast<std::uint64_t>(v.block.kind);
  const auto mix = [&](int i) { hash = (hash ^ static_cast<std::uint32_t>(i)) * kMix + (hash >> 29); };
  mix(v.block.index);
  mix((v.block.draft ? 1 : 0) + (v.block.module ? 2 : 0));
  mix(static_cast<int>(v.plan.strategy));
  mix(v.plan.batch);
  for (const DegreeField& degree : kDegrees) mix(v.plan.*degree.member);
  for (const OptionValues::Value& option : v.plan.options.all()) mix(option.value);
  return hash;
}

bool KnownBlocks::Times::read(Kind kind, std::size_t first, std::span<double> out) const {
  const std::lock_guard lock(mutex_);
  const std::vector<double>& all = times_[static_cast<std::size_t>(kind)];
  bool complete = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = first + i < all.size() ? all[first + i] : kUnknown;
    complete = complete && out[i] >= 0;
  }
  return complete;
}

void KnownBlocks::Times::write(Kind kind, std::size_t first, std::span<const double> times) {
  const std::lock_guard lock(mutex_);
  std::vector<double>& all = times_[static_cast<std::size_t>(kind)];
  if (all.size() < first + times.size()) all.resize(first + times.size(), kUnknown);
  std::copy(times.begin(), times.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
}

BlockTimes::BlockTimes(Evaluator& evaluator, std::shared_ptr<KnownBlocks> known)
    : evaluator_(evaluator), known_(std::move(known)), scratch_(evaluator.cost()) {}

void BlockTimes::start(const Plan& plan) {
  const Case& c = evaluator_.study();
  plan_ = plan;
  in_blocks_ = has_views(plan);
  if (!in_blocks_) return;
  // Which blocks run, and how often, does not depend on the batch.
  build_program(program_, c, plan);
  step_blocks(c, plan, blocks_);
  parts_.clear();
  plan_.batch = 1;
  for (const StepBlock block : blocks_) {
    Part& part = parts_.emplace_back(Part{block, block_view(c, plan_, block)});
    const auto detached = [&] {
      lower_view(part, least_batch(c, plan));
      return block_.detached;
    };
    part.times = &known_->of({block, part.view}, detached);
    in_blocks_ = in_blocks_ && !part.times->detached();
  }
}

std::span<const double> BlockTimes::times(Kind kind, std::size_t first, std::size_t last) {
  times_.resize(last - first);
  // From the first batch on that is in no graph of the engine, the host starts kernels beside the blocks.
  std::size_t count = in_blocks_ ? times_.size() : 0;
  const auto eager = [&](std::size_t i) {
    plan_.batch = known_->batches()[first + i];
    return host_starts(evaluator_.study(), plan_) != HostStarts::graph;
  };
  while (count > 0 && eager(count - 1)) --count;
  for (std::size_t i = count; i < times_.size(); ++i) {
    plan_.batch = known_->batches()[first + i];
    times_[i] = (kind == Kind::bound ? evaluator_.bound(plan_) : evaluator_.simulate(plan_)).value;
  }
  if (count == 0) return times_;
  makespans_.resize(parts_.size() * count);
  for (std::size_t p = 0; p < parts_.size(); ++p)
    block_times(kind, parts_[p], first, std::span(makespans_).subspan(p * count, count));
  token_times(program_, makespans_, std::span(times_).first(count));
  const double yielded = tokens_per_step(evaluator_.study(), plan_);
  for (std::size_t i = 0; i < count; ++i) {
    plan_.batch = known_->batches()[first + i];
    const Seconds step = beside_host(Seconds(times_[i]), work_beside(evaluator_.study(), plan_));
    times_[i] = (step / yielded).value;
  }
  return times_;
}

void BlockTimes::block_times(Kind kind, const Part& part, std::size_t first, std::span<double> out) {
  if (part.times->read(kind, first, out)) return;
  CostModel& cost = evaluator_.cost();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= 0) continue;
    check_cancelled();
    const Block& block = lower_view(part, known_->batches()[first + i]);
    out[i] = kind == Kind::bound ? bound_block(block_, block, cost, scratch_)
                                 : simulate_block(block_, block, cost, scratch_);
  }
  part.times->write(kind, first, out);
}

const Block& BlockTimes::lower_view(const Part& part, int batch) {
  Plan view = part.view;
  view.batch *= batch;  // several groups together have more
  ScheduleBuilder builder(block_);
  add_block(builder, evaluator_.study(), view, part.block);
  return block_.blocks.front();
}

}  // namespace shardline
