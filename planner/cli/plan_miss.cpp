#include "planner/cli/plan_miss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/titles.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

constexpr int kDigits = 3;  // of times; intervals are wider than the third

std::string signed_percent(double part) {
  const bool fine = std::abs(part) < 0.01 || (part < -0.99 && part > -1);  // of 1 % and of all, no whole one
  return fmt::format("{:+.{}f} %", 100 * part, fine ? 1 : 0);
}

// "2 copies of 4 GPUs".
std::string copies_text(const PlannedPoint& p) {
  return fmt::format("{} cop{} of {}", p.copies, p.copies == 1 ? "y" : "ies", gpus_text(p.point.plan.gpus()));
}

// How many GPUs would carry the rate, where a system has too few: of copies of the plan that carries most.
std::string beyond_system_text(const PlanAnswer& a) {
  const PlannedPoint& p = a.plans.front();
  PlannedPoint all = p;
  all.copies = static_cast<long long>(
      std::ceil(a.question.rate * static_cast<double>(p.copies) / p.most_per_s * (1 - 1e-9)));
  const System& system = a.study.study.system;
  const long long gpus = all.copies * p.point.plan.gpus();
  const std::string those = fmt::format("{} would, {} GPUs", copies_text(all), scenario_parts::grouped(gpus));
  if (gpus <= system.gpus()) return "; " + those;
  return fmt::format("; nor do all {} GPUs of {}: {}", system.gpus(), system.name, those);
}

std::string carried_text(const WiderPlan& w) {
  return fmt::format("; {} GPUs: {} by {} carry {}/s", w.gpus, to_string(w.best.point.plan),
                     copies_text(w.best), three_digits(w.best.most_per_s));
}

// A rate that the GPUs do not carry: how far they come, and whether a target or saturation ends it.
std::string too_few_text(const PlanAnswer& a) {
  const PlannedPoint& p = a.plans.front();
  const std::string target = target_text(a.question);
  std::string out = fmt::format("no plan on {} carries {}{}; the nearest: {}/s ({}) by {}",
                                gpus_text(a.defaults.most_gpus), rate_text(a.question.rate),
                                target.empty() ? "" : " with " + target, three_digits(p.most_per_s),
                                signed_percent(p.most_per_s / a.question.rate - 1), copies_text(p));
  double limit = 0;
  for (const PlannedPoint& other : a.plans) limit = std::max(limit, other.limit_per_s);
  out += limit < a.question.rate
             ? fmt::format("; saturated at {}/s, whatever the number of users", three_digits(limit))
             : fmt::format("; beyond that the target is missed, up to {}/s", three_digits(limit));
  if (a.pools) out += "; separate pools carry it";
  if (!a.wider) return out + beyond_system_text(a);
  return out + carried_text(*a.wider);
}

// "429,000" of 428,856.3.
std::string three_digits_grouped(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return count(static_cast<std::uint64_t>(std::llround(value / unit) * std::llround(unit)));
}

ErrorRange time_off(const PlanAnswer& a, const PlannedPoint& p) {
  const bool fitted = !a.study.study.system.calibration.empty();
  return fitted ? plan_time_error(a.study, p.rating.errors)
                : time_error(ErrorTerms(kAssumedSource, kAssumedBand));
}

// To kDigits, so that the plan keeps it where it is asked for.
Seconds rounded_up(Seconds time) {
  const double unit = std::pow(10.0, std::floor(std::log10(time.value)) - (kDigits - 1));
  return Seconds(std::ceil(time.value / unit * (1 - 1e-12)) * unit);
}

// Times of a plan: of one that misses what it misses by most, of one that meets all targets all of them.
std::string found_text(const PlanAnswer& a, const PlannedPoint& p) {
  const auto said = [](const std::string& what, Seconds time, const std::string& range) {
    return fmt::format("{} {} (90 %: {})", what, to_string(time, kDigits), range);
  };
  const Miss beyond = miss_of(a, p.point);
  const Seconds whole = time_with_path(a, p.point);
  const double steps = p.point.time / whole;  // what prices may be off; the path is the engine's
  const ErrorRange off = time_off(a, p);
  std::string found = said(time_name(a), whole, range_text({steps * off.low, steps * off.high}));
  if (served(a) && a.asked.most_ttft > Seconds(0)) {
    const std::string first = said("TTFT", p.point.ttft, ttft_range(a, p));
    found = beyond.what == "TTFT" ? first : beyond.what.empty() ? found + ", " + first : found;
  }
  return found + " by " + to_string(p.point.asked());
}

// What more GPUs give of a question without a rate that some carry.
std::string wider_text(const PlanAnswer& a) {
  const WiderPlan& w = *a.wider;
  const bool carries = w.best.most_per_s > 0;
  if (carries && w.best.meets) return carried_text(w);
  if (carries)
    return fmt::format("; nor do all {} GPUs of {} carry {}: {}/s ({}) by {}", w.most,
                       a.study.study.system.name, rate_text(a.question.rate), three_digits(w.best.most_per_s),
                       signed_percent(w.best.most_per_s / a.question.rate - 1), copies_text(w.best));
  if (w.best.meets) return fmt::format("; {} GPUs: {}", w.gpus, found_text(a, w.best));
  // Where the GPUs that were asked for have a plan, more of them are worth a word only if they come nearer.
  const auto rank = [&](const PlannedPoint& p) {
    return std::pair(some_wait(a, p.point), miss_of(a, p.point).part);
  };
  if (!a.plans.empty() && rank(w.best) >= rank(a.plans.front()))
    return fmt::format("; nor does any on up to {} GPUs, none of which comes nearer", w.most);
  const bool more = !a.plans.empty() && some_wait(a, a.plans.front().point) && !some_wait(a, w.best.point);
  return fmt::format("; none on up to {} GPUs meets {}, the nearest of these {}on {}: {}", w.most,
                     target_text(a.question), more ? "that serves all users at once " : "", w.gpus,
                     found_text(a, w.best));
}

// "; nvidia/Llama-3.1-405B-Instruct-FP8 fits: TPOT 21 ms (...) by ...".
std::string narrower_text(const PlanAnswer& a) {
  const PlanAnswer& other = *a.narrower;
  const char* does = !a.plans.empty()                         ? "meets it on these"
                     : other.met || !other.asked.has_target() ? "fits"
                                                              : "fits and misses the target";
  return fmt::format("; {} {}: {}", other.question.model, does, found_text(other, other.plans.front()));
}

}  // namespace

bool served(const PlanAnswer& a) { return workload_of(a.study) != nullptr; }

std::string time_name(const PlanAnswer& a) {
  return a.question.prefill() ? "TTFT" : served(a) ? "TPOT" : "TTL";
}

std::string time_range(const PlanAnswer& a, const PlannedPoint& p) {
  const ErrorRange off = time_off(a, p);
  const double steps = p.point.time / time_with_path(a, p.point);  // the request path is not off with them
  return range_text({steps * off.low, steps * off.high});
}

std::string ttft_range(const PlanAnswer& a, const PlannedPoint& p) {
  const auto range = ttft_error(a.study, p.point, p.ttft);
  return range ? ttft_range_text(range) : "by an error that was not measured";
}

long long waiting_of(const PlanAnswer& a, const PlannedPoint& p) {
  const long long waiting = p.point.all_waiting();
  const long long full = (users_of(a.study.study, p.point.plan) + waiting) * p.copies;
  return waiting * p.copies - (full - static_cast<long long>(a.users_of(p)));
}

std::string excess_text(double part) {
  return part < 100 ? signed_percent(part) : fmt::format("{} times as much", three_digits_grouped(1 + part));
}

namespace {

// Which of the nearest it is where some of the users wait: theirs is a short TPOT, as few run.
std::string nearest_text(const PlanAnswer& a) {
  const PlannedPoint& first = a.plans.front();
  if (some_wait(a, first.point)) return "the nearest";
  const bool shorter = std::any_of(a.plans.begin(), a.plans.end(), [&](const PlannedPoint& p) {
    return some_wait(a, p.point) && miss_of(a, p.point).part < miss_of(a, first.point).part;
  });
  return shorter ? "the nearest that serves all users at once" : "the nearest";
}

std::string waiting_text(const PlanAnswer& a) {
  const PlannedPoint& first = a.plans.front();
  return some_wait(a, first.point)
             ? fmt::format(", {} of {} users wait", count(static_cast<std::uint64_t>(waiting_of(a, first))),
                           count(static_cast<std::uint64_t>(a.users_of(first))))
             : "";
}

}  // namespace

std::string miss_text(const PlanAnswer& a) {
  const std::string exact = a.question.prefill() ? "exact " : "";
  const std::string both = a.pools ? " for prompts and answers together" : "";
  std::string out;
  if (a.plans.empty()) {
    out = fmt::format("no {}plan{} fits {}", exact, both, gpus_text(a.defaults.most_gpus));
  } else {
    if (a.question.rate > 0 && a.plans.front().most_per_s > 0) return too_few_text(a);
    const Miss miss = miss_of(a, a.plans.front().point);
    const bool in_tokens = a.question.tokens_per_user > 0 && miss.what != "TTFT";
    out = fmt::format("no {}plan{} meets {}; {}: {} {}{} ({}{})", exact, both, target_text(a.question),
                      nearest_text(a), miss.what, to_string(rounded_up(miss.time), kDigits),
                      in_tokens ? fmt::format(", {} tokens/s/user", three_digits(1 / miss.time.value)) : "",
                      excess_text(miss.part), waiting_text(a));
  }
  if (a.pools) out += "; separate pools do";
  if (a.narrower) out += narrower_text(a);
  return a.wider ? out + wider_text(a) : out;
}

}  // namespace shardline::cli
