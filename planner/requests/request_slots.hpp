// Requests of a scheduler by number, which those that are forgotten leave to others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// Memory is that of the most requests that were there at once, however many come. It grows in parts that
/// stay where they are: to move half a million requests into memory twice as wide takes a tenth of a second,
/// in which nobody asks whether to stop.
template <class Request>
class RequestSlots {
 public:
  using Id = std::uint32_t;

  Id add(Request&& r) {
    if (unused_.empty()) {
      if (end_ % kPart == 0) parts_.emplace_back().reserve(end_ == 0 ? 0 : kPart);
      parts_.back().push_back(std::move(r));
      return end_++;
    }
    const Id id = unused_.back();
    unused_.pop_back();
    (*this)[id] = std::move(r);
    return id;
  }
  void forget(Id id) {
    (*this)[id] = Request{};  // {} would leave a list its memory
    unused_.push_back(id);
  }
  Request& operator[](Id id) { return parts_[id / kPart][id % kPart]; }
  const Request& operator[](Id id) const { return parts_[id / kPart][id % kPart]; }
  /// Numbers are below it; those that are forgotten have a Request{}.
  Id end() const { return end_; }

 private:
  static constexpr Id kPart = 1024;  // the first one grows as it is filled: most plays have fewer

  std::vector<std::vector<Request>> parts_;
  std::vector<Id> unused_;
  Id end_ = 0;
};

/// Ids of requests by a number that is given in turn. A table of the most that were there at once, however
/// long the oldest of them stays, and no node of each, which would be freed one by one.
class NumberedIds {
 public:
  using Id = std::uint32_t;

  /// A number that is not there (checked); the largest Id is none.
  void add(std::uint64_t number, Id id) {
    const std::uint32_t other = ids_.try_insert(key(number), id + 1);
    SL_CHECK(other == 0 && id + 1 != 0, "a number is given once");
  }
  std::optional<Id> find(std::uint64_t number) const {
    const std::uint32_t found = ids_.find(key(number));
    return found == 0 ? std::nullopt : std::optional(found - 1);
  }
  /// A number that is there (checked) is no more.
  void erase(std::uint64_t number) { ids_.erase(key(number)); }
  std::size_t size() const { return ids_.size(); }

 private:
  // Of different numbers different: chain_hash() is a bijection of what stands behind 0.
  static BlockHash key(std::uint64_t number) { return chain_hash(0, number); }

  BlockTable ids_{0};
};

}  // namespace shardline
