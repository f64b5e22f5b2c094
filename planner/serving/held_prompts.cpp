#include "planner/serving/held_prompts.hpp"

#include <algorithm>
#include <cmath>

namespace shardline {

namespace {

// That fewer than `count` come, of so many on average, at random.
double fewer(double mean, int count) {
  double one = std::exp(-mean), all = 0;
  for (int i = 0; i < count; ++i) {
    all += one;
    one *= mean / (i + 1);
  }
  return std::min(1.0, all);
}

}  // namespace

HeldPrompts held_prompts(const HoldingGroups& all, double come) {
  const double rate = come * all.groups, some = -std::expm1(-rate);  // of all; that any comes in a step
  const int groups = static_cast<int>(all.groups);
  // Prompts go to the groups in turn, so that all have some when as many have come as there are groups: that
  // they have not, so many steps behind the one in which the first ones came.
  const auto wait = [&](double steps) {
    return (fewer(rate * (steps + 1), groups) - (1 - some) * fewer(rate * steps, groups)) / some;
  };
  double behind = 0;
  for (int w = 0; w + 1 < all.passes; ++w) behind += wait(w);
  const double whole = 1 - wait(all.passes - 1);  // that all have some in time
  HeldPrompts out;
  out.decoding = 1 / some + behind;
  // As many are computed as come, also to groups that decode beside the prompts of others.
  out.prompts = come * (out.decoding + all.steps) / (1 + come * all.steps);
  if (out.prompts > 1) out.prompts = come * out.decoding;
  out.present = std::min(1.0, out.prompts);
  out.tokens = out.prompts / come;
  const double each = out.prompts / out.present;
  out.together = std::clamp(each, 1.0, all.most);
  out.rounds = std::max(1.0, each / out.together);
  // Of the wait for all the prompts see half on average, the first one all of it and the last one nothing;
  // of one that ends by itself the first one all, and each other one half.
  const double count = std::max(1.0, out.prompts * all.groups);
  out.waited = behind * (whole / 2 + (1 - whole) * (count + 1) / (2 * count));
  return out;
}

}  // namespace shardline
