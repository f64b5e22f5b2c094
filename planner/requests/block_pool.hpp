// Blocks of a KV cache, and finding those that hold the beginning of a text: vLLM's design.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/index.hpp"

namespace shardline {

using KvBlock = Index<struct KvBlockTag>;

/// What a block holds and all that stands before it: equal chains are equal text from the beginning.
using BlockHash = std::uint64_t;
/// The hash of a block behind `before`, 0 at the beginning. 64 bits: of n different blocks two collide with
/// probability n^2 / 2^65.
inline BlockHash chain_hash(BlockHash before, std::uint64_t content) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  // The finaliser of SplitMix64 [S10]: a bijection.
  const auto mixed = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  };
  return mixed(mixed(before + kGolden) ^ (content + kGolden));
}

/// What the blocks of a request's text are made of.
struct ChainText {
  std::span<const std::uint64_t> text;  // ids of the prompt's text, as a trace says them; may be empty
  std::uint32_t text_block;             // tokens that each stands for, whole blocks
  std::uint32_t block;                  // tokens
  std::uint32_t prompt;                 // tokens
  std::uint64_t number;                 // of the request: what the trace does not say is nobody else's
};
/// Appends hashes of blocks to a chain until it has so many.
void extend_chain(std::vector<BlockHash>& chain, std::size_t blocks, const ChainText& of);

/// Which block is found by a hash: open addressing, at most half full. Hashes are mixed already, so that
/// their low bits are a place.
class BlockTable {
 public:
  /// With room for so many entries; more make it grow.
  explicit BlockTable(std::uint32_t blocks);
  /// The block, or 0: that one is nobody's.
  std::uint32_t find(BlockHash hash) const { return slots_[place(hash)].block; }
  /// The block that is there already, or 0 and it is this one from now on.
  std::uint32_t try_insert(BlockHash hash, std::uint32_t block);
  /// Another block for a hash that is there (checked).
  void replace(BlockHash hash, std::uint32_t block);
  /// A hash that is there (checked) is no more.
  void erase(BlockHash hash);
  std::size_t size() const { return entries_; }

 private:
  struct Slot {
    BlockHash hash = 0;
    std::uint32_t block = 0;
  };
  /// Where the hash is, or the empty slot where it would be.
  std::size_t place(BlockHash hash) const {
    std::size_t at = hash & mask_;
    while (slots_[at].block != 0 && slots_[at].hash != hash) at = (at + 1) & mask_;
    return at;
  }
  void grow();

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, entries_ = 0;
};

/// The blocks of one engine [R1]. A block is held by so many requests; one that nobody holds waits in the
/// free queue, with what it holds to be found until it is taken for something else. Equal blocks are not
/// merged: the first that was filled is found.
///
/// Rules: vllm-project/vllm, vllm/v1/core/block_pool.py at c59cb7941357 (get_new_blocks, touch, free_blocks,
/// _maybe_evict_cached_block) and kv_cache_manager.py at 003df2961dd8 (free: in reverse).
class BlockPool {
 public:
  /// `blocks` may be taken in all; vLLM's own pool has one more, its null block. With `prefixes` false
  /// nothing is ever found.
  explicit BlockPool(std::uint32_t blocks, bool prefixes = true);

  /// How many may be taken, those included that hold text nobody has asked for since.
  std::uint32_t available() const { return available_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()) - 1; }
  /// Blocks that hold text to be found.
  std::uint32_t filled() const { return filled_; }

  /// Appends the blocks that hold the longest beginning of `chain` to `out`; they are not held by that.
  void find(std::span<const BlockHash> chain, std::vector<KvBlock>& out) const;
  /// How many of these nobody holds: holding them makes so many fewer available.
  std::uint32_t idle(std::span<const KvBlock> found) const;
  /// One more request holds each of these.
  void hold(std::span<const KvBlock> found);
  /// Takes `count` blocks for a request, from the front of the free queue, and appends them to `out`; what
  /// they held is lost. There are as many (checked).
  void take(std::uint32_t count, std::vector<KvBlock>& out);
  /// A block that is held, and has no text yet (checked), is full.
  void fill(KvBlock block, BlockHash hash);
  /// A request leaves its blocks, in the order of its text. The last one goes first into the queue, so that
  /// of a text its end is lost first; blocks without text go to the front, or with `empty_first` false to the
  /// end like the others (TensorRT-LLM: kvCacheManager.cpp, releaseBlocks at b35ac1b64368).
  void release(std::span<const KvBlock> blocks, bool empty_first = true);

  /// How many requests hold a block.
  std::uint32_t holders(KvBlock block) const { return blocks_[block].holders; }
  /// Whether a block with this text can be found.
  bool holds_text(BlockHash hash) const { return by_hash_.find(hash) != 0; }

 private:
  struct Block {
    BlockHash hash = 0;
    std::uint32_t holders = 0;
    std::uint32_t before = 0, after = 0;  // in the free queue, a ring through block 0
    std::uint32_t twin = 0;               // the next that was filled with the same
    bool full = false;
  };

  void link_behind(std::uint32_t place, std::uint32_t block);
  void unlink(std::uint32_t block);
  void empty(std::uint32_t block);

  std::vector<Block> blocks_;  // [0] joins the ends of the queue
  BlockTable by_hash_;         // the first that was filled
  std::uint32_t available_, filled_ = 0;
  bool prefixes_;
};

}  // namespace shardline
