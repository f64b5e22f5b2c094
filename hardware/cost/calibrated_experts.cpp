// Experts by fitted forms. hardware/README.md [H54].
#include <algorithm>
#include <climits>
#include <cmath>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/moe.hpp"

namespace shardline {

namespace {

// Experts in a type that no kernel was measured with are priced by those most alike: with scales of the same
// blocks, else of elements with as many bits, else by any of their arithmetic.
int unlikeness(Dtype measured, Dtype stored) {
  if (measured == stored) return 0;
  if (measured == Dtype::fp8 && stored == Dtype::fp8_dynamic) return 1;
  return element_bits(measured) == element_bits(stored) ? 2 : 3;
}

// Tokens of the group of which at least one expert is the rank's, each choice being one of its experts as
// often as its pairs are of all.
double received(const GroupedGemmShape& g) {
  const double tokens = static_cast<double>(g.tokens);
  if (g.passed <= g.pairs) return tokens;
  return tokens * -std::expm1(g.passed / tokens * std::log1p(-g.pairs / g.passed));
}

}  // namespace

FittedPrice CalibratedCost::experts_by(const Use& u, const PricedOp& op) const {
  const GroupedGemmShape& g = shape<GroupedGemmShape>(op);
  MoeLoad load;
  const MoeTokens over = tokens_of(u.context);
  load.tokens = of_group(over)                ? static_cast<double>(g.tokens)
                : over == MoeTokens::received ? received(g)
                                              : 0;
  load.hidden = static_cast<double>(g.hidden);
  load.width = static_cast<double>(g.inner);
  load.held = static_cast<double>(g.held);
  load.passed = of_group(over) ? g.passed : 0;
  load.rows = std::max(g.pairs, 1e-3);
  load.active = std::max(g.active, 1e-3);
  double where[kMostAxes];
  moe_coordinates(load, where);
  // The forms are of the whole layer; each product gets its share of the arithmetic.
  const double share = static_cast<double>(g.k) * static_cast<double>(g.n) /
                       (static_cast<double>(matrices_of_expert(g)) * load.hidden * load.width);
  const std::span axes(where, u.fit->form->axes.size());
  FormContext context = u.context;
  const Dtype stored = kernel_type(op.dtype);
  const bool altered = stored != u.stored;
  if (altered) context.b_bytes = bytes_per_element(stored);
  const double whole = moe_seconds(load, context, u.parameters) * std::exp(u.correction.at(axes));
  FittedPrice p =
      at_place(Seconds(std::max(whole * share, least(op, context))), u, u.fit->outside(axes), axes);
  if (altered) p.alter();
  return p;
}

// By the kernel that the engine takes for these weights and so many tokens. A floor holds for more tokens,
// too.
std::optional<FittedPrice> CalibratedCost::experts(const PricedOp& op) {
  const GroupedGemmShape& g = shape<GroupedGemmShape>(op);
  std::vector<Alternatives>& all = (g.gated ? gated_experts_ : plain_experts_)[at(op.math)];
  int nearest = INT_MAX;  // of how weights are stored: an exact price is always by one of these kernels
  for (const Alternatives& some : all)
    nearest = std::min(nearest, unlikeness(some.all.front().stored, kernel_type(op.dtype)));
  std::optional<FittedPrice> out;
  if (pricing_ == Pricing::floor) {
    for (const Alternatives& some : all) {
      if (unlikeness(some.all.front().stored, kernel_type(op.dtype)) != nearest) continue;
      for (const Use& u : some.all) {
        if (const FittedPrice p = experts_by(u, op); better(p, out)) out = p;
      }
    }
    return out;
  }
  OpSize size{.size = static_cast<double>(g.tokens)};
  size.expert_ranks = static_cast<int>(g.ranks);
  size.dispatched = g.dispatched;
  size.prompts = g.prompts;
  Alternatives* taken = nullptr;
  int least_unlike = INT_MAX;  // first in how weights are stored, then in the sizes that a rule is for
  for (Alternatives& some : all) {
    const Use& first = some.all.front();
    const int r = 2 * unlikeness(first.stored, kernel_type(op.dtype)) + (first.sizes.hold(size) ? 0 : 1);
    if (r < least_unlike) taken = &some, least_unlike = r;
  }
  if (taken == nullptr) return out;
  const std::array model{static_cast<double>(g.hidden), static_cast<double>(g.inner),
                         static_cast<double>(g.held), 1.0};
  out = experts_by(*measured_with(*taken, model, op), op);
  return out;
}

}  // namespace shardline
