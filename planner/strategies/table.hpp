// Every strategy, one symbol per file. A new one is declared here and stands in the table of table.cpp.
#pragma once

#include "planner/strategies/strategy.hpp"

namespace shardline {

extern const Strategy kTensor, kPipeline, kDpEp, kKvShard, kHelix, kRingPassKv, kRingPassQ, kRingDecode,
    kAllgatherKv, kUlysses, kKvRunahead, kTsp, kApb, kStar, kSparse, kUsp, kStriped, kDcp;

}  // namespace shardline
