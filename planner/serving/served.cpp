#include "planner/serving/served.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/serving/equal_loop.hpp"
#include "planner/serving/response.hpp"

namespace shardline {

namespace {

// Steps of a request after the one that ends its prefill.
double decode_steps(const ServedLoad& load) { return std::max(1.0, load.output - 1); }

// Whether users stay in step for ever: who was prefilled together comes back together, and nobody else has
// moved meanwhile.
bool in_step(const EngineProfile& engine, const ServedLoad& load) {
  return engine.prefill == PrefillPolicy::first && load.equal_lengths;
}

// How often others ask while a token takes, of the cycle R + m T of n users, in which T = D + asks W: of
// (n - 1) T = asks (R + m T).
double asks_of(double n, double m, double decode, double added, double response) {
  const double b = response + m * decode - (n - 1) * added, c = (n - 1) * decode;
  // Of the two forms of the root the one that adds.
  const double root = std::sqrt(b * b + 4 * m * added * c);
  return b > 0 ? 2 * c / (b + root) : (root - b) / (2 * m * added);
}

// Users who drift apart: as many requests are answered as come, at the mean response of so many.
double steady_asks(double n, double m, double decode, double added, bool mixes, double most,
                   const std::function<double(double)>& response_to) {
  if (n <= 1) return 0;
  if (!mixes) {
    // While prompts are computed nobody comes back, so that the response hardly moves the answer.
    double response = response_to(asks_of(n, m, decode, added, 0));
    for (int i = 0; i < 8; ++i)
      response = (response + response_to(asks_of(n, m, decode, added, response))) / 2;
    return asks_of(n, m, decode, added, response);
  }
  double low = 0, high = std::min((n - 1) / m, most);
  for (int i = 0; i < 40; ++i) {
    const double asks = (low + high) / 2;
    const double tpot = decode + asks * added;
    (asks * (response_to(asks) + m * tpot) < (n - 1) * tpot ? low : high) = asks;
  }
  return low;
}

// Prices and engine err apart from each other: by squares.
ErrorRange by_squares(const ErrorRange& prices, const ErrorBand& engine) {
  return {std::expm1(-std::hypot(std::log1p(prices.low), engine.low)),
          std::expm1(std::hypot(std::log1p(prices.high), engine.high))};
}

}  // namespace

ErrorRange served_time_error(const EngineProfile& engine, const ErrorTerms& step) {
  if (engine.error.rows == 0) return time_error(step);
  const ErrorRange prices = time_error(step.without(kHostSource));  // the host's is the engine's
  return by_squares(prices, engine.error.tpot);
}

std::optional<ErrorRange> served_ttft_error(const EngineProfile& engine, bool equal_lengths, double users,
                                            const ErrorTerms& step) {
  const ServedBand measured = engine.error.ttft(equal_lengths, users);
  if (measured.rows == 0) return std::nullopt;
  return by_squares(time_error(step.without(kHostSource)), measured.band);
}

ErrorRange served_rate_error(const EngineProfile& engine, const ErrorTerms& step) {
  const ErrorRange time = served_time_error(engine, step);
  return {1 / (1 + time.high) - 1, 1 / (1 + time.low) - 1};
}

Seconds ServedTimes::prompt_of(double k) const {
  const auto between = [&](double from, Seconds low, double to, Seconds high) {
    return low + (high - low) * ((std::max(k, from) - from) / (to - from));
  };
  if (k > prompts && most > prompts) return between(prompts, prompt, most, full);
  return prompts > 1 ? between(1, alone, prompts, prompt) : prompt;
}

ServedTimes ServedTimes::spread(double share) const {
  if (groups <= 1) return *this;
  const double others = groups - 1, none = std::pow(1 - share, others), with_prompts = others * share;
  // Each further group with prompts adds as much.
  const Seconds one_more = std::max(Seconds(0), prompt - prompt_one) / others;
  ServedTimes out = *this;
  out.groups = 1;
  out.undisturbed = decode;
  out.prompt = prompt_one + one_more * with_prompts;
  out.at_once = prompt / out.prompt;
  const Seconds beside = (prompt_one * (1 - none) + one_more * (with_prompts - (1 - none))) / steps;
  // A step is no shorter because somebody has prompts: searches take `decode` for the least [P19].
  out.decode = decode * none + std::max(beside, decode * (1 - none));
  out.prompt_added = (rides ? std::max(Seconds(0), out.prompt - out.decode * steps) : out.prompt) / prompts;
  return out;
}

ServedTimes ServedTimes::held_back(const HeldPrompts& hold) const {
  ServedTimes out = *this;
  out.groups = 1;
  out.undisturbed = decode;
  const Seconds one_more = std::max(Seconds(0), prompt - prompt_one) / (groups - 1);
  out.prompt = prompt_one + one_more * std::max(0.0, groups * hold.present - 1);
  out.at_once = prompt / out.prompt;
  const Seconds cycle = decode * hold.decoding + out.prompt * hold.rounds;
  out.token = std::max(decode, cycle / hold.tokens);  // searches take `decode` for the least [P19]
  // The step that it finds, others' prompts, and rounds before its own.
  out.held = decode * (hold.waited + 0.5) + out.prompt * ((hold.rounds - 1) / 2);
  out.prompt_added = out.prompt / prompts;
  return out;
}

namespace {

// A loop that goes on, of users who all have room.
struct Cycle {
  double tpot = 0, response = 0, burst = 0;
  double time(double m) const { return response + m * tpot; }
};

Cycle cycle_of(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times,
               const Responses& responses, double n, bool full) {
  const double m = decode_steps(load), decode = times.decode.value;
  const bool mixes = engine.prefill == PrefillPolicy::mixed;
  Cycle out;
  out.burst = responses.burst();
  if (times.token > Seconds(0)) {
    out.tpot = times.token.value;
    out.response = (full ? 0 : engine.host.path.value) + (times.held + times.prompt).value;
    return out;
  }
  if (in_step(engine, load)) {
    // All come back at once: a user decodes while those behind it are prefilled.
    out.response = out.burst - (full ? engine.host.path.value : 0);
    out.tpot = decode + (responses.drain() + engine.host.path.value - out.burst) / m;
    return out;
  }
  const auto response = [&](double asks) { return full ? responses.admitted(asks) : responses.steady(asks); };
  const double added = times.prompt_added.value;
  const double asks = steady_asks(n, m, decode, added, mixes, responses.most_asks(), response);
  out.tpot = decode + asks * added;
  out.response = n > 1 ? (n - 1) * out.tpot / asks - m * out.tpot : response(0);
  return out;
}

}  // namespace

Served steady_serving(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times) {
  Served out;
  const double n = std::min(load.users, std::floor(times.room));
  if (n < 1) return out;
  const double m = decode_steps(load), path = engine.host.path.value, beyond = load.users - n;
  const Responses responses(engine, times, n);
  const Cycle own = cycle_of(engine, load, times, responses, n, false);
  double tpot = own.tpot, rate = n / own.time(m), ttft = own.response, burst = own.burst;
  if (beyond > 0) {
    // A place that is free is taken at once, so that whoever is on the path holds none: between both by how
    // many of those who are there beside the room are on it.
    const Cycle full = cycle_of(engine, load, times, responses, n, true);
    const double most = n / full.time(m), part = std::min(1.0, beyond / std::max(1e-9, most * path));
    tpot += (full.tpot - tpot) * part;
    rate += (most - rate) * part;
    out.waiting = std::max(0.0, beyond - rate * path * part);
    ttft = load.users / rate - m * tpot;  // Little's law over the loop
  }
  out.requests_per_s = rate;
  out.decoding = rate * m * tpot;
  out.prefill_part = 1 - times.between().value / tpot;
  // Of a burst, those beyond the room wait until those before have been answered.
  const double turns = std::floor(load.users / n), last = load.users - turns * n;
  burst += n / rate * (n * turns * (turns - 1) / 2 + last * turns) / load.users;
  const bool groups =
      load.equal_lengths && load.rounds > 0 && load.users > 1 && engine.prefill == PrefillPolicy::mixed;
  if (groups)
    ttft = equal_loop_ttft(engine, load, times);
  else if (load.rounds > 0)
    ttft += (burst - ttft) / load.rounds;
  out.tpot = Seconds(tpot);
  out.ttft = Seconds(ttft);
  out.burst = Seconds(burst);
  return out;
}

namespace {

// Times of `prompts` a step, which need not be whole: what they add lies between those of its neighbours.
class PackedTimes {
 public:
  PackedTimes(const std::function<ServedTimes(long long)>& times, long long most)
      : times_(times), most_(most) {}
  /// While each other attention group has prompts in a part `share` of its steps.
  ServedTimes at(double prompts, double share) {
    return between(prompts, [share](const ServedTimes& t) { return t.spread(share); });
  }
  /// [P38] While groups hold prompts back for each other.
  ServedTimes at(double prompts, const HeldPrompts& hold) {
    return between(prompts, [&hold](const ServedTimes& t) { return t.held_back(hold); });
  }
  const ServedTimes& one() { return whole(1); }
  bool of_groups() { return whole(1).groups > 1; }

 private:
  template <class Seen>
  ServedTimes between(double prompts, Seen seen) {
    const auto low = static_cast<long long>(prompts);
    ServedTimes t = seen(whole(low));
    const ServedTimes full = seen(whole(most_));
    t.alone = seen(whole(1)).prompt;
    t.full = full.prompt;
    t.most = static_cast<double>(most_);
    t.at_once = full.at_once;
    const double part = prompts - static_cast<double>(low);
    if (part <= 0) return t;
    const ServedTimes high = seen(whole(low + 1));
    const Seconds added =
        t.prompt_added * (t.prompts * (1 - part)) + high.prompt_added * (high.prompts * part);
    t.decode = t.decode * (1 - part) + high.decode * part;
    t.prompt = t.prompt * (1 - part) + high.prompt * part;
    t.token = t.token * (1 - part) + high.token * part;
    t.held = t.held * (1 - part) + high.held * part;
    t.prompts = prompts;
    t.prompt_added = added / prompts;
    return t;
  }
  const ServedTimes& whole(long long prompts) {
    const auto known = known_.find(prompts);
    return known != known_.end() ? known->second : known_.emplace(prompts, times_(prompts)).first->second;
  }
  const std::function<ServedTimes(long long)>& times_;
  const long long most_;
  std::map<long long, ServedTimes> known_;
};

// Of the steps of a group, the part with prompts, of which so many steps' worth come while a token takes:
// those that decode carry them, or wait for them.
double loaded_part(const EngineProfile& engine, double steps) {
  return engine.prefill == PrefillPolicy::mixed ? std::min(1.0, steps) : steps / (1 + steps);
}

}  // namespace

namespace {

// [P38] Of groups that hold their prompts back. How many come while a token takes and what is served follow
// from each other.
PackedServing held_serving(const EngineProfile& engine, const ServedLoad& load, long long most,
                           PackedTimes& packed) {
  const ServedTimes& one = packed.one();
  const double users = std::min(load.users, std::floor(one.room));
  PackedServing out;
  ServedLoad endless = load;
  endless.rounds = 0;
  double come = users / (2 * decode_steps(load));
  for (int i = 0; i < 60 && users >= 1; ++i) {
    const HeldPrompts hold =
        held_prompts({one.groups, one.steps, static_cast<double>(most), engine.delay_passes}, come);
    out.used = packed.at(hold.together, hold);
    out.served = steady_serving(engine, endless, out.used);
    const double next = out.served.requests_per_s * out.served.tpot.value;
    if (std::abs(next - come) <= 1e-5 * come) break;
    come = (come + next) / 2;
  }
  if (load.rounds > 0) out.served = steady_serving(engine, load, out.used);
  return out;
}

}  // namespace

PackedServing packed_serving(const EngineProfile& engine, const ServedLoad& load, long long most,
                             const std::function<ServedTimes(long long prompts)>& times) {
  constexpr double kFew = 0.1;  // prompts in the time of a token: hardly two come together
  PackedTimes packed(times, most);
  if (engine.delay_passes > 0 && packed.of_groups()) return held_serving(engine, load, most, packed);
  // Users in step all come at once.
  const bool at_once = in_step(engine, load), of_groups = packed.of_groups();
  double prompts = at_once ? std::clamp(load.users, 1.0, static_cast<double>(most)) : 1, share = 0;
  PackedServing out;
  ServedLoad endless = load;  // rounds move TTFT alone
  endless.rounds = 0;
  const auto serve = [&] {
    out.used = packed.at(prompts, share);
    out.served = steady_serving(engine, endless, out.used);
  };
  serve();
  for (int i = 0; i < 16 && (most > 1 || of_groups) && !at_once; ++i) {
    const double come = out.served.requests_per_s * out.served.tpot.value;
    const bool alone = most <= 1 || (prompts == 1 && come < kFew);
    if (alone && !of_groups) break;
    // Of those that come at random, so many lie in a step that has any.
    const double together = std::clamp(come / -std::expm1(-come), 1.0, static_cast<double>(most));
    const double close = std::abs(together - prompts) < 0.02 ? together : (together + prompts) / 2;
    const double next = alone ? prompts : close;
    const double loaded = of_groups ? loaded_part(engine, come * out.used.steps / prompts) : 0;
    if (std::abs(next - prompts) < 1e-3 && std::abs(loaded - share) <= 1e-3 * share) break;
    prompts = next;
    share = loaded;
    serve();
  }
  if (load.rounds > 0) out.served = steady_serving(engine, load, out.used);
  return out;
}

}  // namespace shardline
