// Requests of SGLang's for models with windows, and their KV, in the engine's own terms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/requests/plain_window_tree.hpp"

namespace shardline {

struct PlainWindowReq {
  Scheduler::Request seen;
  Scheduler::Id id = 0;
  Tokens text;  // origin_input_ids + output_ids
  Slots slots;  // its row of req_to_token
  bool finished = false, is_retracted = false, began = false;
  std::int64_t prefix_len = 0, extend_end = 0, fill = 0;
  std::int64_t cache_protected_len = 0, swa_evicted_seqlen = 0;
  std::uint64_t decode_batch_idx = 0;
  PlainWindowTree::Node* last_node = nullptr;
  int swa_uuid_for_lock = 0;
  std::uint32_t outputs() const { return static_cast<std::uint32_t>(text.size()) - seen.prompt; }
  std::int64_t seqlen() const { return static_cast<std::int64_t>(text.size()); }
  std::int64_t held() const { return static_cast<std::int64_t>(slots.size()); }
  std::uint64_t own_token(std::uint64_t at) const {
    return chain_hash((std::uint64_t{1} << 61) | seen.number, at);
  }
};

// Both pools, their tree, and what becomes of a request's slots.
class PlainWindowKv {
 public:
  using Req = PlainWindowReq;

  explicit PlainWindowKv(const SglangKnobs& knobs)
      : page(knobs.page_size),
        window(knobs.sliding_window),
        full(std::int64_t{knobs.max_total_tokens} / page * page),
        swa(std::int64_t(double(full) * knobs.swa_full_tokens_ratio) / page * page),
        pools(full, swa, page),
        tree(pools, window, page) {}

  std::int64_t full_left() const { return pools.full_available() + tree.full_evictable(); }
  std::int64_t swa_left() const { return pools.window_available() + tree.swa_evictable(); }

  void cache_unfinished(Req& r) {
    const auto aligned = static_cast<std::size_t>(r.extend_end / page * page);
    const Tokens key = part_of(r.text, 0, aligned);
    tree.insert(key, part_of(r.slots, 0, aligned), r.cache_protected_len, 0);
    const auto [found, node] = tree.match_prefix(key);
    SL_CHECK(found.size() == aligned, "all is found");
    std::copy(found.begin(), found.end(), r.slots.begin());
    r.cache_protected_len = static_cast<std::int64_t>(aligned);
    tree.dec_lock_ref(r.last_node, r.swa_uuid_for_lock);
    r.swa_uuid_for_lock = tree.inc_lock_ref(node);
    r.last_node = node;
  }
  void cache_finished(Req& r) {
    const auto aligned = static_cast<std::size_t>((r.seqlen() - 1) / page * page);
    tree.insert(part_of(r.text, 0, aligned), part_of(r.slots, 0, aligned), r.cache_protected_len,
                r.swa_evicted_seqlen);
    pools.free(part_of(r.slots, aligned, r.slots.size()));
    tree.dec_lock_ref(r.last_node, r.swa_uuid_for_lock);
  }
  // release_req() and reset_for_retract(); `others` stay.
  void retract(Req& r, std::int64_t others, std::int64_t steps) {
    pools.free(part_of(r.slots, std::size_t(r.cache_protected_len), r.slots.size()));
    tree.dec_lock_ref(r.last_node, r.swa_uuid_for_lock);
    tree.evict_from_tree_cache(others * steps);
    r.slots.clear();
    r.last_node = tree.root();
    r.swa_uuid_for_lock = 0;
    r.cache_protected_len = r.swa_evicted_seqlen = r.prefix_len = r.extend_end = 0;
    r.decode_batch_idx = 0;
  }
  // free_swa_out_of_window_slots(); whether there are any.
  bool evict_swa(Req& r) {
    std::int64_t& evicted = r.swa_evicted_seqlen;
    evicted = std::max(evicted, r.cache_protected_len);
    const std::int64_t next = std::max(evicted, r.seqlen() - 1 - window - page) / page * page;
    if (next <= evicted) return false;
    pools.free_windows(part_of(r.slots, std::size_t(evicted), std::size_t(next)));
    evicted = next;
    return true;
  }
  void extend(Req& r, std::int64_t to) {
    while (r.held() < to) pools.extend(r.slots);
  }

  const std::int64_t page, window, full, swa;
  PlainPools pools;
  PlainWindowTree tree;
};

}  // namespace shardline
