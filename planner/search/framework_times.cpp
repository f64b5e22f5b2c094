#include "planner/search/framework_times.hpp"

#include "hardware/machine/frameworks.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory_need.hpp"

namespace shardline {

struct OtherFrameworks::Other {
  Case study;
  AllReduceRule rule;
  std::unique_ptr<Evaluator> evaluator;

  Other(Case c, AllReduceRule all_reduce) : study(std::move(c)), rule(all_reduce) {}
};

OtherFrameworks::OtherFrameworks(const Case& c, AllReduceRule rule) {
  if (!c.frameworks) return;
  for (System& system : c.frameworks->others(c.system)) {
    Case other;
    other.system = std::move(system);
    others_.push_back(std::make_unique<Other>(std::move(other), rule));
  }
}

OtherFrameworks::~OtherFrameworks() = default;

std::vector<FrameworkTime> OtherFrameworks::times(const Case& c, const Plan& plan) {
  std::vector<FrameworkTime> out;
  for (const std::unique_ptr<Other>& other : others_) {
    copy_but_system(c, other->study);  // which callers change from plan to plan: its batch, where tokens lie
    const KernelList& kernels = other->study.system.kernels;
    if (!other->evaluator) other->evaluator = std::make_unique<Evaluator>(other->study, other->rule);
    out.push_back({kernels.framework, kernels.version, other->evaluator->simulate(plan)});
    // A schedule of so many chunks takes hundreds of megabytes: one framework's at a time.
    if (rounds_of(c, plan) > kManyRounds) other->evaluator.reset();
  }
  return out;
}

}  // namespace shardline
