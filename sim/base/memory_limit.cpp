#include "sim/base/memory_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

std::atomic<double> g_most = kNone, g_part = 0;
thread_local std::optional<Bytes> g_scoped;

// The number that a text begins with, behind spaces.
std::optional<double> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{}) return std::nullopt;  // "max": no limit
  return value;
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

double total_memory(const std::filesystem::path& root) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kKey = "MemTotal:";
    if (line.starts_with(kKey))
      return number_in(std::string_view(line).substr(kKey.size())).value_or(0) * 1024;
  }
  return 0;
}

// The least limit of a group and of those around it, which are the folders above its own.
double group_limit(const std::filesystem::path& top, std::filesystem::path group, const char* file) {
  double least = kNone;
  for (group = group.relative_path();; group = group.parent_path()) {
    if (const auto limit = number_in(first_line(top / group / file))) least = std::min(least, *limit);
    if (group.empty()) return least;
  }
}

// Lines "0::/user/group" (version 2) and "5:cpu,memory:/group" (version 1): `man 7 cgroups`.
double limit_of_groups(const std::filesystem::path& root) {
  double least = kNone;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (kinds == ",,") least = std::min(least, group_limit(root / "sys/fs/cgroup", group, "memory.max"));
    if (kinds.find(",memory,") != std::string::npos)
      least = std::min(least, group_limit(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

Bytes machine_memory(const std::filesystem::path& root) {
  const double total = total_memory(root), limit = limit_of_groups(root);
  // A group without a limit has one of version 1 that no machine has: all 63 bits.
  if (total > 0) return Bytes(std::min(total, limit));
  return Bytes(limit < 1e18 ? limit : 0);
}

void limit_memory(Bytes most, double part_of_machine) {
  g_most = most.value;
  g_part = part_of_machine;
}

MemoryScope::MemoryScope(std::optional<Bytes> most) : outer_(g_scoped) { g_scoped = most; }
MemoryScope::~MemoryScope() { g_scoped = outer_; }
std::optional<Bytes> scoped_memory() { return g_scoped; }

void require_memory(const MemoryNeed& need) {
  const double most = g_scoped ? g_scoped->value : g_most.load(), part = g_scoped ? 0 : g_part.load();
  if (!(need.bytes.value > most)) return;
  const std::string whose = part > 0 ? fmt::format(" ({:.0f} % of the machine's)", 100 * part) : "";
  Diagnostic d;
  d.what = fmt::format("this needs about {} of memory, and may use {}{}: {}", to_string(need.bytes),
                       to_string(Bytes(most)), whose, need.most);
  d.details = {fmt::format("ask for less: {}", need.smaller),
               fmt::format("or allow it: {} \"{:.0f} GB\"", argument_name("memory"),
                           std::ceil(need.bytes.value / 1e9))};
  throw UserError({std::move(d)});
}

}  // namespace shardline
