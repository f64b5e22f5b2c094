// The parts of a scenario file that are read alike wherever they stand.
#pragma once

#include <optional>

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

inline constexpr long long kLargestSeed = 1'000'000'000'000'000;
inline constexpr long long kLongest = 1'000'000'000;  // tokens of any sequence

/// Reader::one_of, but nothing where it recorded a fault: a first name in its place would cause faults that
/// are none.
std::optional<std::size_t> choice(const Reader& r, const std::vector<std::string>& names);

/// One count, a list, or {from, to} with an optional step: `double` or a number to add. Ascending, each once.
std::vector<int> read_counts(const Reader& r, int highest, int lowest = 1);

/// One number of tokens or a list: ascending, each once.
std::vector<int> read_token_counts(const Reader& r, int lowest, int highest);

/// Over what `engine` says of them.
Kernels read_kernels(const Reader& r, Kernels engine);
std::vector<Segment> read_requests(const Reader& r);
/// Requests that decode: [{context: 128Ki tokens, count: 32}].
std::vector<Segment> read_decoding(const Reader& r);
Conversation read_conversation(const Reader& r, int system_gpus);
ThresholdGrid read_thresholds(const Reader& r, int system_gpus);
NoiseSpec read_noise(const Reader& r);
PartitionGrid read_partition(const Reader& r, int system_gpus);

}  // namespace shardline::scenario_parts
