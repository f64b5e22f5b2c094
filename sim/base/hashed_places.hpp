// Where things stand in a list, by their hash.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace shardline {

/// Places of things in a list of the caller's, which knows what tells them apart: one table (open addressing)
/// of 16 to 32 bytes for each, where std::unordered_map allocates a node for each. Files have mappings and
/// lists of tens of thousands of names, and a question of a line reads them. Nothing is taken out.
class HashedPlaces {
 public:
  explicit HashedPlaces(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : slots_(memory) {}

  static std::uint32_t hash(std::string_view text) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>{}(text));
  }

  bool empty() const { return size_ == 0; }
  /// The place that was added with this hash and that `same` is true of.
  template <class Same>
  std::optional<std::size_t> find(std::uint32_t hash, Same same) const {
    for (std::size_t at = hash; !slots_.empty(); ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.place == 0) break;
      if (slot.hash == hash && same(std::size_t{slot.place} - 1)) return slot.place - 1;
    }
    return std::nullopt;
  }
  /// Room for as many things.
  void reserve(std::size_t count) {
    if (2 * count > slots_.size()) spread(std::bit_ceil(2 * count));
  }
  /// Of a thing that find() does not find.
  void add(std::uint32_t hash, std::size_t place) {
    if (2 * (size_ + 1) > slots_.size()) spread(std::max<std::size_t>(16, 2 * slots_.size()));
    put({hash, static_cast<std::uint32_t>(place + 1)});
    ++size_;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, place = 0;  // place + 1; 0: nothing is here
  };

  void put(Slot slot) {
    std::size_t at = slot.hash;
    while (slots_[at & (slots_.size() - 1)].place != 0) ++at;
    slots_[at & (slots_.size() - 1)] = slot;
  }
  void spread(std::size_t slots) {
    std::pmr::vector<Slot> before(slots, slots_.get_allocator());
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.place != 0) put(slot);
  }

  std::pmr::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace shardline
