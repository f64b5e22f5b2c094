// How tasks that are active together share resources: weighted max-min fairness by progressive filling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardline {

/// What is equal among tasks held back by one resource [S4].
enum class Sharing : std::uint8_t {
  equal_slowdown,  // each runs at the same fraction of the speed it has alone
  equal_rate,      // each moves the same bytes per second, counted on its largest demand in bytes
};

/// Solves one sharing problem [S3]. Speeds are fractions of the speed a task has alone; a task's claim on a
/// resource is the part of the capacity it uses at speed 1, and its largest claim is 1. Speeds grow as
/// weight * level until a resource is full; then that resource's tasks stay, and the others grow on.
/// Reusable: no allocation once the buffers are large enough.
class FairShare {
 public:
  void clear();
  /// Opens the next task; `weight` > 0.
  void add_task(double weight);
  /// The task opened last uses `claim` in (0, 1] of `resource`, counted from 0 within this problem.
  void add_claim(std::uint32_t resource, double claim);
  /// The speeds in (0, 1], in the order of add_task; valid until the next call.
  std::span<const double> solve();

 private:
  struct Task {
    double weight;
    std::uint32_t claims_end;
  };
  struct Claim {
    double size;
    std::uint32_t resource;
  };
  struct Pool {
    double left = 1;   // capacity not used by frozen tasks
    double load = 0;   // of growing tasks, per unit of level
    double level = 0;  // at which it is full
    std::uint32_t growing = 0;
  };

  std::span<const Claim> claims(std::uint32_t task) const;
  double fill_level();
  bool freeze(std::uint32_t task, double level, double floor);

  std::vector<Task> tasks_;
  std::vector<Claim> claims_;
  std::vector<Pool> pools_;
  std::vector<double> speeds_;
  std::vector<std::uint32_t> growing_;
};

}  // namespace shardline
