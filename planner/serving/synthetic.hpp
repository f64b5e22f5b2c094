// Requests made up: lengths of given mean and spread, and a part that begins with shared text.
#pragma once

#include <cstdint>

#include "planner/serving/trace.hpp"
#include "sim/queue/variate.hpp"

namespace shardline {

struct SyntheticLaw {
  Variate input, output;  // tokens of a request, the shared beginning included; rounded, at least one
  /// The part of the requests that begin with one of `prefixes` texts, each as probable; of whole blocks of
  /// kTraceBlock tokens, so that a text shorter than one is not shared.
  double shared = 0;
  std::uint64_t prefixes = 1;
  Variate prefix =
      Variate::fixed(0);  // tokens of each of the texts, drawn once for all; cut where the input is shorter
};

/// Request number i of a seed, whatever was asked for before: the requests of two simulations with one seed
/// are the same whoever takes them in which order.
class SyntheticRequests {
 public:
  /// Checked: 0 <= shared <= 1, from 1 to 2^40 prefixes.
  SyntheticRequests(SyntheticLaw law, std::uint64_t seed);
  /// number < 2^40 (checked). Its blocks beyond the shared ones are those of no other request.
  TraceRequest make(std::uint64_t number, Seconds arrival) const;

 private:
  SyntheticLaw law_;
  RandomStream requests_, texts_;
};

}  // namespace shardline
