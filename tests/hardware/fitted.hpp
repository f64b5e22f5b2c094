// Shipped systems, what their fits say of a shape, and prices held against it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline::testing {

inline const System& system_named(const std::string& name) {
  static std::map<std::string, System> all;
  const auto it = all.find(name);
  return it != all.end() ? it->second : all.emplace(name, catalog_system(name)).first->second;
}

/// What the shipped fit of a variant says of a shape, with a cold L2.
inline double fitted(const System& s, const char* family, const std::vector<std::string>& words,
                     std::vector<double> x) {
  for (const KernelFit& f : s.calibration.fits) {
    if (f.form->family != std::string_view(family) || f.words != words) continue;
    FormContext context;
    EXPECT_TRUE(f.form->context(f.words, s, context));
    // Prices of exchanges are of any experts.
    if (f.form->family == std::string_view("alltoall") && words[1] != "prepare") deal_at_random(context);
    std::vector<double> parameters = f.parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (f.form->parameters[p].name == std::string_view("l2")) parameters[p] = std::min(parameters[p], 2.0);
    }
    return predict(*f.form, context, parameters, f.correction, x);
  }
  ADD_FAILURE() << s.name << " has no such fit of " << family;
  return 0;
}

/// One parameter of it.
inline double parameter(const System& s, const char* family, const std::vector<std::string>& words,
                        std::string_view name) {
  for (const KernelFit& f : s.calibration.fits) {
    if (f.form->family != std::string_view(family) || f.words != words) continue;
    for (std::size_t p = 0; p < f.parameters.size(); ++p) {
      if (f.form->parameters[p].name == name) return f.parameters[p];
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

inline void expect_price(const System& s, const Op& op, double seconds, Basis basis, double within = 1e-12) {
  CostModel m(s);
  EXPECT_NEAR(m.time(op).value / seconds, 1, within) << s.name;
  EXPECT_EQ(to_string(m.price(op).basis), to_string(basis)) << s.name;
}

}  // namespace shardline::testing
