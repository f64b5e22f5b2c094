#include "planner/studies/played_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/serving/served.hpp"

namespace shardline {

namespace {

// Of one pool, as part of all GPUs.
struct Boards {
  const BoardPower& power;
  BoardWatts watts;
  double down = 0, share = 1;
  // Beyond what a waiting board draws.
  double above_idle() const { return watts.total() - power.idle * (1 - down); }
};

std::vector<Boards> boards_of(const Study& study, const ServiceAnswer& a) {
  const ServedLoadAnswer& load = a.load;
  const BoardPower& power = study.study.system.power;
  if (!load.pair) return {{power, load.watts, load.down}};
  const double gpus = load.pair->prefill_gpus + load.pair->decode_gpus;
  return {{power, load.watts, load.down, load.pair->decode_gpus / gpus},
          {a.question.prefill->study(study).study.system.power, load.pair->prefill_watts,
           load.pair->prefill_down, load.pair->prefill_gpus / gpus}};
}

// Kernels of one law are off together on alike boards, wherever they are.
ErrorRange laws_error(const Study& study, const ServiceAnswer& a, const std::vector<Boards>& boards,
                      double total) {
  const bool alike = !a.question.prefill || !a.question.prefill->on;
  if (alike) {
    BoardWatts all;
    for (const Boards& b : boards) all += b.watts * b.share;
    return watts_error(study.study.system.power, all);
  }
  ErrorRange out;
  for (const Boards& b : boards) {
    const ErrorRange own = watts_error(b.power, b.watts);
    const double part = b.watts.total() * b.share / total;
    out = {-std::hypot(out.low, own.low * part), std::hypot(out.high, own.high * part)};
  }
  return out;
}

ErrorRange by_squares(const ErrorRange& a, const ErrorRange& b) {
  return {-std::hypot(a.low, b.low), std::hypot(a.high, b.high)};
}

double gpus_of(const ServiceAnswer& a) {
  if (a.load.pair) return a.load.pair->prefill_gpus + a.load.pair->decode_gpus;
  return static_cast<double>(a.question.plan.gpus()) * a.question.replicas;
}

// Of the mean power of boards that draw `total`, of which `above` beyond waiting ones: of the laws, and by
// how much longer or shorter kernels run in the same time. `time` 0 to 0 where prices decide the rate:
// kernels then fill the same part of the time.
ErrorRange power_error(const ErrorRange& laws, const ErrorRange& time, double above, double total) {
  const double part = std::clamp(above / total, 0.0, 1.0);
  return by_squares(laws, {time.low * part, time.high * part});
}

void set_energy(const Study& study, const ServiceAnswer& a, PlayedCost& out) {
  const std::vector<Boards> boards = boards_of(study, a);
  const EngineProfile& engine = *study.study.engine;
  const std::optional<ErrorRange> rate = a.rate_error(engine);
  const ErrorRange time = rate ? ErrorRange{} : served_time_error(engine, a.step_errors);
  double total = 0, above = 0;
  bool known = true;
  std::vector<std::optional<CostNumber>> of_pool(boards.size());
  for (std::size_t i = 0; i < boards.size(); ++i) {
    const Boards& b = boards[i];
    const double watts = b.watts.total();
    known = known && watts > 0;
    if (!(watts > 0)) continue;
    total += watts * b.share;
    above += b.above_idle() * b.share;
    of_pool[i] = CostNumber{watts, power_error(watts_error(b.power, b.watts), time, b.above_idle(), watts)};
  }
  if (a.load.pair) {
    out.decode_watts = of_pool.front();
    out.prefill_watts = of_pool.back();
  }
  if (!known) return;
  const ErrorRange laws = laws_error(study, a, boards, total);
  out.watts = CostNumber{total, power_error(laws, time, above, total)};
  const ErrorRange energy = rate ? energy_error(laws, *rate) : out.watts->error;
  out.joules = CostNumber{total * gpus_of(a) * a.load.seconds, energy};
  if (a.load.output_per_s_gpu > 0) out.joules_per_token = CostNumber{total / a.load.output_per_s_gpu, energy};
}

std::string range(const CostNumber& n) {
  return cost_digits(n.value * (1 + n.error.low)) + " to " + cost_digits(n.value * (1 + n.error.high));
}

// Whose boards were measured, where these were not.
std::string borrowed_text(const Study& study, const ServiceAnswer& a) {
  std::string out = power_text(study.study.system);
  if (!a.question.prefill || !a.question.prefill->on) return out;
  const std::string other = power_text(a.question.prefill->on->study.system);
  return other.empty() || other == out ? out : out + other;
}

}  // namespace

BoardWatts pool_watts(const BoardPower& power, const std::vector<ServedRequests>& replicas, double seconds,
                      double down) {
  StepEnergy all;
  for (const ServedRequests& r : replicas) all += r.energy;
  return mean_watts(power, all, Seconds(seconds * static_cast<double>(replicas.size())), down);
}

PlayedCost played_cost(const Study& study, const ServiceAnswer& a) {
  PlayedCost out;
  if (!(a.load.seconds > 0)) return out;
  set_energy(study, a, out);
  if (study.gpu_hour > 0 && a.load.output_per_s_gpu > 0)
    out.per_million = CostNumber{money_per_million(study.gpu_hour, a.load.output_per_s_gpu),
                                 energy_error({}, a.rate_error(*study.study.engine).value_or(ErrorRange{}))};
  return out;
}

std::string energy_text(const Study& study, const ServiceAnswer& a) {
  const PlayedCost cost = played_cost(study, a);
  if (!cost.joules_per_token) return "";
  constexpr double kWattHour = 3600, kMany = 1000;
  const double wh = cost.joules->value / kWattHour;
  std::string out = fmt::format(
      "energy: {} J per token of answers (90 %: {}); {:.3g} {} of GPU boards, {:.0f} W each in the mean",
      cost_digits(cost.joules_per_token->value), range(*cost.joules_per_token), wh < kMany ? wh : wh / kMany,
      wh < kMany ? "Wh" : "kWh", cost.watts->value);
  if (a.load.pair)
    out += fmt::format(" ({:.0f} W where prompts are computed, {:.0f} W where they are answered)",
                       cost.prefill_watts->value, cost.decode_watts->value);
  return out + borrowed_text(study, a) + "; waiting ones too, hosts and switches not";
}

std::string money_text(const Study& study, const ServiceAnswer& a) {
  const PlayedCost cost = played_cost(study, a);
  if (!cost.per_million) return "";
  const ErrorRange& error = cost.per_million->error;
  return fmt::format("costs: {:.3g} per million tokens of answers at {:g} per GPU-hour, idle ones too{}",
                     cost.per_million->value, study.gpu_hour,
                     error.high > 0 ? " (90 %: " + range(*cost.per_million) + ")" : "");
}

}  // namespace shardline
