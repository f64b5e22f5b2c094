#include "planner/search/pareto.hpp"

#include <algorithm>

namespace shardline {

std::span<const NamedMetric> metrics_of(StepKind kind) {
  static constexpr NamedMetric kDecode[] = {{"tokens_per_s_user", "tokens/s/user", Metric::speed},
                                            {"tokens_per_s_gpu", "tokens/s/GPU", Metric::throughput},
                                            {"ttl", "TTL (s)", Metric::time},
                                            {"users", "users", Metric::entries},
                                            {"gpus", "GPUs", Metric::gpus},
                                            {"memory", "memory per GPU (B)", Metric::memory},
                                            {"gpu_seconds", "GPU-seconds/token", Metric::gpu_seconds}};
  static constexpr NamedMetric kPrefill[] = {{"ttft", "TTFT (s)", Metric::time},
                                             {"gpus", "GPUs", Metric::gpus},
                                             {"gpu_seconds", "GPU-seconds/request", Metric::gpu_seconds},
                                             {"requests_per_s_gpu", "requests/s/GPU", Metric::throughput},
                                             {"requests", "requests at once", Metric::entries},
                                             {"memory", "memory per GPU (B)", Metric::memory}};
  return kind == StepKind::prefill ? std::span<const NamedMetric>(kPrefill) : kDecode;
}

bool maximised(Metric m) { return m == Metric::speed || m == Metric::throughput || m == Metric::entries; }

double value(Metric m, const Point& p) {
  switch (m) {
    case Metric::speed:
      return 1 / p.time.value;
    case Metric::throughput:
      return static_cast<double>(p.plan.users()) * p.decoding / (p.time.value * p.plan.gpus());
    case Metric::time:
      return p.time.value;
    case Metric::entries:
      return static_cast<double>(p.plan.users());
    case Metric::gpus:
      return p.plan.gpus();
    case Metric::memory:
      return p.memory.value;
    case Metric::gpu_seconds:
      return p.time.value * p.plan.gpus() / (static_cast<double>(p.plan.users()) * p.decoding);
  }
  return 0;
}

double value_of(const Case& c, Metric m, const Point& p) {
  // A plan's batch repeats that of the case.
  const Batch& b = c.batch;
  const auto each =
      static_cast<double>(std::max(1LL, requests_in(b.kind() == StepKind::prefill ? b.prefill : b.decode)));
  if (m == Metric::gpu_seconds) return value(m, p) / each;
  return value(m, p) * (m == Metric::throughput || m == Metric::entries ? each : 1);
}

double score(Metric m, const Point& p) { return maximised(m) ? value(m, p) : -value(m, p); }

bool Frontier::add(const Point& point, std::uint64_t order) {
  Entry e{score(x_, point), score(y_, point), order, point};
  // First entry whose x is not worse.
  auto at = std::lower_bound(entries_.begin(), entries_.end(), e.x,
                             [](const Entry& a, double x) { return a.x < x; });
  if (at != entries_.end() && at->y >= e.y) {
    if (at->x != e.x || at->y != e.y || at->order <= e.order) return false;
    *at = e;
    return true;
  }
  auto first = at;
  while (first != entries_.begin() && std::prev(first)->y <= e.y) --first;
  if (at != entries_.end() && at->x == e.x) ++at;  // equal x, worse y
  if (first == at) {
    entries_.insert(at, e);
  } else {
    *first = e;
    entries_.erase(first + 1, at);
  }
  return true;
}

void Frontier::merge(const Frontier& other) {
  for (const Entry& e : other.entries_) add(e.point, e.order);
}

bool Frontier::dominates(double x, double y) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), x, [](const Entry& a, double v) { return a.x < v; });
  return at != entries_.end() && at->y >= y && (at->x > x || at->y > y);
}

std::vector<Point> Frontier::points() const {
  std::vector<Point> out;
  out.reserve(entries_.size());
  for (const Entry& e : entries_) out.push_back(e.point);
  return out;
}

}  // namespace shardline
