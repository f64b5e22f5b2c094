// How much memory this process may use in all, and refusing beforehand what needs more.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "sim/base/units.hpp"

namespace shardline {

/// What a question needs, most of it for one thing.
struct MemoryNeed {
  Bytes bytes{0};       // of the whole process, at its most: an estimate that is not below
  std::string most;     // "1,048,576 chunks of a prompt"
  std::string smaller;  // how to ask for less: "larger chunks (prefill_chunk)"
};

/// Memory of the machine, or the least of the limits that control groups (versions 1 and 2) set for this
/// process and for the groups around it. 0 where nothing says it. `root`: where /proc and /sys are.
Bytes machine_memory(const std::filesystem::path& root = "/");

/// What questions may need from now on. Without a call they may need any amount: a library does not know what
/// else its process does. The part is what the limit is of the machine, or 0, for messages.
void limit_memory(Bytes most, double part_of_machine = 0);

/// While it lives, questions of this thread, and of those that parallel_for gives a part of its work, may
/// need so much in place of what limit_memory() says. Scopes nest: the inner one holds.
class MemoryScope {
 public:
  /// Nothing: what limit_memory() says.
  explicit MemoryScope(std::optional<Bytes> most);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  std::optional<Bytes> outer_;
};

/// What the scopes of this thread say, to be given to another; nothing where there is none.
std::optional<Bytes> scoped_memory();

/// Throws UserError where `need` is above the limit: both numbers, and how to ask for less.
void require_memory(const MemoryNeed& need);

}  // namespace shardline
