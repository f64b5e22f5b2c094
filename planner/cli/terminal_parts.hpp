// What commands print: in pipes as it is, at terminals no wider than they are.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reports/table.hpp"
#include "reports/terminal.hpp"
#include "sim/base/work_progress.hpp"

namespace shardline::cli {

/// Whole lines of text as fmt::print prints them, each wrapped where standard output has a width (not in
/// pipes). Tables of fitted() among them stay as they are.
template <class... Values>
void print_notes(fmt::format_string<Values...> format, Values&&... values) {
  fmt::print("{}", wrapped_lines(fmt::format(format, std::forward<Values>(values)...), output_width()));
}

/// A table no wider than standard output, if need be without its least important columns, but for the one of
/// the name `kept`.
std::string fitted(const Table& table, std::string_view kept = {});

/// Shows on standard error, where that is a terminal, how far one long work of this thread is, until it is
/// ended.
class WorkBar {
 public:
  explicit WorkBar(std::string of);
  /// From now on something else is shown.
  void end();

 private:
  void show(const char* what, std::uint64_t done, std::uint64_t total);
  std::string of_, what_;
  std::optional<Progress> progress_;
  WorkListener listener_;
  std::optional<WorkScope> scope_;
};

}  // namespace shardline::cli
