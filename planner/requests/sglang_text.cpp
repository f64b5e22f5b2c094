// What of requests' texts is in SGLang's tree, and what their pages are left to.
#include <algorithm>
#include <cstddef>
#include <span>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/sglang_scheduler.hpp"

namespace shardline {

// With EAGLE and modules of multi-token prediction the tree compares pairs of neighbouring tokens
// (mem_cache/radix_cache.py, RadixKey.is_bigram): the module's state at a token is of it and the next one.
std::uint32_t SglangScheduler::text_pages(std::uint32_t tokens) const {
  if (drafts()) tokens -= std::min(tokens, 1U);
  return tokens / knobs_.page_size;
}

// A page of pairs ends with the first token of the next page: pages with equal tokens differ if that does.
void SglangScheduler::join_pages(const Request& r, std::vector<std::uint64_t>& pages,
                                 std::size_t from) const {
  constexpr std::uint64_t kOwn = std::uint64_t{1} << 62, kPlace = 0x94d049bb133111ebULL;  // odd
  for (std::size_t i = from; i < pages.size(); ++i) {
    const std::size_t next = (i + 1) * knobs_.page_size, block = next / text_block_;
    const bool given = next < r.prompt && block < r.text.size();
    const BlockHash token =
        given ? chain_hash(r.text[block], next % text_block_) : chain_hash(kOwn | r.number, next);
    pages[i] += kPlace * token;
  }
}

// Pages of the prompt are what the trace says; of the answer, and without a trace, nobody else has them. One
// hash is enough for the pages of a block of text: they differ by their place in it.
void SglangScheduler::extend_text(Request& r, std::size_t count) {
  constexpr std::uint64_t kOwn = std::uint64_t{1} << 63, kPlace = 0xbf58476d1ce4e5b9ULL;  // odd
  if (count == 0) return;
  if (r.pages == 0) r.pages = pages_.add({}) + 1;
  std::vector<std::uint64_t>& pages = pages_[r.pages - 1];
  const std::size_t had = pages.size();
  std::size_t i = had;
  if (i >= count) return;
  // All that there will ever be, so that they move no more.
  if (had == 0) pages.reserve(std::max(count, std::size_t{pages_of(r.prompt + r.answer)}));
  const std::size_t parts = text_block_ / knobs_.page_size;
  const std::size_t of_prompt = r.prompt / knobs_.page_size;
  const std::size_t given = std::min({count, of_prompt, parts * r.text.size()});
  pages.resize(count);
  std::uint64_t* at = pages.data() + had;
  while (i < given) {
    const std::size_t block = i / parts, end = std::min(given, (block + 1) * parts);
    BlockHash page = chain_hash(r.text[block], 0) + kPlace * (i - block * parts);
    for (const std::uint64_t* const to = at + (end - i); at != to; page += kPlace) *at++ = page;
    i = end;
  }
  BlockHash page = chain_hash(kOwn | r.number, 0) + kPlace * i;
  for (; i < count; ++i, page += kPlace) *at++ = page;
  if (drafts()) join_pages(r, pages, had);
}

// The first pages of its text, as far as it was extended.
std::span<const std::uint64_t> SglangScheduler::text_of(const Request& r, std::size_t pages) const {
  if (pages == 0) return {};
  return std::span(pages_[r.pages - 1]).first(pages);
}

void SglangScheduler::drop_text(Request& r) {
  texts_.drop(r.text);
  if (r.pages > 0) pages_.forget(r.pages - 1);
  r.pages = 0;
}

// common.py, evict_from_tree_cache: as many as are asked for, where fewer are free.
void SglangScheduler::evict_for(std::uint64_t tokens) {
  if (windows_) return evict_both(tokens);
  if (free_ * knobs_.page_size < tokens) free_ += tree_.evict(pages_of(tokens));
}

// It uses all from the root to this node.
void SglangScheduler::lock(Request& r, RadixNode node) {
  r.node = node;
  if (windows_)
    r.boundary = windows_->tree.lock(node);
  else
    tree_.lock(node);
}

void SglangScheduler::unlock(Request& r) {
  if (windows_)
    windows_->tree.unlock(r.node, r.boundary);
  else
    tree_.unlock(r.node);
  r.node = 0;
}

// The tree has the text up to so many tokens, whole pages, and the request uses it from there.
void SglangScheduler::keep_prompt(Id id, std::uint32_t tokens) {
  if (knobs_.disable_radix_cache) return;
  Request& r = requests_[id];
  const std::uint32_t whole = text_pages(tokens);
  extend_text(r, whole);
  if (windows_) return keep_with_windows(r, whole);
  if (whole == r.kept) return tree_.ask(r.node);
  const auto [node, twice] = tree_.insert({r.node, r.kept}, text_of(r, whole));
  free_ += twice - std::min<std::uint64_t>(twice, r.kept);
  const RadixNode before = r.node;
  lock(r, node);
  tree_.ask(node);  // cache_unfinished_req matches what it has inserted
  tree_.unlock(before);
  r.kept = whole;
}

// Done: what was computed is in the tree, but for the row that is computed in vain.
void SglangScheduler::leave(Request& r) {
  const std::uint32_t held = pages_of(held_tokens(r));
  if (knobs_.disable_radix_cache) {
    free_ += held;
  } else {
    // Drafts beyond the end of the answer were accepted, too.
    const std::uint32_t whole = text_pages(drafts() ? r.computed : r.prompt + r.answer - 1);
    extend_text(r, whole);
    if (windows_) {
      leave_with_windows(r, held, whole);
    } else {
      const std::uint64_t twice = tree_.insert({r.node, r.kept}, text_of(r, whole)).pages;
      free_ += twice - std::min<std::uint64_t>(twice, r.kept);
      free_ += held - whole;
    }
    unlock(r);
  }
  drop_text(r);
}

}  // namespace shardline
