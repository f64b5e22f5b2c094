#include "planner/studies/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardline {

namespace {

constexpr double kStep = 1.1;         // factor of a central difference
constexpr double kLeastShare = 0.02;  // of a bottleneck that is told of

// The band of ln(true ratio / ratio) of two times whose errors are the same fits', over the change.
Sensitivity slope(double high, double low, const ErrorTerms& high_errors, const ErrorTerms& low_errors,
                  double change) {
  const ErrorBand band = ratio_band(high_errors, low_errors, FitErrors::shared);
  const double value = std::log(high / low) / change;
  return {value, value + band.low / change, value + band.high / change};
}

// Users and GPUs are no prices: a rate is off by as much as its time, the other way.
Sensitivity of_rate(const Sensitivity& time, double value) {
  return {value, value - (time.high - time.value), value + (time.value - time.low)};
}

// Both neighbours, or one and the plan itself where the other is none.
struct Neighbours {
  std::optional<ChangedStudy> low, high;
  std::string why;
};

// Where some users wait, they do beside the changed plan, too.
std::optional<ChangedStudy> neighbour(const Study& study, const Plan& plan, Knob knob, double factor,
                                      std::string& why) {
  std::optional<ChangedStudy> out = changed(study, plan, knob, factor);
  if (!out) return out;
  const bool waits = running(study, plan) != plan;
  if (auto reason = cannot_run(out->study, waits ? running(out->study, out->plan) : out->plan)) {
    why = *reason;
    return std::nullopt;
  }
  return out;
}

Neighbours neighbours(const Study& study, const Plan& plan, Knob knob) {
  Neighbours out;
  out.low = neighbour(study, plan, knob, 1 / kStep, out.why);
  out.high = neighbour(study, plan, knob, kStep, out.why);
  if (!out.low && out.high) out.low = ChangedStudy{study, plan, 1, 1};
  if (!out.high && out.low) out.high = ChangedStudy{study, plan, 1, 1};
  return out;
}

Elasticity elasticity(Knob knob, const ChangedStudy& low, const ChangedStudy& high) {
  const PlanTimes a = times_of(low.study, low.plan, low.times),
                  b = times_of(high.study, high.plan, high.times);
  const double change = std::log(high.factor / low.factor);
  Elasticity out{knob, low.factor, high.factor, {}, std::nullopt, {}};
  out.time = slope(b.time().value, a.time().value, b.errors, a.errors, change);
  if (a.served() && b.served())
    out.ttft = slope(b.ttft.value, a.ttft.value, b.ttft_errors, a.ttft_errors, change);
  out.rate = of_rate(out.time, std::log(b.tokens_per_s_gpu / a.tokens_per_s_gpu) / change);
  return out;
}

Sensitivity scaled(const Sensitivity& s, double f) { return {s.value * f, s.low * f, s.high * f}; }

// Kernels' fixed times are changed by all rates and the time that counts [P24]; power management's time
// constant, which is no launch, is kept out of them. What is left is a part of the plan's own times.
Elasticity elasticity_of_fixed_times(const Study& study, const Plan& plan, Elasticity e) {
  const Study calm = without_throttling(study);
  const PlanTimes own = times_of(study, plan), there = times_of(calm, plan);
  if (own.time() == there.time() && own.ttft == there.ttft) return e;
  const Neighbours n = neighbours(calm, plan, e.knob);
  if (!n.low || !n.high) return e;
  Elasticity out = elasticity(e.knob, *n.low, *n.high);
  out.time = scaled(out.time, there.time() / own.time());
  if (out.ttft) out.ttft = scaled(*out.ttft, there.ttft / own.ttft);
  out.rate = of_rate(out.time, out.rate.value * (there.time() / own.time()));
  return out;
}

// Kernels by which an index chooses keys: their scores, and the highest of these (top-k).
constexpr Part kChoosingPart = Part::attention;
struct Choosing {
  Seconds scores, top_k;

  Seconds time() const { return scores + top_k; }
};

Choosing choosing_of(const Breakdown& b) {
  return {b.kinds[static_cast<std::size_t>(OpKind::index_logits)],
          b.kinds[static_cast<std::size_t>(OpKind::top_k)]};
}

// Of the kernels of a kind that a step has, the part of their time that neither bytes nor arithmetic take.
double overhead_part(Evaluator& e, OpKind kind) {
  const Schedule& s = e.schedule();
  Seconds all, overhead;
  for (std::size_t op = 0; op < s.ops.size(); ++op) {
    const auto i = static_cast<OpIndex>(op);
    if (s.ops[i].kind != kind) continue;
    const OpCost cost = e.cost().price(s.op_of_class(i, 0));
    const Seconds alone = e.cost().alone(cost);
    all += alone;
    overhead += e.cost().limit(cost) == Limit::overhead ? alone : std::min(cost.latency, alone);
  }
  return all > Seconds(0) ? overhead / all : 0;
}

// What of the choice is overhead, which is that of its part at most.
Choosing choosing_overhead(const Study& study, const SimulatedPlan& s) {
  Evaluator e(study.study, study.sweep().search.all_reduce);
  e.simulate(s.plan);
  Choosing out = choosing_of(s.breakdown);
  out.scores = out.scores * overhead_part(e, OpKind::index_logits);
  out.top_k = out.top_k * overhead_part(e, OpKind::top_k);
  const Seconds most =
      s.breakdown
          .limit_parts[static_cast<std::size_t>(Limit::overhead)][static_cast<std::size_t>(kChoosingPart)];
  if (out.time() <= most) return out;
  const double part = most / out.time();
  return {out.scores * part, out.top_k * part};
}

using PartTimes = std::array<Seconds, static_cast<std::size_t>(Part::count)>;

// Of each part of the step, what no rate shortens: its answers to the knobs that are times, T(f) = f F + W.
// Without an index's choice of keys, which is told of by itself.
PartTimes fixed_times(const Study& study, const Plan& plan) {
  const Study calm = without_throttling(study);
  const auto parts_of = [](const ChangedStudy& s) {
    Evaluator e(s.study.study, s.study.sweep().search.all_reduce);
    const Breakdown b = break_down(e, s.plan);
    PartTimes out = b.parts;
    out[static_cast<std::size_t>(kChoosingPart)] -= choosing_of(b).time();
    for (Seconds& time : out) time = time * s.times;
    return out;
  };
  PartTimes out{};
  for (const Knob knob : {Knob::latency, Knob::kernels, Knob::host}) {
    const Neighbours n = neighbours(calm, plan, knob);
    if (!n.low || !n.high) continue;
    const PartTimes low = parts_of(*n.low), high = parts_of(*n.high);
    for (std::size_t p = 0; p < out.size(); ++p)
      out[p] += (high[p] - low[p]) / (n.high->factor - n.low->factor);
  }
  return out;
}

std::string nothing_to_change(Knob knob) {
  switch (knob) {
    case Knob::links:
    case Knob::latency:
      return "the system has no links";
    case Knob::host:
      return "there are none: bare kernels run from a graph";
    case Knob::context:
      return "the plan's parts are of this context";
    default:
      return "there is nothing to change";
  }
}

const Elasticity* of_knob(const std::vector<Elasticity>& all, Knob knob) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const Elasticity& e) { return e.knob == knob; });
  return at == all.end() ? nullptr : &*at;
}

// "; 10 % more HBM bandwidth: -2.6 %". Rates are told of being higher, times of being shorter. An effect that
// even a bottleneck too small to be told of would have is told as that.
std::string effect(const std::vector<Elasticity>& all, Knob knob, const char* change) {
  const Elasticity* e = of_knob(all, knob);
  if (e == nullptr) return "";
  const double factor = knob >= Knob::latency ? 0.9 : 1.1;
  const double part = std::pow(factor, e->time.value) - 1;
  constexpr double kNothing = kLeastShare / 10;  // of a tenth more or less
  if (std::abs(part) < kNothing) return fmt::format("; {}: within {:.1f} %", change, 100 * kNothing);
  return fmt::format("; {}: {:+.1f} %", change, 100 * part);
}

std::string effect_of_limit(Limit limit, const std::vector<Elasticity>& all) {
  switch (limit) {
    case Limit::memory:
      return effect(all, Knob::hbm, "10 % more HBM bandwidth");
    case Limit::tensor:
    case Limit::exponentials:
      return effect(all, Knob::flops, "10 % more FLOP/s");
    case Limit::nvlink:
    case Limit::network:
      return effect(all, Knob::links, "10 % more link bandwidth");
    case Limit::overhead:
      return effect(all, Knob::latency, "10 % less message latency") +
             effect(all, Knob::kernels, "10 % less of kernels' fixed times") +
             effect(all, Knob::host, "10 % less host time");
  }
  return "";
}

std::string subject(Limit limit) {
  switch (limit) {
    case Limit::memory:
      return "HBM bandwidth bounds";
    case Limit::tensor:
      return "Tensor cores bound";
    case Limit::exponentials:
      return "Exponentials of softmax bound";
    case Limit::nvlink:
      return "NVLink bandwidth bounds";
    case Limit::network:
      return "Network bandwidth bounds";
    case Limit::overhead:
      return "Launches, latencies and the host bound";
  }
  return "";
}

// Without its text.
Bottleneck taken_by(const PartTimes& parts, Seconds whole, std::string name) {
  Bottleneck out;
  out.name = std::move(name);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    out.time += parts[p];
    if (parts[p] / whole >= kLeastShare / 2)
      out.parts.emplace_back(to_string(static_cast<Part>(p)), parts[p]);
  }
  std::stable_sort(out.parts.begin(), out.parts.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  out.share = out.time / whole;
  return out;
}

// "18 % of TTL (attention 15 %)".
std::string share_text(const Bottleneck& b, Seconds whole, const char* of) {
  std::string parts;
  for (const auto& [name, time] : b.parts)
    parts += fmt::format("{}{} {:.0f} %", parts.empty() ? "" : ", ", name, 100 * (time / whole));
  return fmt::format("{:.0f} % of {}{}", 100 * b.share, of, parts.empty() ? "" : " (" + parts + ")");
}

Bottleneck bottleneck(Limit limit, const PartTimes& parts, Seconds whole, const std::vector<Elasticity>& all,
                      const char* of) {
  Bottleneck out = taken_by(parts, whole, std::string(to_string(limit)));
  out.text = fmt::format("{} {}{}.", subject(limit), share_text(out, whole, of), effect_of_limit(limit, all));
  return out;
}

// What overhead holds beside fixed times: kernels that were measured take longer than the peaks of the device
// say, and do so on faster ones, too.
Bottleneck unexplained(const PartTimes& parts, Seconds whole, const char* of) {
  Bottleneck out = taken_by(parts, whole, "beyond peak rates");
  out.text = fmt::format(
      "Time of measured kernels that peak rates do not explain is {}; higher rates shorten it, too "
      "(it is in their changes).",
      share_text(out, whole, of));
  return out;
}

// An index's choice of keys beyond its bytes and arithmetic: passes over the scores, which are no launch, and
// which tables have of the whole block alone.
Bottleneck choosing(const Choosing& choice, Seconds whole, const char* of) {
  PartTimes parts{};
  parts[static_cast<std::size_t>(kChoosingPart)] = choice.time();
  Bottleneck out = taken_by(parts, whole, "choosing keys");
  out.text = fmt::format(
      "Choosing keys by an index takes {:.0f} % of {} beyond its bytes and arithmetic at peak rates (scores "
      "{:.0f} %, top-k {:.0f} %); it is in the changes of kernels' fixed times and of rates.",
      100 * out.share, of, 100 * (choice.scores / whole), 100 * (choice.top_k / whole));
  return out;
}

// Times that no resource bounds.
void add_others(const SimulatedPlan& s, const char* of, std::vector<Bottleneck>& out) {
  const Breakdown& b = s.breakdown;
  const auto add = [&](const char* name, Seconds time, std::string text) {
    if (time / b.time >= kLeastShare) out.push_back({name, time, time / b.time, {}, std::move(text)});
  };
  add("waiting for a stage", b.waiting,
      fmt::format("A microbatch waits for the slowest stage {:.0f} % of {}.", 100 * (b.waiting / b.time),
                  of));
  add("exposed communication", b.exposed_communication,
      fmt::format("Messages that nothing hides are {:.0f} % of {} (counted above by what bounds them); {}.",
                  100 * (b.exposed_communication / b.time), of,
                  b.hidden_communication > Seconds(0)
                      ? fmt::format("another {} of them is hidden behind other work",
                                    to_string(b.hidden_communication))
                      : "there are no others"));
  if (!s.served || !s.served->serves()) return;
  const double part = s.served->served.prefill_part;
  if (part >= kLeastShare)
    out.push_back(
        {"prompts of others",
         s.served->served.tpot * part,
         part,
         {},
         fmt::format("Prompts of others take {:.0f} % of TPOT; the rest is the step above.", 100 * part)});
}

}  // namespace

constexpr std::uint64_t kOfElasticity = 2;  // simulations: a little less and a little more

std::vector<Elasticity> elasticities_of(const Study& study, const Plan& plan,
                                        std::vector<NoElasticity>& without, const Advance& advance) {
  std::vector<Elasticity> out;
  for (std::size_t k = 0; k < kKnobs; ++k) {
    const auto knob = static_cast<Knob>(k);
    const Neighbours n = neighbours(study, plan, knob);
    if (n.low && n.high) {
      const Elasticity e = elasticity(knob, *n.low, *n.high);
      out.push_back(knob == Knob::kernels ? elasticity_of_fixed_times(study, plan, e) : e);
    } else {
      without.push_back({knob, n.why.empty() ? nothing_to_change(knob) : n.why});
    }
    if (advance) advance(kOfElasticity);
  }
  return out;
}

std::vector<Bottleneck> bottlenecks_of(const Study& study, const SimulatedPlan& s,
                                       const std::vector<Elasticity>& elasticities) {
  const char* of = study.study.batch.kind() == StepKind::prefill ? "TTFT"
                   : s.served                                    ? "a step that decodes"
                                                                 : "TTL";
  std::vector<Bottleneck> out;
  const Breakdown& whole = s.breakdown;
  const PartTimes fixed = fixed_times(study, s.plan);
  const Choosing choice = choosing_overhead(study, s);
  const auto add = [&](Bottleneck b) {
    if (b.share >= kLeastShare) out.push_back(std::move(b));
  };
  for (std::size_t l = 0; l < kLimits; ++l) {
    const auto limit = static_cast<Limit>(l);
    PartTimes parts = whole.limit_parts[l], rest{};
    for (std::size_t p = 0; limit == Limit::overhead && p < parts.size(); ++p) {
      const bool chooses = static_cast<Part>(p) == kChoosingPart;
      const Seconds all = std::max(Seconds(0), parts[p] - (chooses ? choice.time() : Seconds(0)));
      parts[p] = std::clamp(fixed[p], Seconds(0), all);
      rest[p] = all - parts[p];
    }
    add(bottleneck(limit, parts, whole.time, elasticities, of));
    if (limit == Limit::overhead) add(unexplained(rest, whole.time, of));
    if (limit == Limit::overhead) add(choosing(choice, whole.time, of));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Bottleneck& x, const Bottleneck& y) { return x.time > y.time; });
  add_others(s, of, out);
  return out;
}

Explanation explain(const Study& study, const Plan& plan, const std::vector<std::string>& settings,
                    const std::filesystem::path& systems, const WithSettings& with,
                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  // Turnovers end where one is found: what is left out is made up for when the part is done.
  const std::uint64_t parts[]{kKnobs * kOfElasticity, simulations_of_rivals(), system_names(systems).size()};
  const std::uint64_t total = parts[0] + parts[1] + parts[2];
  std::uint64_t done = 0, most = 0;
  const Advance advance = [&](std::uint64_t more) {
    done = std::min(done + more, most);
    if (progress) progress(done, total);
  };
  const auto begin = [&](std::size_t part) {
    done = most;
    most += parts[part];
    advance(0);
  };
  Explanation out;
  Evaluator evaluator(study.study, study.sweep().search.all_reduce);
  out.simulated = simulate_plan(study, evaluator, plan);
  if (auto note = waiting_note(out.simulated)) out.simulated.narrow.push_back(std::move(*note));
  if (out.simulated.misfit) return out;
  // Whoever waits is in its times and in what changes them. TPOT falls where fewer users run, so that by it
  // plans are compared for those who do.
  const Plan& runs = out.simulated.plan;
  const Plan& asked = out.simulated.served ? out.simulated.asked : runs;
  out.times = times_of(study, asked);
  begin(0);
  out.elasticities = elasticities_of(study, asked, out.without, advance);
  out.bottlenecks = bottlenecks_of(study, out.simulated, out.elasticities);
  begin(1);
  out.rivals = rivals_of(study, runs, asked == runs ? out.times : times_of(study, runs), advance);
  begin(2);
  out.purchases = purchases_of(study, asked, out.times, settings, systems, with, out.unmeasured, advance);
  return out;
}

}  // namespace shardline
