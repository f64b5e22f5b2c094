#include "planner/studies/framework_spread.hpp"

#include <algorithm>

#include "hardware/machine/frameworks.hpp"

namespace shardline {

std::vector<FrameworkTime> framework_spread(const Case& c, AllReduceRule rule, const Plan& plan,
                                            const std::filesystem::path& catalog_dir) {
  const KernelList& own = c.system.kernels;
  const Calibration& calibration = c.system.calibration;
  if (own.named || calibration.empty() || calibration.name.empty()) return {};
  std::vector<FrameworkTime> out;
  const auto add = [&](const Case& of) {
    Evaluator evaluator(of, rule);
    out.push_back({of.system.kernels.framework, of.system.kernels.version, evaluator.simulate(plan)});
  };
  for (const std::string& framework : kernel_list_names(catalog_dir)) {
    if (framework == own.framework || !framework_calibration(calibration.name, framework, catalog_dir))
      continue;
    Case other = c;
    use_framework(other.system, framework, catalog_dir);
    if (out.empty()) add(c);
    add(other);
  }
  return out;
}

}  // namespace shardline
