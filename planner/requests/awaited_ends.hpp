// Requests whose text may be in a cache up to its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace shardline {

/// Of requests that wait, those whose text may be found up to its last whole block, so that next to nothing
/// of it is left to compute: any other need not be looked up. One may be since that block was in the cache,
/// which is known by the id that stands for it in the trace; it stays among them though the block may be
/// lost.
class AwaitedEnds {
 public:
  using Id = std::uint32_t;

  /// One waits whose last whole block an id of its trace stands for.
  void add(Id id, std::uint64_t end) { waiting_[end].push_back(id); }
  /// One that waits, by an id or none, may be found.
  void add_found(Id id) { found_.push_back(id); }
  /// One waits no more, whose last whole block this id stands for, or none.
  void remove(Id id, std::optional<std::uint64_t> end) {
    if (const auto found = std::find(found_.begin(), found_.end(), id); found != found_.end()) {
      found_.erase(found);
      return;
    }
    if (!end) return;
    const auto all = waiting_.find(*end);
    if (all == waiting_.end()) return;
    std::erase(all->second, id);
    if (all->second.empty()) waiting_.erase(all);
  }
  /// Text that ids stand for is in the cache.
  void store(std::span<const std::uint64_t> ids) {
    if (waiting_.empty()) return;
    for (const std::uint64_t id : ids) {
      const auto all = waiting_.find(id);
      if (all == waiting_.end()) continue;
      found_.insert(found_.end(), all->second.begin(), all->second.end());
      waiting_.erase(all);
    }
  }
  /// Those that may be found, in any order.
  const std::vector<Id>& found() const { return found_; }
  /// How many wait for an id.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::vector<Id>> waiting_;  // not among the found
  std::vector<Id> found_;
};

}  // namespace shardline
