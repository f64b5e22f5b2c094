// Which actions the kernels can run, and on which kernel an attend runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda_probe/execute/cuda/layout.hpp"

namespace shardline {

/// Which kernel an attend runs on.
enum class AttendKernel : std::uint8_t { prefill, decode, latent_decode };

/// The cache of each query row: key rows [begin, begin + count).
struct CachedKeys {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> count;
};
/// Where every request has one query row, which sees all of its keys, and these follow each other; rows that
/// see nothing have no cache. Nothing for other lists.
std::optional<CachedKeys> cache_rows(TokenView queries, TokenView keys);

AttendKernel attend_kernel(const Dataflow& flow, const Action& action);

/// Why no kernel runs this action, or empty: regions outside their slots or of unequal shapes, widths and
/// head counts that the kernels exclude, outputs over inputs.
std::string why_not(const Dataflow& flow, const Layout& layout, const Action& action);

}  // namespace shardline
