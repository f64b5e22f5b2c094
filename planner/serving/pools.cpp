#include "planner/serving/pools.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "planner/engines/launchable.hpp"
#include "planner/handoff/transfer.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

Case prompts_of(const Study& study) {
  Case c = study.study;
  c.batch = prefill_batch({{0, study.sweep().search.workload->input}});
  c.disaggregated = true;
  return c;
}

}  // namespace

std::vector<Plan> prefill_plans(const Study& study) {
  const SearchOptions& o = study.sweep().search;
  const Case c = prompts_of(study);
  std::vector<Plan> out, all;
  for (const StrategyId id : o.prefills) {
    if (!strategy(id).prefills || !strategy(id).takes(c) || !strategy(id).exact) continue;
    for (const int gpus : o.gpus) {
      check_cancelled();
      if (gpus <= c.system.gpus()) enumerate_drafts(c, strategy(id), gpus, o.space, all);
    }
  }
  for (Plan& p : all) {
    check_cancelled();
    p.batch = 1;
    // The budget of the engine's steps cuts prompts. A prompt of one token has no two halves.
    if (p[kPrefillChunk] > 0 || least_batch(c, p) > 1 || !within(p, o.space) || does_not_start(c, p))
      continue;
    const ContextServer server = context_server(c, *c.engine, p, o.workload->input);
    if (does_not_fit(server.study, memory_use(server.study, server.plan))) continue;
    out.push_back(std::move(p));
  }
  return out;
}

namespace {

// The replicas that prefill, for which a rate is the best or the fewest that are enough: it rises with them,
// and then falls.
class ReplicasThatPrefill {
 public:
  ReplicasThatPrefill(const PoolLimits& limits, const PoolRate& rate, int decoders)
      : limits_(limits), rate_(rate), decoders_(decoders) {}

  int gpus(int prefill) const { return prefill * limits_.prefill_gpus + decoders_ * limits_.decode_gpus; }
  double per_gpu(int prefill) const { return rate_(prefill, decoders_).value_or(0) / gpus(prefill); }
  // The fewest of [1, most] that count; most + 1: none.
  int counted(int most) const {
    return first(1, most, [&](int n) { return rate_(n, decoders_).has_value(); });
  }
  // Of [least, most] the one with the most per GPU.
  int best(int least, int most) const {
    return first(least, most - 1, [&](int n) { return per_gpu(n + 1) <= per_gpu(n); });
  }
  // Of [least, best] the fewest that answer so much.
  int enough(int least, int best, double per_gpu_wanted) const {
    return first(least, best - 1, [&](int n) { return per_gpu(n) >= per_gpu_wanted; });
  }

 private:
  // The first of [low, high] that holds, of what holds of all behind one; high + 1: none.
  template <class Holds>
  static int first(int low, int high, Holds holds) {
    int end = high + 1;
    while (low < end) {
      const int middle = low + (end - low) / 2;
      if (holds(middle))
        end = middle;
      else
        low = middle + 1;
    }
    return end;
  }

  const PoolLimits& limits_;
  const PoolRate& rate_;
  const int decoders_;
};

}  // namespace

int most_pool_gpus(const Study& study) {
  const int asked = study.sweep().search.pool_gpus, all = study.study.system.gpus();
  return asked > 0 ? std::min(asked, all) : all;
}

WholePools whole_pools(const PoolLimits& limits, double matched, const PoolRate& rate) {
  constexpr double kEnough = 0.95;
  const double wanted = kEnough * matched;
  WholePools best;
  for (int b = 1; b <= limits.decoders; ++b) {
    const int room = (limits.gpus - b * limits.decode_gpus) / limits.prefill_gpus;
    if (limits.gpus < b * limits.decode_gpus || room < 1) break;
    const ReplicasThatPrefill replicas(limits, rate, b);
    // Those with more GPUs than others that are enough need not be looked at.
    if (best.requests_per_s_gpu >= wanted && best.gpus > 0 && replicas.gpus(1) > best.gpus) break;
    const int least = replicas.counted(room);
    if (least > room) continue;
    int prefill = replicas.best(least, room);
    if (replicas.per_gpu(prefill) >= wanted) prefill = replicas.enough(least, prefill, wanted);
    const WholePools w{prefill, b, replicas.gpus(prefill), replicas.per_gpu(prefill)};
    const bool smaller = w.gpus<best.gpus, more = w.requests_per_s_gpu> best.requests_per_s_gpu;
    const bool both = w.requests_per_s_gpu >= wanted && best.requests_per_s_gpu >= wanted;
    const bool better = both ? smaller || (w.gpus == best.gpus && more) : more;
    if (best.gpus == 0 || better) best = w;
  }
  return best;
}

namespace {

// All that follows for a pair from how many users share a replica that prefills.
class Pairing {
 public:
  Pairing(const Study& study, const PrefillPool& prefill, const Point& decode, const PoolAnswer& answer,
          Seconds handoff)
      : load_(*study.sweep().search.workload),
        path_(study.study.engine->host.path),
        handoff_(handoff),
        prefill_(prefill) {
    answers_.room = static_cast<double>(decode.plan.users());
    answers_.users = static_cast<double>(decode.plan.users() + decode.all_waiting());
    answers_.step = answer.step;
    answers_.steps = answer.steps;
    limits_ = {prefill.plan.gpus(), decode.plan.gpus(), most_pool_gpus(study), 1};
    const int others = std::max(1, limits_.gpus - limits_.prefill_gpus);
    // Of a number of users that is asked for one replica decodes for all; else as many as the system holds.
    if (study.sweep().search.users.empty()) limits_.decoders = std::max(1, others / limits_.decode_gpus);
    const int prefills = std::max(1, (limits_.gpus - limits_.decode_gpus) / limits_.prefill_gpus);
    fewest_ = std::max(1.0, answers_.users / prefills);
    most_ = std::max(fewest_, answers_.users * limits_.decoders);
  }

  const PoolLimits& limits() const { return limits_; }
  Seconds handoff() const { return handoff_; }
  double decoder_users() const { return answers_.users; }
  double fewest() const { return fewest_; }
  double most() const { return most_; }
  PoolLoop loop(double users) const {
    return pool_loop(prefill_.server, answers_, {users, path_, handoff_, load_.rounds});
  }
  double requests_per_s_gpu(double rate, double users) const {
    return rate / (limits_.prefill_gpus + users / answers_.users * limits_.decode_gpus);
  }
  // No TTFT is below it, whoever else asks.
  Seconds least_ttft() const { return path_ + prefill_.server.prompt(1) + handoff_ + answers_.step; }
  // No number of users answers more per GPU: all of them would be answered without a wait, by a pool that
  // computes as many prompts as it can.
  double most_requests_per_s_gpu() const {
    const double rate = prefill_.server.most_per_s();
    const double cycle = (least_ttft() + answers_.step * (answers_.steps - 1)).value;
    const double users = std::clamp(rate * cycle, fewest_, most_);
    return requests_per_s_gpu(std::min(rate, users / cycle), users);
  }

 private:
  const ServedWorkload& load_;
  const Seconds path_, handoff_;
  const PrefillPool& prefill_;
  AnswerServer answers_;
  PoolLimits limits_;
  double fewest_ = 1, most_ = 1;
};

// How many users share a replica that prefills where most is answered per GPU: more than that wait for each
// other's prompts, fewer leave it idle.
double best_users(const Pairing& pairing) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  const auto answers = [&](double log_users) {
    const double users = std::exp(log_users);
    return pairing.requests_per_s_gpu(pairing.loop(users).requests_per_s, users);
  };
  double low = std::log(pairing.fewest()), high = std::log(pairing.most());
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double of_left = answers(left), of_right = answers(right);
  while (high - low > 1e-3) {
    if (of_left > of_right) {
      high = right;
      right = left;
      of_right = of_left;
      left = high - golden * (high - low);
      of_left = answers(left);
    } else {
      low = left;
      left = right;
      of_left = of_right;
      right = low + golden * (high - low);
      of_right = answers(right);
    }
  }
  const double inside = (low + high) / 2;
  return answers(std::log(pairing.most())) >= answers(inside) ? pairing.most() : std::exp(inside);
}

// The most users up to `users` whose TTFT meets a target, or nothing.
std::optional<double> users_in_time(const Pairing& pairing, double users, Seconds most_ttft) {
  const auto late = [&](double n) { return most_ttft > Seconds(0) && pairing.loop(n).ttft > most_ttft; };
  if (!late(users)) return users;
  double low = pairing.fewest(), high = users;
  if (late(low)) return std::nullopt;
  while (high / low > 1 + 1e-3) {
    const double middle = std::sqrt(low * high);
    (late(middle) ? high : low) = middle;
  }
  return low;
}

// [P29] The search's times are per token: those of a step over what it yields. An answer's first token is of
// a step of its own, and the others of as many as their drafts leave [P28].
PoolAnswer answer_of(const Study& study, const Point& decode) {
  const long long output = study.sweep().search.workload->output;
  const int k = decode.plan[kDrafts];
  if (k == 0) return {decode.time, static_cast<double>(output)};
  const Seconds step = decode.time * tokens_per_step(study.study, decode.plan);
  return {step, output < 2 ? 1 : 1 + steps_of_answer(study.study.acceptance->at(k), output - 1)};
}

std::optional<PoolPair> pair_of(const Study& study, const PrefillPool& prefill, const Point& decode,
                                Seconds handoff) {
  const PoolAnswer answer = answer_of(study, decode);
  const Pairing pairing(study, prefill, decode, answer, handoff);
  const auto users = users_in_time(pairing, best_users(pairing), study.sweep().search.most_ttft);
  if (!users) return std::nullopt;
  PoolPair pair;
  pair.decode = decode;
  pair.answer = answer;
  const auto output = static_cast<double>(study.sweep().search.workload->output);
  if (decode.plan[kDrafts] > 0 && output > 1)
    pair.decode.time = answer.step * ((answer.steps - 1) / (output - 1));
  pair.prefill = prefill;
  pair.path = study.study.engine->host.path;
  pair.handoff = pairing.handoff();
  pair.users = *users;
  pair.loop = pairing.loop(*users);
  pair.prefill_gpus = prefill.plan.gpus() * pairing.decoder_users() / (*users * decode.plan.gpus());
  pair.output_per_s_gpu = pairing.requests_per_s_gpu(pair.loop.requests_per_s, *users) * output;
  return pair;
}

// Of all pools that the engine pairs with a plan that decodes, those first that may answer most.
std::optional<PoolPair> best_pair(const Study& study, const std::vector<PrefillPool>& pools,
                                  const Point& decode, HandoffTimes& handoffs) {
  const Seconds most_ttft = study.sweep().search.most_ttft;
  const PoolAnswer answer = answer_of(study, decode);
  std::vector<std::pair<double, const PrefillPool*>> order;
  for (const PrefillPool& prefill : pools) {
    if (prefill.plan.gpus() + decode.plan.gpus() > most_pool_gpus(study)) continue;
    if (prefill.plan[kDrafts] != decode.plan[kDrafts]) continue;  // deployments give both the same number
    if (does_not_pair(*study.study.engine, study.study, prefill.plan, decode.plan)) continue;
    const Pairing pairing(study, prefill, decode, answer, handoffs.of(prefill.plan, decode.plan));
    if (most_ttft > Seconds(0) && pairing.least_ttft() > most_ttft) continue;
    order.emplace_back(pairing.most_requests_per_s_gpu(), &prefill);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto output = static_cast<double>(study.sweep().search.workload->output);
  std::optional<PoolPair> best;
  for (const auto& [bound, prefill] : order) {
    if (best && best->output_per_s_gpu >= bound * output) break;
    std::optional<PoolPair> pair = pair_of(study, *prefill, decode, handoffs.of(prefill->plan, decode.plan));
    if (pair && (!best || pair->output_per_s_gpu > best->output_per_s_gpu)) best = std::move(pair);
  }
  return best;
}

// What steps of so many prompts take: of one, of powers of two, and of the most.
PromptServer server_of(ServedEvaluator& evaluator, const Plan& plan, long long input, long long most) {
  PromptServer out;
  out.groups = plan.dp;
  out.microbatches = plan.in_flight;
  for (long long k = 1; k < most; k *= 2)
    out.times.emplace_back(static_cast<double>(k), evaluator.prompt_alone(plan, input, k));
  out.times.emplace_back(static_cast<double>(most), evaluator.prompt_alone(plan, input, most));
  return out;
}

}  // namespace

std::vector<PrefillPool> prefill_pools(const Study& study, int threads) {
  const SearchOptions& o = study.sweep().search;
  const Case c = prompts_of(study);
  const std::vector<Plan> plans = prefill_plans(study);
  const std::size_t workers = thread_count(threads);
  std::vector<std::unique_ptr<ServedEvaluator>> evaluators(workers);
  for (auto& e : evaluators) e = std::make_unique<ServedEvaluator>(c, o.all_reduce);
  std::vector<PrefillPool> found(plans.size());
  parallel_for(0, plans.size(), workers, [&](std::size_t i, std::size_t slot) {
    const PromptStep step = prompt_step(c, *c.engine, plans[i], o.workload->input);
    found[i] = {plans[i], step, server_of(*evaluators[slot], plans[i], o.workload->input, step.prompts), {}};
  });
  const auto rank = [](const PrefillPool& x) {
    return std::pair(-x.server.most_per_s() / x.plan.gpus(), x.server.prompt(1).value);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const PrefillPool& a, const PrefillPool& b) { return rank(a) < rank(b); });
  return found;
}

std::vector<PoolPair> pool_pairs(const Study& study, int threads) {
  std::vector<PoolPair> out;
  const std::vector<PrefillPool> pools = prefill_pools(study, threads);
  SearchOptions o = study.sweep().search;
  o.workload.reset();
  o.most_ttft = Seconds(0);
  o.threads = threads;
  if (pools.empty()) return out;
  // Plans that leave no room for prompts would hide those that do.
  const auto fewest = std::min_element(
      pools.begin(), pools.end(), [](const auto& a, const auto& b) { return a.plan.gpus() < b.plan.gpus(); });
  const int room = most_pool_gpus(study) - fewest->plan.gpus();
  std::erase_if(o.gpus, [&](int gpus) { return gpus > room; });
  if (o.gpus.empty()) return out;
  Case answers = study.study;
  answers.disaggregated = true;
  HandoffTimes handoffs(answers, most_pool_gpus(study), study.sweep().search.workload->input);
  for (const Point& decode : search(answers, o).overall().points()) {
    if (auto pair = best_pair(study, pools, decode, handoffs)) out.push_back(std::move(*pair));
  }
  std::sort(out.begin(), out.end(),
            [](const PoolPair& a, const PoolPair& b) { return a.decode.time < b.decode.time; });
  return out;
}

namespace {

// Of one request, in a deployment of whole replicas.
Seconds whole_handoff(const Study& study, const PoolPair& pair, const WholePools& whole) {
  const Plan &from = pair.prefill.plan, &to = pair.decode.plan;
  const System& system = study.study.system;
  const ReplicaPlaces places = places_of(system, whole.prefill * from.gpus(), whole.decode * to.gpus());
  if (places == places_of(system, from.gpus(), to.gpus())) return pair.handoff;
  Case answers = study.study;
  answers.disaggregated = true;
  const int gpus = std::max(from.gpus(), to.gpus());
  return HandoffTimes(answers, gpus, study.sweep().search.workload->input, places).of(from, to);
}

// Whole replicas of a pair whose hand-offs take so long, as fit_whole() says.
void fit_whole(const Study& study, PoolPair& pair, Seconds handoff) {
  const Pairing pairing(study, pair.prefill, pair.decode, pair.answer, handoff);
  const Seconds most_ttft = study.sweep().search.most_ttft;
  const auto output = static_cast<double>(study.sweep().search.workload->output);
  // A user has one replica of each: fewer users than replicas leave some of these idle.
  const auto users = [&](int a, int b) { return std::max(1.0, pairing.decoder_users() * b / a); };
  const auto rate = [&](int a, int b) -> std::optional<double> {
    const PoolLoop loop = pairing.loop(users(a, b));
    if (most_ttft > Seconds(0) && loop.ttft > most_ttft) return std::nullopt;
    return loop.requests_per_s * pairing.decoder_users() * b / users(a, b);
  };
  pair.whole = whole_pools(pairing.limits(), pair.output_per_s_gpu / output, rate);
  if (pair.whole.gpus == 0) return;
  pair.whole_handoff = handoff;
  pair.whole_loop = pairing.loop(users(pair.whole.prefill, pair.whole.decode));
  pair.whole_output_per_s_gpu = pair.whole.requests_per_s_gpu * output;
}

}  // namespace

void fit_whole(const Study& study, PoolPair& pair) {
  fit_whole(study, pair, pair.handoff);
  if (pair.whole.gpus == 0) return;
  const Seconds handoff = whole_handoff(study, pair, pair.whole);
  if (handoff != pair.handoff) fit_whole(study, pair, handoff);
}

void rate_prefills(const Study& study, std::vector<PoolPair>& pairs) {
  const SearchOptions& o = study.sweep().search;
  ServedEvaluator evaluator(prompts_of(study), o.all_reduce);
  for (PoolPair& p : pairs) {
    const Rating rating = evaluator.prompt_rating(p.prefill.plan, o.workload->input);
    p.prefill.errors = rating.errors;
    p.prefill.watts = rating.watts;
  }
}

}  // namespace shardline
