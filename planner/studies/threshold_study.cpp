#include "planner/studies/threshold_study.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Of `total` tokens, with even sharding over a ring.
TokenSplit split_at(double miss, long long total, int ranks) {
  const long long even = 2LL * ranks;
  const long long fresh = std::max(even, std::llround(miss * static_cast<double>(total)) / even * even);
  return {fresh, (total - fresh) / even * even};
}

std::optional<RingCrossing> crossing_of(const Study& study, int ranks, const LookupTable& table) {
  constexpr double kStep = 1.01;  // of miss rates
  const ThresholdGrid& g = study.thresholds();
  if (study.study.system.calibration.empty()) return std::nullopt;
  RingCrossing out;
  out.total = std::min(g.total_to, kCrossingTotal);
  const auto total = static_cast<double>(out.total);
  const double low = std::max(g.lowest_miss_rate, static_cast<double>(g.fresh_from) / total),
               high = std::min(1.0, static_cast<double>(g.fresh_to) / total);
  const auto ratio = [&](double miss) {
    const TokenSplit s = split_at(miss, out.total, ranks);
    return table.log_ratio(s.fresh, s.cached);
  };
  if (low >= high || (ratio(low) >= 0) == (ratio(high) >= 0)) return std::nullopt;
  double from = low, to = high;
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(from * to);
    ((ratio(middle) >= 0) == (ratio(low) >= 0) ? from : to) = middle;
  }
  out.miss = to;
  const RingErrors errors = ring_errors(study.study, ranks, g.tpa, split_at(out.miss, out.total, ranks));
  // What is known to be off on one side (a band's middle) moves the crossing, so that it need not lie inside.
  const auto around = [&](FitErrors by) {
    RingCrossing::Open o{ratio_band(errors.pass_q, errors.pass_kv, by), out.miss, out.miss};
    bool any = false;
    for (double miss = low; miss <= high; miss *= kStep) {
      check_cancelled();
      if (told_apart(std::exp(ratio(miss)), o.ratio)) continue;
      if (!any) o.lowest = miss;
      o.most = miss;
      any = true;
    }
    // Between two of these rates, where it is not told apart itself.
    if (any && !told_apart(std::exp(ratio(out.miss)), o.ratio)) {
      o.lowest = std::min(o.lowest, out.miss);
      o.most = std::max(o.most, out.miss);
    }
    return o;
  };
  out.shared = around(FitErrors::shared);
  out.unrelated = around(FitErrors::unrelated);
  return out;
}

RingThresholds derive(const Study& study, int ranks, const RingTimer& time, int threads) {
  const ThresholdGrid& g = study.thresholds();
  DerivedTable derived = derive_table(g, ranks, time);
  // The probes cluster where the choice jumps; the fit is of the grid.
  const EmpiricalRule fitted =
      fit_empirical(std::span(derived.refined.points).first(derived.refined.grid_points));
  const auto algorithm = [&](bool achieved) {
    return algorithm_5(ring_setting(study.study, g.cp.back(), g.tpa, achieved), ranks);
  };
  const Shares shares = ring_shares(study.study, ranks, g.tpa, derived.tests, kRatedRequests, threads);
  const std::size_t rated = std::min<std::size_t>(kRatedRequests, derived.tests.size());
  const auto crossing = crossing_of(study, ranks, derived.refined.table);
  return {ranks,
          std::move(derived.refined),
          fitted,
          std::move(derived.tests),
          rated,
          shares,
          algorithm(false),
          algorithm(true),
          {},
          crossing};
}

std::vector<ThresholdRule> rules_of(const Study& study, const std::vector<RingThresholds>& rings) {
  const ThresholdGrid& g = study.thresholds();
  // Rules outlive the rings that they were made from.
  const auto tables = std::make_shared<std::vector<LookupTable>>();
  const auto fitted = std::make_shared<std::vector<std::pair<int, EmpiricalRule>>>();
  for (const RingThresholds& r : rings) {
    tables->push_back(r.refined.table);
    fitted->emplace_back(r.ranks, r.empirical);
  }
  const RingSetting peak = ring_setting(study.study, g.cp.back(), g.tpa, false),
                    achieved = ring_setting(study.study, g.cp.back(), g.tpa, true);
  const auto analytic = [](AnalyticRule (*make)(const RingSetting&, int), RingSetting s) {
    return [make, s](int n, long long t, long long p) { return make(s, n).pass_kv(t, p); };
  };
  return {
      {"lookup table",
       [tables](int n, long long t, long long p) { return nearest_table(*tables, n).pass_kv(t, p); }, true},
      {"fitted h(T, P)",
       [fitted](int n, long long t, long long p) {
         const auto at =
             std::find_if(fitted->begin(), fitted->end(), [&](const auto& ring) { return ring.first == n; });
         return at->second.pass_kv(t, p);
       },
       true},
      {"Appendix D as printed", [](int, long long t, long long p) { return appendix_d().pass_kv(t, p); },
       true},
      {"Algorithm 1, peaks", analytic(algorithm_1, peak)},
      {"Algorithm 1, achieved", analytic(algorithm_1, achieved), true},
      {"Algorithm 5, peaks", analytic(algorithm_5, peak)},
      {"Algorithm 5, achieved", analytic(algorithm_5, achieved), true},
      {"always pass KV", [](int, long long, long long) { return true; }, false, true},
      {"always pass Q", [](int, long long, long long) { return false; }, false, true}};
}

}  // namespace

bool RingCrossing::Open::holds(const RingPoint& p) const { return !told_apart(p.pass_q / p.pass_kv, ratio); }

std::size_t ThresholdStudy::timed() const {
  std::size_t all = 0;
  for (const RingThresholds& r : rings) all += r.refined.points.size() + r.tests.size();
  return all;
}

ThresholdStudy study_thresholds(const Study& study, int threads,
                                const std::function<void(std::size_t, std::size_t)>& progress) {
  const Model& m = study.study.model;
  if (has_latents(m))
    throw UserError(m.name + ": thresholds compare messages of GQA models; MLA passes a latent");
  if (!one_attention(m) || has_local_attention(m))
    throw UserError(m.name + ": thresholds are of models whose layers all have full attention of one kind");
  const ThresholdGrid& g = study.thresholds();
  const RingTimer time = ring_timer(study.study, g.tpa, threads);
  ThresholdStudy out;
  for (const int ranks : g.cp) {
    progress(out.rings.size(), g.cp.size());
    out.rings.push_back(derive(study, ranks, time, threads));
  }
  out.rules = rules_of(study, out.rings);
  for (RingThresholds& ring : out.rings) {
    for (const ThresholdRule& rule : out.rules) {
      check_cancelled();
      ring.regrets.push_back(regret(ring.tests, rule.choice));
    }
  }
  return out;
}

std::optional<double> miss_boundary(const ThresholdGrid& g, const RingChoice& choice, int ranks,
                                    double fresh) {
  const auto kv = [&](double miss) {
    return choice(ranks, std::llround(fresh), std::llround(fresh / miss - fresh));
  };
  double low = std::max(g.lowest_miss_rate, fresh / static_cast<double>(g.total_to)), high = 1;
  if (low >= high || kv(low) == kv(high)) return std::nullopt;
  const bool at_low = kv(low);
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    (kv(middle) == at_low ? low : high) = middle;
  }
  return high;
}

RatioStudy study_ratios(const Study& study, int threads) {
  const ThresholdGrid& g = study.thresholds();
  const RingTimer time = ring_timer(study.study, g.tpa, threads);
  RatioStudy out;
  out.total = std::min(g.total_to, kCrossingTotal);
  const auto total = static_cast<double>(out.total);
  for (const int n : g.cp) {
    std::vector<TokenSplit> splits;
    for (double t = total / 100; t < total * 1.0001; t *= 1.05) {
      const long long fresh = std::min(out.total, std::llround(t)) / (2 * n) * (2 * n);
      const long long cached = (out.total - fresh) / (2 * n) * (2 * n);
      if (fresh > 0) splits.push_back({fresh, cached});
    }
    out.rings.push_back(time(n, splits));
  }
  return out;
}

}  // namespace shardline
