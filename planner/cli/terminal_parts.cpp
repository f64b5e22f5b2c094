#include "planner/cli/terminal_parts.hpp"

#include <array>
#include <string_view>

#include "planner/cli/interval_parts.hpp"

namespace shardline::cli {

std::string fitted(const Table& table) {
  // What follows from other columns, or is in the plan's text, goes first.
  static constexpr std::array<std::string_view, 20> kLeast{"source",
                                                           "windows, chunks",
                                                           "KV hit rate",
                                                           "memory/GPU",
                                                           "extrapolated",
                                                           "assumed",
                                                           "burst",
                                                           "TPOT budget",
                                                           "TTL budget",
                                                           "tokens/s/user",
                                                           "GPU-seconds/request",
                                                           "prefill busy",
                                                           "decode busy",
                                                           "prefill GPUs per decode GPU",
                                                           "TTFT budget",
                                                           kIntervalColumn,
                                                           "fit",
                                                           "stride",
                                                           "HBM bandwidth",
                                                           "GPUs"};
  return table.text_within(output_width(), kLeast);
}

}  // namespace shardline::cli
