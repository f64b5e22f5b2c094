// Texts of requests that wait, in one piece of memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>

namespace shardline {

/// Keeps ids of texts (of blocks, as a trace says them) for requests that wait. All of it is given back at
/// once when it ends: a list of its own for each of a million requests is freed one by one, which takes
/// longer than a signal may.
class TextMemory {
 public:
  using Text = std::span<const std::uint64_t>;

  /// A copy, until it is dropped or this ends.
  Text keep(Text ids);
  /// Leaves the room of a text that keep() gave, or of an empty one, to others; it is empty then.
  void drop(Text& ids);

  /// So many ids have room for a text of `ids`: what memory is estimated by. Up to half a power of two more,
  /// and whole powers of two from 512 ids on, which are the sizes that the library's pools have, so that they
  /// add nothing of their own.
  static constexpr std::uint64_t room(std::uint64_t ids) {
    if (ids <= 2) return ids;
    if (ids > kSmall) return std::bit_ceil(ids);
    const std::uint64_t step = std::bit_floor(ids - 1) / 2;
    return (ids + step - 1) / step * step;
  }

 private:
  static constexpr std::uint64_t kSmall = 512;

  // What is larger than a pool's largest block stands in a sorted list, where each that comes and goes moves
  // the others: texts of millions of tokens are smaller.
  std::pmr::unsynchronized_pool_resource memory_{{0, std::size_t{1} << 17}};
};

}  // namespace shardline
