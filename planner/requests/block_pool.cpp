#include "planner/requests/block_pool.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The finaliser of SplitMix64 [S10]: a bijection.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

BlockHash chain_hash(BlockHash before, std::uint64_t content) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  return mixed(mixed(before + kGolden) ^ (content + kGolden));
}

BlockPool::BlockPool(std::uint32_t blocks, bool prefixes)
    : blocks_(std::size_t{blocks} + 1), available_(blocks), prefixes_(prefixes) {
  SL_CHECK(blocks > 0 && blocks < ~std::uint32_t{0}, "a pool has blocks");
  for (std::uint32_t b = 0; b <= blocks; ++b) {
    blocks_[b].before = b == 0 ? blocks : b - 1;
    blocks_[b].after = b == blocks ? 0 : b + 1;
  }
}

void BlockPool::find(std::span<const BlockHash> chain, std::vector<KvBlock>& out) const {
  if (!prefixes_) return;
  for (const BlockHash hash : chain) {
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end()) return;
    out.emplace_back(found->second);
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
  const auto [found, first] = by_hash_.try_emplace(hash, block);
  if (first) return;
  std::uint32_t last = found->second;
  while (blocks_[last].twin != 0) last = blocks_[last].twin;
  blocks_[last].twin = block;
}

void BlockPool::release(std::span<const KvBlock> blocks) {
  // vLLM prepends the blocks without text as one list; which of them is taken first makes no difference.
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    Block& block = blocks_[*b];
    SL_CHECK(block.holders > 0, "a block that is left was held");
    if (--block.holders == 0) link_behind(block.full ? blocks_[0].before : 0, *b);
  }
}

void BlockPool::link_behind(std::uint32_t place, std::uint32_t block) {
  const std::uint32_t next = blocks_[place].after;
  blocks_[block].before = place;
  blocks_[block].after = next;
  blocks_[place].after = block;
  blocks_[next].before = block;
  ++available_;
}

void BlockPool::unlink(std::uint32_t block) {
  blocks_[blocks_[block].before].after = blocks_[block].after;
  blocks_[blocks_[block].after].before = blocks_[block].before;
  --available_;
}

void BlockPool::empty(std::uint32_t block) {
  Block& b = blocks_[block];
  if (!b.full) return;
  const auto found = by_hash_.find(b.hash);
  if (found->second != block) {
    std::uint32_t before = found->second;
    while (blocks_[before].twin != block) before = blocks_[before].twin;
    blocks_[before].twin = b.twin;
  } else if (b.twin != 0) {
    found->second = b.twin;
  } else {
    by_hash_.erase(found);
  }
  b.twin = 0;
  b.full = false;
  --filled_;
}

}  // namespace shardline
