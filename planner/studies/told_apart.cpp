#include "planner/studies/told_apart.hpp"

#include <algorithm>
#include <cmath>

namespace shardline {

namespace {

enum class Of : std::uint8_t { time, rate, neither };
Of kind_of(Metric m) {
  switch (m) {
    case Metric::speed:
    case Metric::throughput:
      return Of::rate;
    case Metric::time:
    case Metric::gpu_seconds:
      return Of::time;
    case Metric::entries:
    case Metric::gpus:
    case Metric::memory:
      return Of::neither;
  }
  return Of::neither;
}

// The same terms under sources that nothing else has. Both run by the kernels of one library all the same.
ErrorTerms of_its_own(const ErrorTerms& terms) {
  ErrorTerms out;
  for (ErrorTerm t : terms.all()) {
    t.source ^= 0x8000'0000;
    out.add(t);
  }
  out.set_libraries({terms.libraries().begin(), terms.libraries().end()});
  return out;
}

}  // namespace

ErrorBand ratio_band(const ErrorTerms& one, const ErrorTerms& other, FitErrors errors) {
  return ratio_band(one, errors == FitErrors::shared ? other : of_its_own(other));
}

std::optional<ErrorBand> ratio_band(const RatedPoints& rated, Metric metric, const Point& one,
                                    const Point& other, FitErrors errors) {
  const ErrorTerms &a = rated.of(one.plan).errors, &b = rated.of(other.plan).errors;
  switch (kind_of(metric)) {
    case Of::time:
      return ratio_band(a, b, errors);
    case Of::rate:
      return ratio_band(b, a, errors);
    case Of::neither:
      break;
  }
  return std::nullopt;
}

bool told_apart(const RatedPoints& rated, Metric metric, const Point& one, const Point& other,
                FitErrors errors) {
  const std::optional<ErrorBand> band = ratio_band(rated, metric, one, other, errors);
  return !band || told_apart(value(metric, one) / value(metric, other), *band);
}

std::vector<StrategyId> maybe_better(const RatedPoints& rated, Metric metric, const Point& winner,
                                     const std::function<bool(const Point&)>& counts, FitErrors errors) {
  const bool exact = strategy(winner.plan.strategy).exact;
  std::vector<const Point*> bests;  // of each strategy
  for (const Point& p : rated.points) {
    if (p.plan.strategy == winner.plan.strategy || !counts(p)) continue;
    if (exact && !strategy(p.plan.strategy).exact) continue;
    const auto of_it = [&](const Point* q) { return q->plan.strategy == p.plan.strategy; };
    const auto at = std::find_if(bests.begin(), bests.end(), of_it);
    if (at == bests.end()) {
      bests.push_back(&p);
    } else if (score(metric, p) > score(metric, **at)) {
      *at = &p;
    }
  }
  std::vector<StrategyId> out;
  for (const Point* p : bests) {
    if (!told_apart(rated, metric, winner, *p, errors)) out.push_back(p->plan.strategy);
  }
  return out;
}

}  // namespace shardline
