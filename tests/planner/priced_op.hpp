// What a plan's step pays for one of its ops, and by which kernel.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hardware/cost/kernel_cost.hpp"
#include "tests/planner/attention_ops.hpp"

namespace shardline::testing {

struct Priced {
  double seconds = 0;
  Basis basis = Basis::none;
  std::string kernel;
};

/// The first op of a kind, never below its floor.
inline Priced priced(const Case& c, const std::string& plan, OpKind kind) {
  Schedule s;
  lower(s, c, plan_of(c, plan));
  CostModel cost(c.system);
  for (const Op& op : s.ops) {
    if (op.kind != kind) continue;
    const OpCost price = cost.price(op);
    EXPECT_LE(cost.floor(op), cost.time(op)) << describe(op);
    return {cost.time(op).value, price.basis, price.fit ? price.fit->name() : ""};
  }
  return {};
}

}  // namespace shardline::testing
