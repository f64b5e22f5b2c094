#include "planner/search/pareto.hpp"

#include <algorithm>

namespace shardline {

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names{
      "tokens_per_s_user", "tokens_per_s_gpu", "ttl", "users", "gpus", "memory", "gpu_seconds"};
  return names;
}

bool maximised(Metric m) {
  return m == Metric::tokens_per_s_user || m == Metric::tokens_per_s_gpu || m == Metric::users;
}

double value(Metric m, const Point& p) {
  switch (m) {
    case Metric::tokens_per_s_user:
      return 1 / p.ttl.value;
    case Metric::tokens_per_s_gpu:
      return static_cast<double>(p.plan.users()) / (p.ttl.value * p.plan.gpus());
    case Metric::ttl:
      return p.ttl.value;
    case Metric::users:
      return static_cast<double>(p.plan.users());
    case Metric::gpus:
      return p.plan.gpus();
    case Metric::memory:
      return p.memory.value;
    case Metric::gpu_seconds:
      return p.ttl.value * p.plan.gpus() / static_cast<double>(p.plan.users());
  }
  return 0;
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
