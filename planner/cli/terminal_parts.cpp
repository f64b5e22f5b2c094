#include "planner/cli/terminal_parts.hpp"

#include <array>
#include <string_view>
#include <vector>

#include "planner/cli/interval_parts.hpp"

namespace shardline::cli {

std::string fitted(const Table& table, std::string_view kept) {
  // What follows from other columns, or is in the plan's text, goes first.
  static constexpr std::array<std::string_view, 21> kLeast{"source",
                                                           "computing",
                                                           "windows, chunks",
                                                           "KV hit rate",
                                                           "memory/GPU",
                                                           "extrapolated",
                                                           "assumed",
                                                           "burst",
                                                           "tokens/s/user",
                                                           "GPU-seconds/request",
                                                           "prefill busy",
                                                           "decode busy",
                                                           "prefill GPUs per decode GPU",
                                                           kIntervalColumn,
                                                           "TPOT budget",
                                                           "TTL budget",
                                                           "TTFT budget",
                                                           "fit",
                                                           "stride",
                                                           "HBM bandwidth",
                                                           "GPUs"};
  std::vector<std::string_view> least(kLeast.begin(), kLeast.end());
  if (std::erase(least, kept) > 0) least.insert(least.end() - 1, {"TTL", "TPOT"});
  return table.text_within(output_width(), least);
}

WorkBar::WorkBar(std::string of)
    : of_(std::move(of)), listener_([this](const char* what, std::uint64_t done, std::uint64_t total) {
        show(what, done, total);
      }) {
  if (Progress::terminal()) scope_.emplace(&listener_);
}

void WorkBar::end() {
  scope_.reset();
  progress_.reset();
}

void WorkBar::show(const char* what, std::uint64_t done, std::uint64_t total) {
  if (done == 0 || what_ != what) {
    what_ = what;
    progress_.emplace(of_, true, what_);
  }
  progress_->show(done, total);
}

}  // namespace shardline::cli
