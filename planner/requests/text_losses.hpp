// What a cache of blocks lost, for those who have looked up a text there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

namespace shardline {

/// A log of blocks of text that can no longer be found, each with its place in its text. Equal hashes are
/// equal text from the beginning, so that one of them says how much of a text is left. Of a text that is lost
/// from its end on, as they are, only the block nearest its beginning is kept.
class TextLosses {
 public:
  /// The block `index` of its text, behind the one with hash `before`.
  void add(std::uint64_t hash, std::uint64_t before, std::uint32_t index);
  /// Now: what is lost from here on comes behind it.
  std::uint64_t mark() const;
  /// Of the first `count` blocks of a text, which were all there at a mark, those at its beginning that are
  /// still there; fewer where too much was lost since to tell.
  std::uint32_t left(std::span<const std::uint64_t> text, std::uint32_t count, std::uint64_t since) const;

 private:
  struct Lost {
    std::uint64_t hash, before;
    std::uint32_t index;
  };
  static constexpr std::size_t kMost = 4096;

  std::deque<Lost> lost_;
  std::uint64_t dropped_ = 0;         // before the first of these
  mutable std::uint64_t marked_ = 0;  // entries before this one stay as they are
};

}  // namespace shardline
