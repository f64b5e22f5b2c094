#include "planner/requests/block_pool.hpp"

#include <algorithm>
#include <bit>

#include "planner/requests/numbered.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void extend_chain(std::vector<BlockHash>& chain, std::size_t blocks, const ChainText& of) {
  constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;
  const std::size_t parts = of.text_block / of.block;
  const std::size_t of_prompt = of.text.empty() ? 0 : of.prompt / of.block;
  while (chain.size() < blocks) {
    const std::size_t i = chain.size();
    const BlockHash before = chain.empty() ? 0 : chain.back();
    chain.push_back(i < of_prompt && i / parts < of.text.size()
                        ? chain_hash(chain_hash(before, of.text[i / parts]), i % parts)
                        : chain_hash(chain_hash(before, kOwn | of.number), i));
  }
}

BlockTable::BlockTable(std::uint32_t blocks) {
  resize_asking(slots_, std::bit_ceil(2 * std::size_t{blocks} + 2));
  mask_ = slots_.size() - 1;
}

std::uint32_t BlockTable::try_insert(BlockHash hash, std::uint32_t block) {
  const std::size_t at = place(hash);
  if (slots_[at].block != 0) return slots_[at].block;
  slots_[at] = {hash, block};
  if (2 * ++entries_ > slots_.size()) grow();
  return 0;
}

void BlockTable::grow() {
  std::vector<Slot> before;
  resize_asking(before, 2 * slots_.size());
  before.swap(slots_);
  mask_ = slots_.size() - 1;
  CancelCheck check;  // a play that is stopped has no more use for its tables
  for (const Slot& slot : before) {
    check();
    if (slot.block != 0) slots_[place(slot.hash)] = slot;
  }
}

void BlockTable::replace(BlockHash hash, std::uint32_t block) {
  Slot& slot = slots_[place(hash)];
  SL_CHECK(slot.block != 0, "what is replaced is there");
  slot.block = block;
}

// What stands behind it moves up, unless it is at or behind its own place: no search ends too early.
void BlockTable::erase(BlockHash hash) {
  std::size_t hole = place(hash);
  SL_CHECK(slots_[hole].block != 0, "what is erased is there");
  for (std::size_t at = (hole + 1) & mask_; slots_[at].block != 0; at = (at + 1) & mask_) {
    const std::size_t home = slots_[at].hash & mask_;
    if (((at - home) & mask_) < ((at - hole) & mask_)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --entries_;
}

BlockPool::BlockPool(std::uint32_t blocks, bool prefixes)
    : by_hash_(prefixes ? blocks : 0), available_(blocks), prefixes_(prefixes) {
  SL_CHECK(blocks > 0 && blocks < ~std::uint32_t{0}, "a pool has blocks");
  // Pools of all replicas may have some hundred millions of blocks, which take seconds to be made.
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const std::size_t all = std::size_t{blocks} + 1;
  check_cancelled();
  blocks_.reserve(all);
  while (blocks_.size() < all) {
    blocks_.resize(std::min(all, blocks_.size() + kPiece));
    check_cancelled();
  }
  CancelCheck check;
  for (std::uint32_t b = 0; b <= blocks; ++b) {
    check();
    blocks_[b].before = b == 0 ? blocks : b - 1;
    blocks_[b].after = b == blocks ? 0 : b + 1;
  }
}

void BlockPool::find(std::span<const BlockHash> chain, std::vector<KvBlock>& out) const {
  if (!prefixes_) return;
  for (const BlockHash hash : chain) {
    const std::uint32_t found = by_hash_.find(hash);
    if (found == 0) return;
    out.emplace_back(found);
  }
}

std::uint32_t BlockPool::idle(std::span<const KvBlock> found) const {
  return static_cast<std::uint32_t>(
      std::count_if(found.begin(), found.end(), [&](KvBlock b) { return blocks_[b].holders == 0; }));
}

void BlockPool::hold(std::span<const KvBlock> found) {
  for (const KvBlock b : found) {
    if (blocks_[b].holders++ == 0) unlink(b);
  }
}

void BlockPool::take(std::uint32_t count, std::vector<KvBlock>& out) {
  SL_CHECK(count <= available_, "blocks that are taken are free");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t block = blocks_[0].after;
    unlink(block);
    empty(block);
    blocks_[block].holders = 1;
    out.emplace_back(block);
  }
}

void BlockPool::fill(KvBlock block, BlockHash hash) {
  Block& b = blocks_[block];
  SL_CHECK(b.holders > 0 && !b.full, "a block that becomes full is held and was not");
  if (!prefixes_) return;
  b.hash = hash;
  b.full = true;
  ++filled_;
  const std::uint32_t found = by_hash_.try_insert(hash, block);
  if (found == 0) return;
  std::uint32_t last = found;
  while (blocks_[last].twin != 0) last = blocks_[last].twin;
  blocks_[last].twin = block;
}

void BlockPool::release(std::span<const KvBlock> blocks, bool empty_first) {
  // vLLM prepends the blocks without text as one list; which of them is taken first makes no difference.
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    Block& block = blocks_[*b];
    SL_CHECK(block.holders > 0, "a block that is left was held");
    if (--block.holders == 0) link_behind(block.full || !empty_first ? blocks_[0].before : 0, *b);
  }
}

void BlockPool::link_behind(std::uint32_t place, std::uint32_t block) {
  put_in_ring(blocks_, place, block);
  ++available_;
}

void BlockPool::unlink(std::uint32_t block) {
  take_out_of_ring(blocks_, block);
  --available_;
}

void BlockPool::empty(std::uint32_t block) {
  Block& b = blocks_[block];
  if (!b.full) return;
  const std::uint32_t found = by_hash_.find(b.hash);
  if (found != block) {
    std::uint32_t before = found;
    while (blocks_[before].twin != block) before = blocks_[before].twin;
    blocks_[before].twin = b.twin;
  } else if (b.twin != 0) {
    by_hash_.replace(b.hash, b.twin);
  } else {
    by_hash_.erase(b.hash);
  }
  b.twin = 0;
  b.full = false;
  --filled_;
}

}  // namespace shardline
