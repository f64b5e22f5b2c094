// How far the times of a partition study may be off. planner/README.md [P12], [P13].
#pragma once

#include <map>

#include "planner/studies/partition_study.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline {

/// How far the time of the partition that was found may be off, for contexts that were asked for, and whether
/// it is ahead of equal parts by more than that.
struct FoundErrors {
  ErrorTerms best;
  bool ahead_of_even = true;
};
using ErrorsByContext = std::map<long long, FoundErrors>;

/// Empty where no price is calibrated.
ErrorsByContext errors_of_partitions(const Study& study, const PartitionStudy& found);

/// Throws UserError of a model whose chains `partition` does not price: with experts, or with other attention
/// than one full kind.
void require_partitions(const Model& model);

}  // namespace shardline
