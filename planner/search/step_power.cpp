#include "planner/search/step_power.hpp"

#include <algorithm>
#include <cmath>

#include "hardware/cost/op_power.hpp"

namespace shardline {

namespace {

static_assert(StepEnergy::kKinds == kPowerClasses, "kernels of one law are off together");

// Of one op of each class of ranks, of which only some members may run it. Its price was asked for when the
// step was timed, and is remembered.
StepEnergy op_energy(CostModel& cost, const Schedule& s, OpIndex i) {
  StepEnergy out;
  const auto add = [&](const PricedOp& priced, double part) {
    const Seconds time = cost.alone(cost.price(priced));
    const double seconds = time.value * part;
    const auto law = static_cast<std::size_t>(power_class(priced.kind));
    out.joules[law] += op_watts(cost.system(), priced, time) * seconds;
    out.seconds += seconds;
  };
  const Op& op = s.ops[i];
  double part = 1;
  if (op.member != kEveryMember) part /= op.group.size;
  if (op.variants == kAlike) {
    add(op, part);
    return out;
  }
  for (int c = 0; c < s.classes; ++c) add(s.op_of_class(i, c), part / s.classes);
  return out;
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

PassEnergy pass_energy(CostModel& cost, const Schedule& s) {
  PassEnergy out;
  if (!cost.system().power.known()) return out;
  int stages = 0;
  for (const Stage& stage : s.stages) stages += stage.copies;
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      const StepEnergy energy = op_energy(cost, s, i) * (runs[b] / stages);
      out.all += energy;
      const Part part = s.ops[i].part;
      if (part == Part::ffn || part == Part::ffn_sum) out.shared += energy;
    }
  }
  return out;
}

BoardWatts mean_watts(const BoardPower& power, const StepEnergy& kernels, Seconds time, double off) {
  if (!power.known() || !(time > Seconds(0))) return {};
  BoardWatts out;
  for (std::size_t k = 0; k < kPowerClasses; ++k) out.kernels[k] = kernels.joules[k] / time.value;
  out.idle = power.idle * (1 - off - kernels.seconds / time.value);
  return out;
}

BoardWatts board_watts(Evaluator& evaluator, Seconds step) {
  const Schedule& s = evaluator.schedule();
  // While a step takes, all microbatches pass all stages.
  return mean_watts(evaluator.study().system.power, pass_energy(evaluator.cost(), s).all * s.in_flight, step);
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
