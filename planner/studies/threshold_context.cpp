#include "planner/studies/threshold_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "planner/requests/block_pool.hpp"
#include "planner/search/memory.hpp"
#include "planner/serving/trace.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/study_memory.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/read_text.hpp"
#include "sim/queue/quantiles.hpp"

namespace shardline {

namespace {

constexpr std::uint32_t kBlock = static_cast<std::uint32_t>(kTraceBlock);
// Of prices, within their band, at which a rule's loss is looked at.
constexpr int kPrices = 9;

// Cached tokens that a replica can hold beside a step of `fresh`.
long long room_of(const Case& c, int ranks, int tpa, long long fresh) {
  const Plan plan = ring_plan(strategy_id("ring_pass_kv"), ranks, tpa);
  Case step = c;
  const auto beside = [&](long long cached) {
    step.batch = prefill_batch({{cached, fresh}});
    return does_not_fit(step, memory_use(step, plan));
  };
  if (const auto why = beside(0))
    throw UserError(fmt::format("a step of {} tokens on {} ranks of {} GPUs {}", fresh, ranks, tpa, *why));
  long long low = 0, high = 1LL << 31;  // more than any prompt has
  while (low + 1 < high) {
    const long long middle = low + (high - low) / 2;
    (beside(middle) ? high : low) = middle;
  }
  return low;
}

// The cache of one replica, which computes one prompt at a time.
class PrefixCache {
 public:
  explicit PrefixCache(std::uint32_t blocks) : pool_(blocks) {}
  /// Tokens of the prompt that are found; then all of it is kept.
  long long find_and_keep(const TraceRequest& r, std::uint64_t number) {
    const auto prompt = static_cast<std::uint32_t>(r.input);
    chain_.clear();
    extend_chain(chain_, prompt / kBlock, {r.blocks, kBlock, kBlock, prompt, number});
    held_.clear();
    // The last token is computed, since its output is what is wanted.
    pool_.find(std::span(chain_).first(std::min<std::size_t>(chain_.size(), (prompt - 1) / kBlock)), held_);
    const std::size_t found = held_.size();
    pool_.hold(held_);
    pool_.take((prompt + kBlock - 1) / kBlock - static_cast<std::uint32_t>(found), held_);
    for (std::size_t i = found; i < chain_.size(); ++i) pool_.fill(held_[i], chain_[i]);
    pool_.release(held_);
    return static_cast<long long>(found) * kBlock;
  }

 private:
  BlockPool pool_;
  std::vector<BlockHash> chain_;
  std::vector<KvBlock> held_;
};

struct Latency {
  double mean = 0, p99 = 0;
};

// One ring size: the steps with both times, and plays of choices.
class Context {
 public:
  Context(const ContextQuestion& q, ContextSteps steps, int ranks, const RingTimer& time)
      : all_(std::move(steps)), judged_(all_.requests.size() / 2), ranks_(ranks) {
    std::map<std::pair<long long, long long>, std::size_t> known;
    std::vector<TokenSplit> distinct;
    for (const TokenSplit& s : all_.steps) {
      const auto [at, added] = known.try_emplace({s.fresh, s.cached}, distinct.size());
      if (added) distinct.push_back(s);
      point_.push_back(at->second);
    }
    points_ = time(ranks, distinct);
    const double spent = total(spent_by(faster()));
    const double span = all_.requests.back().arrival;
    if (!(span > 0)) throw UserError(q.trace + ": all requests come at once: no queue can be played");
    const double alone = spent / span;  // the load at the trace's own times
    const double speed =
        q.rate > 0 ? q.rate * span / static_cast<double>(all_.requests.size() - 1) : q.load / alone;
    stretch_ = 1 / speed;
    load_ = alone * speed;
  }

  // Whether each step passes KV.
  std::vector<bool> faster(double q_longer = 1) const {
    return each([&](const RingPoint& p) { return p.pass_kv.value <= p.pass_q.value * q_longer; });
  }
  std::vector<bool> by(const RingChoice& choice, RuleAsked asked) const {
    if (asked == RuleAsked::each_step)
      return each([&](const RingPoint& p) { return choice(ranks_, p.fresh, p.cached); });
    std::vector<bool> out(all_.steps.size());
    for (const ContextRequest& r : all_.requests)
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(r.first), r.count,
                  choice(ranks_, r.whole.fresh, r.whole.cached));
    return out;
  }
  // Seconds of each request's prefill where all prices are so many times as high, pass-Q's once more.
  std::vector<double> spent_by(const std::vector<bool>& pass_kv, double q_longer = 1,
                               double prices = 1) const {
    std::vector<double> out;
    out.reserve(all_.requests.size());
    CancelCheck check;
    for (const ContextRequest& r : all_.requests) {
      check();
      double sum = 0;
      for (std::size_t i = r.first; i < r.first + r.count; ++i)
        sum += pass_kv[i] ? at(i).pass_kv.value : at(i).pass_q.value * q_longer;
      out.push_back(sum * prices);
    }
    return out;
  }
  // Of the judged half.
  Latency latency(const std::vector<double>& spent) const {
    const std::vector<double> ttft = times_to_first(all_.requests, stretch_, spent);
    RunQuantiles judged;
    for (std::size_t i = judged_; i < ttft.size(); ++i) judged.add(ttft[i]);
    return {judged.mean(), judged.quantile(0.99)};
  }
  double total(const std::vector<double>& spent, std::size_t from = 0) const {
    return std::accumulate(spent.begin() + static_cast<std::ptrdiff_t>(from), spent.end(), 0.0);
  }

  // To the half that is not judged, each step by the time that a wrong choice costs all who wait for it.
  EmpiricalRule fitted() const {
    const std::vector<double> waiting = who_waits(all_.requests, stretch_, spent_by(faster()));
    std::vector<double> weights(points_.size());
    for (std::size_t r = 0; r < judged_; ++r) {
      const ContextRequest& request = all_.requests[r];
      for (std::size_t i = request.first; i < request.first + request.count; ++i)
        weights[point_[i]] += std::abs((at(i).pass_q - at(i).pass_kv).value) * waiting[r];
    }
    std::vector<RingPoint> points;
    std::vector<double> of_points;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (weights[i] == 0) continue;  // a tie, or not of this half
      points.push_back(points_[i]);
      of_points.push_back(weights[i]);
    }
    if (points.empty()) return {0, 0, 1};  // ties everywhere: any rule is right
    return fit_empirical(points, of_points);
  }

  ContextRegret regret(std::string rule, const RingChoice& choice, RuleAsked asked,
                       const ErrorBand& ratio) const {
    ContextRegret out{std::move(rule), asked, 0, 0, 0, 0, {}};
    const std::vector<bool> chosen = by(choice, asked);
    const auto lost = [&](double q_longer) {
      const std::vector<double> best = spent_by(faster(q_longer), q_longer),
                                mine = spent_by(chosen, q_longer);
      const Latency a = latency(best), b = latency(mine);
      return std::array{total(mine, judged_) / total(best, judged_) - 1, b.mean / a.mean - 1,
                        b.p99 / a.p99 - 1};
    };
    std::tie(out.computing, out.mean, out.p99) = std::tuple_cat(lost(1));
    out.mean_range = {out.mean, out.mean};
    for (int i = 0; i < kPrices; ++i) {
      check_cancelled();
      const double at = ratio.low + (ratio.high - ratio.low) * i / (kPrices - 1);
      const double mean = lost(std::exp(at))[1];
      out.mean_range = {std::min(out.mean_range.low, mean), std::max(out.mean_range.high, mean)};
    }
    for (std::size_t i = first_judged(); i < all_.steps.size(); ++i) {
      const RingPoint& p = at(i);
      if ((chosen[i] ? p.pass_kv : p.pass_q) <= std::min(p.pass_kv, p.pass_q)) ++out.right;
    }
    return out;
  }

  TokenSplit typical() const {
    std::vector<TokenSplit> steps(all_.steps.begin() + static_cast<std::ptrdiff_t>(first_judged()),
                                  all_.steps.end());
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end(), [](const TokenSplit& a, const TokenSplit& b) {
      return std::pair{a.fresh, a.cached} < std::pair{b.fresh, b.cached};
    });
    return *middle;
  }
  std::size_t first_judged() const { return all_.requests[judged_].first; }
  const RingPoint& at(std::size_t step) const { return points_[point_[step]]; }
  const ContextSteps& all() const { return all_; }
  double load() const { return load_; }
  double rate() const {
    return static_cast<double>(all_.requests.size() - 1) / (all_.requests.back().arrival * stretch_);
  }

 private:
  template <class Choice>
  std::vector<bool> each(Choice choice) const {
    std::vector<bool> of_points;
    for (const RingPoint& p : points_) of_points.push_back(choice(p));
    std::vector<bool> out;
    out.reserve(point_.size());
    for (const std::size_t p : point_) out.push_back(of_points[p]);
    return out;
  }

  ContextSteps all_;
  std::size_t judged_;  // the first request that is
  int ranks_;
  std::vector<std::size_t> point_;  // of each step
  std::vector<RingPoint> points_;
  double stretch_ = 1, load_ = 0;
};

// In parts of `of`, where all prices are off as far as the ends of their band.
std::pair<ErrorRange, ErrorRange> latency_ranges(const Context& c, const Latency& of,
                                                 const ErrorRange& prices) {
  const std::vector<bool> faster = c.faster();
  const Latency low = c.latency(c.spent_by(faster, 1, 1 + prices.low)),
                high = c.latency(c.spent_by(faster, 1, 1 + prices.high));
  return {{low.mean / of.mean - 1, high.mean / of.mean - 1}, {low.p99 / of.p99 - 1, high.p99 / of.p99 - 1}};
}

ContextRing play(const Study& study, const ThresholdStudy& found, const RingThresholds& ring,
                 const ContextQuestion& q, std::span<const TraceRequest> trace, const RingTimer& time) {
  const int tpa = study.thresholds().tpa;
  ContextRing out;
  out.ranks = ring.ranks;
  out.room = room_of(study.study, ring.ranks, tpa, q.chunk);
  const Context context(q, context_steps(trace, q.chunk, out.room, ring.ranks), ring.ranks, time);
  out.found = context.all().found;
  out.rate = context.rate();
  out.load = context.load();
  out.steps = context.all().steps.size();
  out.judged_steps = out.steps - context.first_judged();
  out.typical = context.typical();
  const RingErrors errors = ring_errors(study.study, ring.ranks, tpa, out.typical);
  const ErrorBand ratio = ratio_band(errors.pass_q, errors.pass_kv, FitErrors::shared)
                              .hull(ratio_band(errors.pass_q, errors.pass_kv, FitErrors::unrelated));
  for (std::size_t i = context.first_judged(); i < out.steps; ++i)
    out.open_steps += told_apart(context.at(i).pass_q / context.at(i).pass_kv, ratio) ? 0 : 1;
  const Latency best = context.latency(context.spent_by(context.faster()));
  out.mean = Seconds(best.mean);
  out.p99 = Seconds(best.p99);
  std::tie(out.mean_range, out.p99_range) = latency_ranges(context, best, time_error(errors.pass_kv));
  out.in_context = context.fitted();
  const EmpiricalRule fitted = out.in_context;
  out.rules.push_back(context.regret(
      "fitted in context", [&](int, long long t, long long p) { return fitted.pass_kv(t, p); },
      RuleAsked::each_step, ratio));
  for (const ThresholdRule& rule : found.rules) {
    out.rules.push_back(context.regret(rule.name, rule.choice, RuleAsked::each_step, ratio));
    if (rule.constant) continue;
    out.rules.push_back(context.regret(rule.name, rule.choice, RuleAsked::once, ratio));
  }
  return out;
}

}  // namespace

// Refused as soon as what was read needs too much.
std::vector<TraceRequest> read_prompts(const ContextQuestion& q, int threads) {
  std::error_code ignored;
  if (std::filesystem::is_directory(q.trace, ignored)) throw UserError(q.trace + ": a folder, no trace");
  InputStream file(q.trace);
  note_read(q.trace);
  TraceReader reader(file, q.trace);
  std::vector<TraceRequest> out;
  std::uint64_t blocks = 0, steps = 0;
  const auto require = [&] { require_memory(need_of_prompts(out.size(), blocks, steps, threads)); };
  for (TraceRequest row; (q.requests == 0 || out.size() < q.requests) && reader.next(row);) {
    if (out.size() % 256 == 0) require();
    check_cancelled();
    blocks += row.blocks.size();
    steps += static_cast<std::uint64_t>((row.input - 1) / q.chunk + 1);
    out.push_back(std::move(row));
  }
  require();
  if (out.size() < 2)
    throw UserError(q.trace +
                    ": a rule is fitted to half of the requests and judged on the other: two at least");
  return out;
}

ContextSteps context_steps(std::span<const TraceRequest> trace, long long chunk, long long room, int ranks) {
  const long long even = 2LL * ranks;
  ContextSteps out;
  double blocks = 0, tokens = 0, cached_tokens = 0;
  for (const TraceRequest& r : trace) {
    if (r.input > room)
      throw UserError(fmt::format("a prompt of {} tokens in the trace, and a replica of {} ranks holds {}",
                                  r.input, ranks, room));
    blocks += std::ceil(static_cast<double>(r.input) / kBlock);
  }
  // More than all prompts have are never used.
  PrefixCache cache(static_cast<std::uint32_t>(std::min(static_cast<double>(room / kBlock), blocks) + 1));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (i % 256 == 0) check_cancelled();
    const TraceRequest& r = trace[i];
    const long long cached = cache.find_and_keep(r, i);
    ContextRequest request{(r.arrival - trace.front().arrival).value, out.steps.size(), 0, {}};
    const auto rounded = [&](long long fresh, long long before) {
      return TokenSplit{(fresh + even - 1) / even * even, before / even * even};
    };
    for (long long at = cached; at < r.input; at += chunk)
      out.steps.push_back(rounded(std::min(chunk, r.input - at), at));
    request.count = out.steps.size() - request.first;
    request.whole = rounded(r.input - cached, cached);
    out.requests.push_back(request);
    tokens += static_cast<double>(r.input);
    cached_tokens += static_cast<double>(cached);
  }
  out.found = cached_tokens / tokens;
  return out;
}

std::vector<double> times_to_first(std::span<const ContextRequest> requests, double stretch,
                                   std::span<const double> spent) {
  std::vector<double> out(requests.size());
  double free = 0;
  CancelCheck check;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    check();
    const double arrival = requests[i].arrival * stretch;
    free = std::max(free, arrival) + spent[i];
    out[i] = free - arrival;
  }
  return out;
}

std::vector<double> who_waits(std::span<const ContextRequest> requests, double stretch,
                              std::span<const double> spent) {
  std::vector<double> out(requests.size(), 1);
  const std::vector<double> ttft = times_to_first(requests, stretch, spent);
  for (std::size_t i = requests.size() - 1; i-- > 0;) {
    const bool waits = requests[i + 1].arrival * stretch < requests[i].arrival * stretch + ttft[i];
    if (waits) out[i] += out[i + 1];
  }
  return out;
}

ContextStudy study_in_context(const Study& study, const ThresholdStudy& found, const ContextQuestion& q,
                              std::span<const TraceRequest> trace, int threads,
                              const std::function<void(std::size_t, std::size_t)>& progress) {
  SL_CHECK(q.chunk > 0 && q.rate >= 0 && q.load > 0 && q.load < 1,
           "a question in context has positive numbers");
  const RingTimer time = ring_timer(study.study, study.thresholds().tpa, threads);
  ContextStudy out;
  out.requests = trace.size();
  out.judged = trace.size() - trace.size() / 2;
  for (const TraceRequest& r : trace)
    out.input += static_cast<double>(r.input) / static_cast<double>(trace.size());
  for (const RingThresholds& ring : found.rings) {
    progress(out.rings.size(), found.rings.size());
    out.rings.push_back(play(study, found, ring, q, trace, time));
  }
  return out;
}

}  // namespace shardline
