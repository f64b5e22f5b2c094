// Does a schedule compute what one device computes, and does it charge what it does?
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cpu/reference.hpp"

namespace shardline {

/// |got - want| over the largest |want| of the row; the largest of all elements.
struct Check {
  double max_error_double = std::numeric_limits<double>::infinity();
  double max_error_float = std::numeric_limits<double>::infinity();
  std::string worst;                // where max_error_double is
  std::vector<std::string> faults;  // one line each
  Done counts;                      // of all ops and ranks, one run
  int timed_only = 0;               // ops without data flow

  bool passed(double limit_double = 1e-12, double limit_float = 1e-5) const {
    return faults.empty() && max_error_double <= limit_double && max_error_float <= limit_float;
  }
};

/// fullest_rank: the charge of an op is the most that any rank does, not what each does.
enum class Charges : std::uint8_t { none, every_rank, fullest_rank };

struct CheckOptions {
  bool hazards = true;  // look for missing dependencies also without running
  Charges charges = Charges::every_rank;
};

/// Runs the data flow in double in every Order (random: three seeds) and in float, on the inputs of
/// reference(problem). Faults: a data flow that cannot be run; an expected output element that no rank gives;
/// results that differ in any bit between orders; hazards; charges. Charges compare for each op and rank what
/// was done with the shape of the rank's class, to 1e-9: pairs, query rows and KV elements of attends,
/// multiply-adds of gemms, bytes that leave (all_gather and all_reduce: the charge times size - 1;
/// reduce_scatter: times (size - 1) / size); messages stay inside the op's group.
/// A schedule whose layers are of several kinds of attention is given one problem for each: Binding::kind
/// says which of them an input is drawn from, and an output compared with. Each must have an output, and
/// their `scale` must be one. A binding of a kind that is not in the list is a fault.
Check check(const Schedule& schedule, std::span<const Problem> kinds, const CheckOptions& options = {});
Check check(const Schedule& schedule, const Problem& problem, const CheckOptions& options = {});

}  // namespace shardline
