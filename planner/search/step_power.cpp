#include "planner/search/step_power.hpp"

#include <algorithm>
#include <cmath>

#include "hardware/cost/op_power.hpp"

namespace shardline {

namespace {

// Joules of one rank, by law, and the seconds in which its kernels run.
struct KernelEnergy {
  std::array<double, kPowerClasses> joules{};
  double seconds = 0;
};

// One op of each class of ranks, of which only some members may run it.
void add_op(CostModel& cost, const Schedule& s, OpIndex i, double runs, KernelEnergy& out) {
  const Op& op = s.ops[i];
  const auto of_class = [&](const PricedOp& priced, double part) {
    const Seconds time = cost.time(priced);
    const double seconds = time.value * part;
    const auto law = static_cast<std::size_t>(power_class(priced.kind));
    out.joules[law] += op_watts(cost.system(), priced, time) * seconds;
    out.seconds += seconds;
  };
  double part = runs;
  if (op.member != kEveryMember) part /= op.group.size;
  if (op.variants == kAlike) return of_class(op, part);
  for (int c = 0; c < s.classes; ++c) of_class(s.op_of_class(i, c), part / s.classes);
}

double square_sum_root(const std::array<double, kPowerClasses>& parts) {
  double sum = 0;
  for (const double p : parts) sum += p * p;
  return std::sqrt(sum);
}

}  // namespace

double BoardWatts::total() const {
  double sum = idle;
  for (const double k : kernels) sum += k;
  return sum;
}

BoardWatts& BoardWatts::operator+=(const BoardWatts& other) {
  for (std::size_t k = 0; k < kernels.size(); ++k) kernels[k] += other.kernels[k];
  idle += other.idle;
  return *this;
}

BoardWatts BoardWatts::operator*(double part) const {
  BoardWatts out = *this;
  for (double& k : out.kernels) k *= part;
  out.idle *= part;
  return out;
}

BoardWatts board_watts(Evaluator& evaluator, Seconds step) {
  const BoardPower& power = evaluator.study().system.power;
  if (!power.known() || !(step > Seconds(0))) return {};
  const Schedule& s = evaluator.schedule();
  const std::vector<double> runs = executions(s);
  KernelEnergy pass;  // of one microbatch through all stages
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i)
      add_op(evaluator.cost(), s, i, runs[b], pass);
  }
  int stages = 0;
  for (const Stage& stage : s.stages) stages += stage.copies;
  // While a step takes, all microbatches pass all stages.
  const double each = static_cast<double>(s.in_flight) / stages / step.value;
  BoardWatts out;
  for (std::size_t k = 0; k < kPowerClasses; ++k) out.kernels[k] = pass.joules[k] * each;
  out.idle = power.idle * (1 - pass.seconds * each);
  return out;
}

ErrorRange watts_error(const BoardPower& power, const BoardWatts& watts) {
  const double total = watts.total();
  if (!(total > 0)) return {};
  std::array<double, kPowerClasses> low{}, high{};
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    low[k] = watts.kernels[k] / total * std::expm1(power.laws[k].band.low);
    high[k] = watts.kernels[k] / total * std::expm1(power.laws[k].band.high);
  }
  return {-square_sum_root(low), square_sum_root(high)};
}

ErrorRange energy_error(const ErrorRange& watts, const ErrorRange& rate) {
  // More per second is less energy for each.
  const double less = 1 / (1 + rate.high) - 1, more = 1 / (1 + rate.low) - 1;
  return {-std::hypot(watts.low, less), std::hypot(watts.high, more)};
}

}  // namespace shardline
