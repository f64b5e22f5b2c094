// Requests whose text may be in a cache up to its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"

namespace shardline {

/// Of requests that wait, those whose text may be found up to its last whole block, so that next to nothing
/// of it is left to compute: any other need not be looked up. One may be since that block was in the cache,
/// which is known by the id that stands for it in the trace; it stays among them though the block may be
/// lost. Each id of a text that is stored is looked for, and next to none of them is awaited: one place of a
/// flat table tells so, where a node of each would be two or three.
class AwaitedEnds {
 public:
  using Id = std::uint32_t;

  /// One waits whose last whole block an id of its trace stands for.
  void add(Id id, std::uint64_t end) {
    const std::uint32_t one = waiting_.add({id, 0});
    const std::uint32_t first = firsts_.try_insert(key(end), one);
    if (first == 0) return;
    waiting_[one].next = waiting_[first].next;
    waiting_[first].next = one;
  }
  /// One that waits, by an id or none, may be found.
  void add_found(Id id) { found_.push_back(id); }
  /// One waits no more, whose last whole block this id stands for, or none.
  void remove(Id id, std::optional<std::uint64_t> end) {
    if (const auto found = std::find(found_.begin(), found_.end(), id); found != found_.end()) {
      found_.erase(found);
      return;
    }
    if (!end) return;
    std::uint32_t before = 0, one = firsts_.find(key(*end));
    for (; one != 0 && waiting_[one].id != id; one = waiting_[one].next) before = one;
    if (one == 0) return;
    const std::uint32_t next = waiting_[one].next;
    if (before != 0)
      waiting_[before].next = next;
    else if (next != 0)
      firsts_.replace(key(*end), next);
    else
      firsts_.erase(key(*end));
    waiting_.drop(one);
  }
  /// Text that ids stand for is in the cache.
  void store(std::span<const std::uint64_t> ids) {
    if (firsts_.size() == 0) return;
    for (const std::uint64_t id : ids) {
      std::uint32_t one = firsts_.find(key(id));
      if (one == 0) continue;
      firsts_.erase(key(id));
      while (one != 0) {
        found_.push_back(waiting_[one].id);
        const std::uint32_t next = waiting_[one].next;
        waiting_.drop(one);
        one = next;
      }
    }
  }
  /// Those that may be found, in any order.
  const std::vector<Id>& found() const { return found_; }
  /// How many ids are waited for.
  std::size_t waiting() const { return firsts_.size(); }

 private:
  struct Waiting {
    Id id = 0;
    std::uint32_t next = 0;  // of the same end
  };
  // Of different ids different: chain_hash() is a bijection of what stands behind 0.
  static BlockHash key(std::uint64_t id) { return chain_hash(0, id); }

  Numbered<Waiting> waiting_;  // not among the found; [0] is none
  BlockTable firsts_{0};       // by end
  std::vector<Id> found_;
};

}  // namespace shardline
