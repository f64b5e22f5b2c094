// From the answers of thresholds, partition and conversation. Not installed.
#pragma once

#include <optional>
#include <vector>

#include "planner/api/conversation.hpp"
#include "planner/api/partition.hpp"
#include "planner/api/thresholds.hpp"
#include "planner/studies/conversation.hpp"
#include "planner/studies/partition_errors.hpp"
#include "planner/studies/threshold_context.hpp"
#include "planner/studies/threshold_study.hpp"

namespace shardline::api {

ModelThresholds model_thresholds(const Study& study, const ThresholdStudy& found);
/// Nothing without a trace. Throws UserError of numbers that are out of range, or that are of a trace only.
std::optional<ContextQuestion> context_question(const ThresholdsQuestion& question);
ThresholdsInContext in_context(const Study& study, const ContextStudy& found);

/// Lays the question's own numbers over those of the study's grid, in place. Throws UserError of a model that
/// `partition` does not price, of numbers out of range, and of contexts too short for their ranks.
void ask_partitions(Study& study, const PartitionQuestion& question);
ChainPartitions chain_partitions(const PartitionStudy& found, const ErrorsByContext& errors);
ModelPartitions model_partitions(const Study& study, std::vector<ChainPartitions> chains);
ModelConversation model_conversation(const Study& study, const std::vector<TurnTime>& turns);

}  // namespace shardline::api
