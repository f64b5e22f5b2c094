// What the attention blocks of a plan's step do, op by op: tests sum it and set it beside what models say.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline::testing {

/// A plan by its text, whatever a search may list.
inline Plan plan_of(const Case& c, const std::string& text) {
  return shardline::plan_of(c, SearchSpace{}, text);
}

/// f(block, op, how often it runs on one rank), of a step.
template <class F>
void over_step(const Case& c, const Plan& p, F f) {
  Schedule s;
  lower(s, c, p);
  const std::vector<double> times = executions(s);
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) f(block, s.ops[i], times[b]);
  }
}

/// f(op, how often it runs on one rank), of all attention blocks of a step.
template <class F>
void over_attention(const Case& c, const Plan& p, F f) {
  over_step(c, p, [&](const Block& block, const Op& op, double times) {
    if (std::string_view(block.name) == "attention") f(op, times);
  });
}

inline bool near(double x, double y) { return std::abs(x - y) <= 1e-12 * std::abs(y); }

/// Of all layers: what the mixers of one token compute over a context, and the weights of their products.
struct MixersOfModel {
  double flops = 0, matrices = 0;
};
inline MixersOfModel mixers_of(const Model& m, long long context) {
  MixersOfModel out;
  for (const LayerRun& run : m.runs) {
    const Attention& a = m.attentions[static_cast<std::size_t>(run.attention)];
    out.flops += run.count * mixer_flops(a, static_cast<double>(context)).value;
    out.matrices += run.count * attention_matrices(m, a);
  }
  return out;
}

}  // namespace shardline::testing
