// Texts of requests whose blocks are kept in runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"
#include "planner/requests/text_memory.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// Texts by number, each as long as somebody uses it. They are compared, not hashed: the ids that a trace
/// gives their blocks, and beyond them the request that computed them.
class RunTexts {
 public:
  /// `of.text` is copied; ids stand for as many blocks in all texts (checked) and no two have one number.
  /// What is given back is not 0, and has one user.
  std::uint32_t add(const ChainText& of) {
    const std::uint32_t text = texts_.add({});
    Text& t = texts_[text];
    t.ids = memory_.keep(of.text);
    t.number = of.number;
    if (!t.ids.empty()) {
      const std::uint32_t parts = of.text_block / of.block;
      SL_CHECK(parts_ == 0 || parts_ == parts, "blocks of all texts are alike");
      parts_ = parts;
    }
    const std::uint64_t said = std::uint64_t{parts_} * t.ids.size();
    t.shared = static_cast<std::uint32_t>(std::min<std::uint64_t>(of.prompt / of.block, said));
    t.uses = 1;
    return text;
  }
  void use(std::uint32_t text) { ++texts_[text].uses; }
  /// One user less; behind the last one the number is another text's.
  void drop(std::uint32_t text) {
    Text& t = texts_[text];
    if (--t.uses > 0) return;
    memory_.drop(t.ids);
    texts_.drop(text);
  }

  /// The ids that blocks from `low` to `high` of a text begin with, end with or have between them, as far as
  /// it has any.
  std::span<const std::uint64_t> ids(std::uint32_t text, std::uint32_t low, std::uint32_t high) const {
    const Text& t = texts_[text];
    const std::uint32_t end = std::min(high, t.shared);
    if (low >= end) return {};
    return t.ids.subspan(low / parts_, (end - 1) / parts_ - low / parts_ + 1);
  }
  /// A run's place in a tree: behind which, and of what stands from `block` on the first id. With the same
  /// one a text goes on alike for a block at least.
  BlockHash key(std::uint32_t parent, std::uint32_t text, std::uint32_t block) const {
    const Text& t = texts_[text];
    const bool said = block < t.shared;
    return chain_hash(2 * std::uint64_t{parent} + (said ? 1 : 0), said ? t.ids[block / parts_] : t.number);
  }
  /// Texts that are alike up to `from`: the first block in which they are not, `to` at most.
  std::uint32_t alike(std::uint32_t a, std::uint32_t b, std::uint32_t from, std::uint32_t to) const {
    const Text &x = texts_[a], &y = texts_[b];
    if (a == b) return to;
    const std::uint32_t end = std::min({x.shared, y.shared, to});
    if (end <= from) return from;
    const auto first = static_cast<std::ptrdiff_t>(from / parts_);
    const auto last = static_cast<std::ptrdiff_t>((end + parts_ - 1) / parts_);
    const auto differs = std::mismatch(x.ids.begin() + first, x.ids.begin() + last, y.ids.begin() + first);
    const auto at = static_cast<std::uint32_t>(differs.first - x.ids.begin());
    return std::clamp(at * parts_, from, end);
  }

 private:
  struct Text {
    std::span<const std::uint64_t> ids;  // in memory_
    std::uint64_t number = 0;
    std::uint32_t shared = 0;  // blocks that ids say; what follows is nobody else's
    std::uint32_t uses = 0;
  };

  Numbered<Text> texts_;     // [0] is none
  std::uint32_t parts_ = 0;  // blocks that an id stands for; 0 before the first one
  TextMemory memory_;
};

}  // namespace shardline
