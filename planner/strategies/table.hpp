// Every strategy, one symbol per file.
#pragma once

#include "planner/strategies/strategy.hpp"

namespace shardline {

extern const Strategy kTensor, kPipeline, kDpEp, kKvShard, kHelix, kRingPassKv, kRingPassQ, kRingDecode,
    kAllgatherKv, kUlysses, kKvRunahead, kTsp, kApb, kStar, kSparse;

}  // namespace shardline
