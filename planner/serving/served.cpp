#include "planner/serving/served.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace shardline {

namespace {

// Steps of a request after the one that ends its prefill.
double decode_steps(const ServedLoad& load) { return std::max(1.0, load.output - 1); }

// T of m T^2 + (R - m D - (n - 1) W) T - D R = 0: of a cycle R + m T, in which each of the others is
// prefilled once, the part m T is this user's decoding.
double mixed_tpot(double n, double m, double decode, double added, double response) {
  const double b = response - m * decode - (n - 1) * added;
  return (-b + std::sqrt(b * b + 4 * m * decode * response)) / (2 * m);
}

}  // namespace

ErrorRange served_time_error(const EngineProfile& engine, const ErrorTerms& step) {
  if (engine.error.rows == 0) return time_error(step);
  const ErrorRange prices = time_error(step.without(kHostSource));  // the host's is the engine's
  // Prices and engine err apart from each other: by squares.
  return {std::expm1(-std::hypot(std::log1p(prices.low), engine.error.tpot.low)),
          std::expm1(std::hypot(std::log1p(prices.high), engine.error.tpot.high))};
}

ErrorRange served_rate_error(const EngineProfile& engine, const ErrorTerms& step) {
  const ErrorRange time = served_time_error(engine, step);
  return {1 / (1 + time.high) - 1, 1 / (1 + time.low) - 1};
}

Served steady_serving(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times) {
  Served out;
  const double n = std::min(load.users, std::floor(times.room));
  if (n < 1) return out;
  const double m = decode_steps(load), decode = times.decode.value, prompt = times.prompt.value;
  const double added = times.prompt_added.value, path = engine.host.path.value;
  double tpot = 0, ttft = 0;
  if (engine.prefill == PrefillPolicy::first && load.equal_lengths) {
    // All come back at once: a user decodes while those behind it are prefilled, half of them on average.
    tpot = decode + (n - 1) / 2 * added / m;
    ttft = path + prompt * (n + 1) / 2;
  } else {
    // A prompt waits for the step that runs, and behind others that came just before it.
    double others = 0;
    for (int i = 0; i < 8; ++i) {  // others in service: a contraction, since they are less than (n - 1)
      ttft = path + decode / 2 + prompt * (1 + others / 2);
      tpot = mixed_tpot(n, m, decode, added, ttft);
      others = (n - 1) * prompt / (ttft + m * tpot);
    }
  }
  const double cycle = ttft + m * tpot;
  out.requests_per_s = n / cycle;
  out.waiting = load.users - n;
  out.decoding = n * m * tpot / cycle;
  out.prefill_part = 1 - decode / tpot;
  // Who finds no room waits until as many have left.
  ttft += out.waiting / out.requests_per_s;
  if (load.rounds > 0 && !(engine.prefill == PrefillPolicy::first && load.equal_lengths))
    ttft += prompt * (n - 1) / 2 / load.rounds;
  out.tpot = Seconds(tpot);
  out.ttft = Seconds(ttft);
  return out;
}

namespace {

// Times of `prompts` a step, which need not be whole: what they add lies between those of its neighbours.
class PackedTimes {
 public:
  explicit PackedTimes(const std::function<ServedTimes(long long)>& times) : times_(times) {}
  ServedTimes at(double prompts) {
    const auto low = static_cast<long long>(prompts);
    ServedTimes t = whole(low);
    const double part = prompts - static_cast<double>(low);
    if (part <= 0) return t;
    const ServedTimes& high = whole(low + 1);
    const Seconds added =
        t.prompt_added * (t.prompts * (1 - part)) + high.prompt_added * (high.prompts * part);
    t.prompt = t.prompt * (1 - part) + high.prompt * part;
    t.prompts = prompts;
    t.prompt_added = added / prompts;
    return t;
  }

 private:
  const ServedTimes& whole(long long prompts) {
    const auto known = known_.find(prompts);
    return known != known_.end() ? known->second : known_.emplace(prompts, times_(prompts)).first->second;
  }
  const std::function<ServedTimes(long long)>& times_;
  std::map<long long, ServedTimes> known_;
};

}  // namespace

PackedServing packed_serving(const EngineProfile& engine, const ServedLoad& load, long long most,
                             const std::function<ServedTimes(long long)>& times) {
  constexpr double kFew = 0.1;  // prompts in the time of a token: hardly two come together
  PackedTimes packed(times);
  double prompts = 1;
  PackedServing out;
  const auto serve = [&] {
    out.used = packed.at(prompts);
    out.served = steady_serving(engine, load, out.used);
  };
  serve();
  for (int i = 0; i < 16 && most > 1; ++i) {
    const double come = out.served.requests_per_s * out.served.tpot.value;
    if (prompts == 1 && come < kFew) break;
    // Of those that come at random, so many lie in a step that has any.
    const double share = std::clamp(come / -std::expm1(-come), 1.0, static_cast<double>(most));
    const double next = std::abs(share - prompts) < 0.02 ? share : (share + prompts) / 2;
    if (std::abs(next - prompts) < 1e-3) break;
    prompts = next;
    serve();
  }
  return out;
}

}  // namespace shardline
