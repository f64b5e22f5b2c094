// Pareto frontiers on any two metrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// gpu_seconds: of one batch entry, so of one request where an entry is one.
enum class Metric : std::uint8_t {
  tokens_per_s_user,
  tokens_per_s_gpu,
  ttl,
  users,
  gpus,
  memory,
  gpu_seconds
};
const std::vector<std::string>& metric_names();
/// Higher is better (else lower is).
bool maximised(Metric metric);

struct Point {
  Plan plan;
  Seconds ttl;
  Bytes memory;  // per GPU
};

double value(Metric metric, const Point& point);

/// The points that no other point beats on both metrics. Of equal points the first (in insertion order of
/// plans) stays.
class Frontier {
 public:
  Frontier(Metric x, Metric y) : x_(x), y_(y) {}

  /// True if the point is on the frontier now. `order` decides between equal points: the smaller one stays.
  bool add(const Point& point, std::uint64_t order);
  void merge(const Frontier& other);

  /// True if some member is at least as good on both and better on one: nothing as good as (x, y) can enter.
  bool dominates(double x, double y) const;

  /// By ascending x metric.
  std::vector<Point> points() const;
  std::size_t size() const { return entries_.size(); }
  Metric x() const { return x_; }
  Metric y() const { return y_; }

 private:
  struct Entry {
    double x, y;  // higher is better
    std::uint64_t order;
    Point point;
  };
  Metric x_, y_;
  std::vector<Entry> entries_;  // ascending x, descending y
};

/// value with the sign that makes higher better.
double score(Metric metric, const Point& point);

}  // namespace shardline
