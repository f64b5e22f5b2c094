// Random pairs of a plan that prefills and one that decodes, on small models of every kind of attention.
#pragma once

#include <random>
#include <string>

#include "planner/handoff/pieces.hpp"

namespace shardline::testing {

struct RandomPair {
  Case study;
  Plan prefill, decode;
  int prefill_group = 0, decode_group = 0;
  long long tokens = 1;
  HandoffPages pages;
  std::string what;
};

/// Up to three layers of each kind, up to `most_tokens` tokens; heads divide evenly over the ranks.
RandomPair random_pair(std::mt19937& random, int most_tokens);
Handoff handoff_of(const RandomPair& pair);

}  // namespace shardline::testing
