// Pareto frontiers on any two metrics.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// What points are compared by. A point is of a step of some kind, which says what its numbers mean
/// (metrics_of): entries are the requests that decode, or those of a prefill, of one batch entry times the
/// plan's (value_of).
enum class Metric : std::uint8_t {
  speed,       // 1 / time
  throughput,  // entries / (time * GPUs)
  time,        // TTL or TTFT
  entries,     // at once
  gpus,
  memory,      // per GPU
  gpu_seconds  // time * GPUs / entries
};

/// A metric as scenarios name it, and as axes of pictures do.
struct NamedMetric {
  const char* name;
  const char* label;
  Metric metric;
};
/// Those of a kind of step, in the order of messages. A prefill has no speed: nobody reads one token of it at
/// a time.
std::span<const NamedMetric> metrics_of(StepKind kind);

/// Higher is better (else lower is).
bool maximised(Metric metric);

struct Point {
  Plan plan;
  Seconds time;     // TTL of a decode step, TTFT of a prefill; TPOT where a workload is served
  Bytes memory;     // per GPU
  Seconds ttft{0};  // where a workload is served
  /// Tokens that a user has of its answers in that time. Where prompts are served, too, the part of its time
  /// in which it decodes, and an answer's first token, which a step of its prompt gives.
  double decoding = 1;
  Seconds burst{0};  // mean TTFT of users who all come at once, where a workload is served
  /// Users beside the plan's batch, in each attention group, who find no room in memory and wait.
  int waiting = 0;
  /// The plan of all of its users: what to ask for, so that the same number of them waits.
  Plan asked() const {
    Plan out = plan;
    out.batch += waiting;
    return out;
  }
  /// Users of the deployment who wait so.
  long long all_waiting() const { return plan.users() / plan.batch * waiting; }
};

double value(Metric metric, const Point& point);
/// The same in the unit of metrics_of: with requests in place of the entries of a prefill.
double value_of(const Case& c, Metric metric, const Point& point);

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
  std::uint64_t order_of(std::size_t i) const { return entries_[i].order; }
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
