// Strategies run on all their cases, and their schedules broken on purpose.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda_probe/execute/verify/verify_cases.hpp"

namespace shardline::cli {

/// Largest errors that are taken for rounding.
inline constexpr double kDoubleLimit = 1e-12, kFloatLimit = 1e-5;

/// The least and the largest |output - exact| / |exact| of some cases.
struct ExactDistance {
  double least = 1e300, most = 0;
};

struct VerifiedStrategy {
  const Strategy* strategy = nullptr;
  std::size_t cases = 0, failed = 0;
  double error_double = 0, error_float = 0;  // the largest
  double pairs = 0, messages = 0;            // of all cases; pairs: (q, k), of every head
  std::optional<ExactDistance> distance;     // of an approximate strategy
};

struct VerifyReport {
  std::vector<VerifiedStrategy> strategies;
  std::vector<std::string> faults;  // lines; those below a case are indented
  bool passed() const { return faults.empty(); }
};

/// Told before each case how many of all are done, by one thread at a time; may throw to stop.
using VerifyWatch = std::function<void(std::size_t done, std::size_t total)>;

/// All cases on up to `threads` threads (0: all cores). The report does not depend on their number, to the
/// last bit.
VerifyReport verify_strategies(std::span<const Strategy* const> chosen, const VerifyWatch& watch,
                               int threads = 0);

/// One way to break schedules, and how often that was found.
struct TriedMutation {
  const char* name;
  const char* what;
  int tried = 0, found = 0;
};

/// Each is tried on the first cases of every strategy that offer a place for it, at most two.
/// `watch` counts pairs of a mutation and a strategy. Threads as above.
std::vector<TriedMutation> try_mutations(std::span<const Strategy* const> chosen, const VerifyWatch& watch,
                                         int threads = 0);

}  // namespace shardline::cli
