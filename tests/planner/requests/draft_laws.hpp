// Laws of accepted drafts for tests.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "planner/requests/draft_law.hpp"
#include "sim/base/random.hpp"

namespace shardline {

// Draft j is accepted, if all before it were, with probability p g^(j-1).
inline std::vector<double> survival_of(double p, double g, int k) {
  std::vector<double> out;
  for (double all = 1; std::ssize(out) < k; p *= g) out.push_back(all *= p);
  return out;
}

inline DraftLaw draft_law(int k, double p, double g, std::uint64_t seed = 1) {
  return {survival_of(p, g, k), seed};
}

inline DraftLaw random_law(RandomStream& random) {
  const int drafts =
      1 + static_cast<int>(random.below(7));  // one draw a statement: the same by each compiler
  const double first = 0.3 + 0.7 * random.unit();
  const double later = 0.7 + 0.3 * random.unit();
  return draft_law(drafts, first, later, random.bits());
}

}  // namespace shardline
