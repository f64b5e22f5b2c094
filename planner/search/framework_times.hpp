// The same plan by the kernels of every framework whose kernels were measured on the system: how far apart
// libraries are, where a question names none. planner/README.md [P16].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hardware/cost/kernel_cost.hpp"
#include "planner/plan/case.hpp"

namespace shardline {

class Evaluator;

struct FrameworkTime {
  std::string framework, version;
  Seconds time;  // TTL or TTFT
};

/// Simulates plans of one case by the kernels of other frameworks. One object per thread, as Evaluator.
class OtherFrameworks {
 public:
  /// Of Case::frameworks, each read when the first case asks for it.
  OtherFrameworks(const Case& c, AllReduceRule rule);
  ~OtherFrameworks();
  OtherFrameworks(const OtherFrameworks&) = delete;
  OtherFrameworks& operator=(const OtherFrameworks&) = delete;

  /// Of the case as it is now: only its system must be the one of the constructor. In the order of their
  /// names; empty where the case says whose kernels run, its calibration does not ship,
  /// or no other framework was measured. The plan must pass check_plan().
  std::vector<FrameworkTime> times(const Case& c, const Plan& plan);

 private:
  struct Other;
  std::vector<std::unique_ptr<Other>> others_;
};

}  // namespace shardline
