#include "planner/requests/draft_law.hpp"

#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

namespace shardline {

DraftLaw::DraftLaw(std::vector<double> survival, std::uint64_t seed)
    : survival_(std::move(survival)), seed_(seed), key_(RandomStream(seed, "accepted drafts").bits()) {
  double before = 1;
  for (const double s : survival_) {
    SL_CHECK(s >= 0 && s <= before, "more drafts are accepted together no more often");
    before = s;
  }
}

std::uint32_t DraftLaw::tokens(std::uint64_t request, std::uint32_t n, std::uint32_t verified) const {
  SL_CHECK(verified <= survival_.size(), "a step verifies the drafts that there are");
  if (verified == 0) return 1;
  const double u = random_unit(key_, request, n);
  std::uint32_t accepted = 0;
  while (accepted < verified && u < survival_[accepted]) ++accepted;
  return 1 + accepted;
}

}  // namespace shardline
