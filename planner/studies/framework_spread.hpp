// The same plan by the kernels of every framework whose kernels were measured on the system: how far apart
// libraries are, where a question names none. planner/README.md [P16].
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

struct FrameworkTime {
  std::string framework, version;
  Seconds time;
};

/// [P16] The case's own framework first, then the others in the order of their names. Empty where the
/// question names a framework or a kernel, the system's calibration does not ship, or no other framework was
/// measured. The plan must pass check_plan().
std::vector<FrameworkTime> framework_spread(const Case& c, AllReduceRule rule, const Plan& plan,
                                            const std::filesystem::path& catalog_dir);

}  // namespace shardline
