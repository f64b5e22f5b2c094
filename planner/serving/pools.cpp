#include "planner/serving/pools.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "planner/engines/launchable.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// Bytes that a prompt leaves in the caches of all layers, each once however many ranks have copies.
Bytes cache_of(const Case& c, long long tokens) {
  Plan whole;
  double elements = 0;
  for (const LayerRun& run : c.model.runs) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(run.attention)];
    elements += static_cast<double>(run.count) * static_cast<double>(kv_elements_per_token(a, whole)) *
                static_cast<double>(kept_tokens(a.reach, {0, tokens}));
  }
  return Bytes(elements * bytes_per_element(c.precision.kv));
}

std::vector<Plan> prefill_plans(const Case& c, const SearchOptions& o) {
  std::vector<Plan> out, all;
  for (const StrategyId id : o.strategies) {
    if (!strategy(id).prefills || !strategy(id).takes(c) || !strategy(id).exact) continue;
    for (const int gpus : o.gpus) {
      if (gpus <= c.system.gpus()) strategy(id).enumerate(c, gpus, o.space, all);
    }
  }
  for (Plan& p : all) {
    p.batch = std::max(1, least_batch(c, p));
    // The budget of the engine's steps cuts prompts.
    if (p[kPrefillChunk] > 0 || !within(p, o.space) || does_not_start(c, p) ||
        does_not_fit(c, memory_use(c, p)))
      continue;
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace

Seconds handoff_time(const Case& c, const Plan& prefill, const Plan& decode, long long tokens) {
  const FabricSpec& f = c.system.fabric;
  const double ranks = std::min(prefill.gpus(), decode.gpus());
  const Bytes bytes = cache_of(c, tokens);
  const bool inside = !f.network.present || prefill.gpus() + decode.gpus() <= f.gpus_per_node;
  if (inside) return f.nvlink.latency + bytes / (f.nvlink.bandwidth * (f.nvlink.efficiency * ranks));
  const double share = f.network.efficiency * f.network.send_recv_share / f.network.gpus_per_nic;
  return f.network.latency + f.network.send_recv_extra + bytes / (f.network.bandwidth * (share * ranks));
}

WholePools whole_pools(const Replica& prefill, const Replica& decode, int most_gpus) {
  constexpr double kEnough = 0.95;
  const double matched =
      1 / (prefill.gpus / prefill.requests_per_s + decode.gpus / decode.requests_per_s);  // per GPU
  WholePools best;
  const auto enough = [&](const WholePools& w) { return w.requests_per_s_gpu >= kEnough * matched; };
  const auto consider = [&](int a, int b) {
    WholePools w{a, b, a * prefill.gpus + b * decode.gpus, 0, 0, 0};
    const double prompts = a * prefill.requests_per_s, answers = b * decode.requests_per_s;
    const double both = std::min(prompts, answers);
    w.requests_per_s_gpu = both / w.gpus;
    w.prefill_busy = both / prompts;
    w.decode_busy = both / answers;
    const bool smaller = w.gpus<best.gpus, more = w.requests_per_s_gpu> best.requests_per_s_gpu;
    const bool better = enough(w) && enough(best) ? smaller || (w.gpus == best.gpus && more) : more;
    if (best.gpus == 0 || better) best = w;
  };
  for (int b = 1; b * decode.gpus + prefill.gpus <= most_gpus; ++b) {
    const int room = (most_gpus - b * decode.gpus) / prefill.gpus;
    const double ideal = b * decode.requests_per_s / prefill.requests_per_s;
    // Fewer than the ratio asks for leave the other pool idle: per GPU more is better up to there, less from
    // there on, and the fewest that are enough lie below.
    const double rate = kEnough * matched;
    const double fewest = rate * b * decode.gpus / (prefill.requests_per_s - rate * prefill.gpus);
    for (const double a : {std::ceil(fewest), std::floor(ideal), std::ceil(ideal)})
      consider(static_cast<int>(std::clamp(a, 1.0, static_cast<double>(room))), b);
  }
  return best;
}

namespace {

Case prompts_of(const Study& study) {
  Case c = study.study;
  c.batch = prefill_batch({{0, study.sweep().search.workload->input}});
  c.disaggregated = true;
  return c;
}

// Both pools side by side, in the ratio of their rates and in whole replicas.
PoolPair pair_of(const Study& study, const PrefillPool& prefill, const Point& decode) {
  const ServedWorkload& load = *study.sweep().search.workload;
  PoolPair pair;
  pair.decode = decode;
  pair.prefill = prefill;
  pair.handoff = handoff_time(study.study, prefill.plan, decode.plan, load.input);
  pair.ttft = study.study.engine->host.path + prefill.prompt + pair.handoff + decode.time;
  // Requests per second of a GPU that decodes.
  const double rate = value(Metric::throughput, decode) / static_cast<double>(load.output - 1);
  // Who finds no room among those that decode waits until as many have left.
  pair.ttft += Seconds(static_cast<double>(decode.all_waiting()) / (rate * decode.plan.gpus()));
  pair.prefill_gpus = rate / prefill.requests_per_s_gpu;
  pair.output_per_s_gpu = rate * static_cast<double>(load.output) / (1 + pair.prefill_gpus);
  const auto replica = [](const Plan& plan, double of_gpu) {
    return Replica{plan.gpus(), of_gpu * plan.gpus()};
  };
  pair.whole = whole_pools(replica(prefill.plan, prefill.requests_per_s_gpu), replica(decode.plan, rate),
                           study.study.system.gpus());
  pair.whole_output_per_s_gpu = pair.whole.requests_per_s_gpu * static_cast<double>(load.output);
  return pair;
}

}  // namespace

std::vector<PrefillPool> prefill_pools(const Study& study, int threads) {
  const SearchOptions& o = study.sweep().search;
  const Case c = prompts_of(study);
  const std::vector<Plan> plans = prefill_plans(c, o);
  const std::size_t workers = thread_count(threads);
  std::vector<std::unique_ptr<ServedEvaluator>> evaluators(workers);
  for (auto& e : evaluators) e = std::make_unique<ServedEvaluator>(c, o.all_reduce);
  std::vector<PrefillPool> found(plans.size());
  parallel_for(0, plans.size(), workers, [&](std::size_t i, std::size_t slot) {
    ServedEvaluator& evaluator = *evaluators[slot];
    const long long packed = evaluator.prompts_of_step(plans[i], o.workload->input);
    const Seconds prompt = evaluator.prompt_alone(plans[i], o.workload->input, packed);
    const long long prompts = plans[i].users() * packed;
    found[i] = {
        plans[i], prompts, prompt, static_cast<double>(prompts) / (prompt.value * plans[i].gpus()), {}};
  });
  const auto rank = [](const PrefillPool& x) { return std::pair(-x.requests_per_s_gpu, x.prompt.value); };
  std::stable_sort(found.begin(), found.end(),
                   [&](const PrefillPool& a, const PrefillPool& b) { return rank(a) < rank(b); });
  return found;
}

std::vector<PoolPair> pool_pairs(const Study& study, int threads) {
  std::vector<PoolPair> out;
  const std::vector<PrefillPool> pools = prefill_pools(study, threads);
  SearchOptions o = study.sweep().search;
  const Seconds most = o.most_ttft;
  o.workload.reset();
  o.most_ttft = Seconds(0);
  o.threads = threads;
  if (pools.empty()) return out;
  Case answers = study.study;
  answers.disaggregated = true;
  for (const Point& decode : search(answers, o).overall().points()) {
    for (const PrefillPool& prefill : pools) {
      if (does_not_pair(*study.study.engine, prefill.plan, decode.plan)) continue;
      PoolPair pair = pair_of(study, prefill, decode);
      if (most > Seconds(0) && pair.ttft > most) continue;
      out.push_back(std::move(pair));
      break;
    }
  }
  std::sort(out.begin(), out.end(),
            [](const PoolPair& a, const PoolPair& b) { return a.decode.time < b.decode.time; });
  return out;
}

void rate_prefills(const Study& study, std::vector<PoolPair>& pairs) {
  const SearchOptions& o = study.sweep().search;
  ServedEvaluator evaluator(prompts_of(study), o.all_reduce);
  for (PoolPair& p : pairs) p.prefill.errors = evaluator.prompt_errors(p.prefill.plan, o.workload->input);
}

}  // namespace shardline
