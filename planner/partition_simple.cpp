#include "planner/partition_simple.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace shardline {

namespace {

using Parts = std::vector<long long>;

// Parts c_i with c_i (S_i + linear) alike, where S_i ends at c_i: a token costs as much as `linear` pairs
// beside its own. Found by bisection on that product.
Parts equal_work(long long tokens, int ranks, double linear) {
  const auto n = static_cast<double>(tokens);
  const auto ends = [&](double work) {
    std::vector<double> s;
    double end = 0;
    for (int k = 0; k < ranks; ++k) {
      const double half = (end + linear) / 2;  // c^2 + 2 half c = work
      end += std::sqrt(half * half + work) - half;
      s.push_back(end);
    }
    return s;
  };
  double low = 0, high = n * (n + linear);
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (ends(middle).back() < n ? low : high) = middle;
  }
  Parts parts;
  long long before = 0;
  const std::vector<double> s = ends(high);
  for (int k = 0; k < ranks; ++k) {
    const long long most = tokens - (ranks - 1 - k);
    const long long end =
        k + 1 == ranks ? tokens : std::clamp(std::llround(s[static_cast<std::size_t>(k)]), before + 1, most);
    parts.push_back(end - before);
    before = end;
  }
  return parts;
}

class Search {
 public:
  Search(Evaluator& e, Plan plan) : evaluator_(e), plan_(std::move(plan)) {}

  void consider(const Parts& parts) {
    const double t = time(parts);
    if (best_.parts.empty() || t < best_.ttft.value) best_ = {parts, Seconds(t), 0};
  }

  // Gives `stride` tokens of any part to any other while that is faster.
  void refine(long long stride) {
    for (bool better = true; better;) {
      better = false;
      for (std::size_t from = 0; from < best_.parts.size(); ++from) {
        for (std::size_t to = 0; to < best_.parts.size(); ++to) {
          if (from == to || best_.parts[from] <= stride) continue;
          Parts parts = best_.parts;
          parts[from] -= stride;
          parts[to] += stride;
          const Seconds before = best_.ttft;
          consider(parts);
          better = better || best_.ttft < before;
        }
      }
    }
  }

  FoundPartition result() const {
    FoundPartition out = best_;
    out.evaluations = static_cast<int>(known_.size());
    return out;
  }

 private:
  double time(const Parts& parts) {
    const auto [it, fresh] = known_.try_emplace(parts, 0);
    if (fresh) {
      plan_.partition = parts;
      it->second = evaluator_.simulate(plan_).value;
    }
    return it->second;
  }

  Evaluator& evaluator_;
  Plan plan_;
  FoundPartition best_;
  std::map<Parts, double> known_;
};

}  // namespace

FoundPartition best_partition_by_events(Evaluator& evaluator, Plan plan) {
  const long long tokens = evaluator.study().requests.front().fresh;
  const int ranks = plan.cp;
  Search search(evaluator, std::move(plan));
  search.consider(interval_counts(tokens, ranks, {}));
  for (const double linear : {0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0})
    search.consider(equal_work(tokens, ranks, linear * static_cast<double>(tokens)));
  const long long finest = std::max(1LL, tokens / 1024);
  for (long long stride = std::max(finest, tokens / (4LL * ranks)); stride >= finest; stride /= 2)
    search.refine(stride);
  return search.result();
}

}  // namespace shardline
