#include "planner/serving/response.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardline {

double waiting_of_periodic(double rho, double users) {
  const double y = (1 - rho) * std::sqrt(users / 2);
  constexpr double kFar = 5;  // from where both agree to 2 %, and before exp(y^2) is too large
  if (y > kFar) return 1 / (2 * (1 - rho));
  return std::sqrt(std::numbers::pi * users / 8) * std::exp(y * y) * std::erfc(y);
}

Responses::Responses(const EngineProfile& engine, const ServedTimes& times, double users)
    : times_(times),
      mixes_(engine.prefill == PrefillPolicy::mixed),
      users_(users),
      most_(std::clamp(times.most, 1.0, std::max(1.0, users))),
      decode_(times.decode.value),
      path_(engine.host.path.value) {}

double Responses::most_asks() const { return most_ / times_.steps; }

// All steps of so many prompts, as many in each as it has the budget for.
double Responses::span(double prompts) const {
  if (prompts <= most_) return step(prompts) * std::min(1.0, prompts);
  return step(most_) * prompts / most_;
}

// Sum of the times at which prompts of one group are done, of a random number of them.
double Responses::completions(double prompts, double variance) const {
  if (prompts <= 0) return 0;
  const double seen = prompts + variance / prompts;  // in the group of one of them, itself among them
  if (seen <= most_) return prompts * step(seen);
  const double own = std::clamp(prompts, 1.0, most_);
  return prompts * (step(own) + step(most_) * std::max(0.0, seen - own) / (2 * most_));
}

double Responses::drain() const {
  const double whole = std::floor(users_ / most_), rest = users_ - whole * most_;
  return (whole * step(most_) + (rest > 0 ? step(rest) : 0)) * times_.at_once;
}

double Responses::burst() const {
  const double whole = std::floor(users_ / most_), rest = users_ - whole * most_;
  double sum = most_ * step(most_) * whole * (whole + 1) / 2;
  if (rest > 0) sum += rest * (whole * step(most_) + step(rest));
  // Users of all groups ask at once.
  sum *= times_.at_once;
  return path_ + sum / users_ - (mixes_ && users_ > 1 ? times_.between().value * times_.steps : 0);
}

double Responses::steady(double asks) const {
  if (users_ <= 1) return path_ + step(1);  // no step runs that it would wait for
  return mixes_ ? mixed(asks) : first(asks);
}

double Responses::admitted(double asks) const {
  if (users_ <= 1) return step(1);
  if (!mixes_) {
    // Nobody is answered while prompts are computed: those whose places came free with one step.
    const double group = 1 + asks;  // in that of one of them
    return completions(group, 0) / group;
  }
  const double together = 1 + asks, own = std::min(most_, together);
  return behind(asks, times_.steps) + step(own) + step(most_) * (together - own) / most_ / 2;
}

// Steps as they come, some with prompts: the one in which a request reaches the engine, those of prompts that
// waited before it, and its own. By steps and not by time, because requests come back when a step ends,
// however long it was.
double Responses::mixed(double asks) const {
  const double steps = times_.steps, prompts = times_.prompts;
  const double loaded = step(prompts) / steps;  // a step with prompts
  const double part = std::min(1.0, asks * steps / prompts);
  // Of a step, the part of requests on their path that is still on it at the end.
  const double on_decode = std::exp(-decode_ / path_), on_loaded = std::exp(-loaded / path_);
  const double on = part * on_loaded + (1 - part) * on_decode;
  const double found = (part * loaded + (1 - part) * decode_) / (1 - on);  // Wald: to the end of that step
  const double found_loaded = part * (1 - on_loaded) / (1 - on);
  const double on_path = asks / (1 - on);
  const double in_loaded = on_path * (1 - on_loaded), in_decode = on_path * (1 - on_decode);
  const double together = 1 + found_loaded * in_loaded + (1 - found_loaded) * in_decode;
  // Behind each other in loaded steps that follow each other: as many come in each of them as in any step,
  // unless paths are longer than they are.
  const double come = on_loaded * in_loaded + (1 - on_loaded) * asks;
  const double own = std::min(most_, together);
  return found + behind(come, steps) + step(own) + step(most_) * (together - own) / most_ / 2;
}

// Steps of prompts that waited before, as in a queue with so many arrivals a step: exactly where a step has
// one prompt, else Lq of M/D/c by H. Sakasegawa (Ann. Inst. Stat. Math. 29, 1977), which is that of a step
// with c at a time.
double Responses::behind(double asks, double steps) const {
  const double rho = std::min(1.0, asks * steps / most_);
  const double waiting = waiting_of_periodic(rho, users_);
  if (most_ <= 1) return rho * (steps - 1 + rho) * waiting * step(1) / steps;
  return std::pow(rho, std::sqrt(2 * (most_ + 1))) * waiting * step(most_) / most_;
}

// Prompts stop decoding, so that nobody comes back until none is left. Between the two limits of short paths,
// which all end while prompts are computed, and of long ones by the part that is still under way.
double Responses::first(double asks) const {
  const double prompts = times_.prompts, loaded = step(prompts);
  const double part = asks / prompts / (1 + asks / prompts);
  const double on_decode = std::exp(-decode_ / path_), on_loaded = std::exp(-loaded / path_);
  const double on = part * on_loaded + (1 - part) * on_decode;
  const double found = (part * loaded + (1 - part) * decode_) / (1 - on);
  const double found_loaded = part * (1 - on_loaded) / (1 - on);
  const double on_path = asks / (1 + asks / prompts) / (1 - on);
  const double in_loaded = on_path * (1 - on_loaded), in_decode = on_path * (1 - on_decode);
  const double together = 1 + found_loaded * in_loaded + (1 - found_loaded) * in_decode;
  const double own = std::min(most_, together);
  const double long_paths =
      found + behind(in_loaded, 1) + step(own) + step(most_) * (together - own) / most_ / 2;
  return on_loaded * long_paths + (1 - on_loaded) * busy_periods(asks);
}

// Steps decode until a request reaches the engine in one of them, the i-th; then all prompts under way are
// computed, those that come back with that step behind the others. Means over i, by the prompts of each.
double Responses::busy_periods(double asks) const {
  constexpr int kMostSteps = 400;
  constexpr double kSteady = 1e-3;  // of requests on their path: from then on nothing changes
  const double arrive = -std::expm1(-decode_ / path_);
  double none = 1, answered = 0, responses = 0, waited = 0;
  double left = 1;  // of those who came back i - 2 steps ago, the part that is still on its path
  for (int i = 2; i < kMostSteps; ++i) {
    waited += asks * left * (i - 1) * decode_;
    left *= 1 - arrive;
    const double on_path = asks * (1 - left) / arrive;
    const double somebody = -std::expm1(-arrive * on_path);
    const bool steady = left < kSteady;
    const double weight = steady ? none : none * somebody;
    const double reached = arrive * on_path / somebody;  // at least one
    const double variance = std::max(0.0, reached * (1 + arrive * on_path) - reached * reached);
    const double staying = on_path * (1 - arrive), later = staying + asks;
    responses += weight * (waited * (reached + staying) / on_path + completions(reached, variance) +
                           later * span(reached) + completions(later, later));
    answered += weight * (reached + later);
    none *= 1 - somebody;
    if (steady || none < 1e-6) break;
  }
  return responses / answered;
}

}  // namespace shardline
