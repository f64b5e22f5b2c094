// What SGLang's scheduler does otherwise for models some of whose layers have windows [R22].
#include "planner/requests/sglang_windows.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// pool_configurator.py, HybridSWAPoolConfigurator: tokens rounded down, and then to whole pages.
std::uint64_t window_pages(const SglangKnobs& knobs) {
  if (knobs.sliding_window == 0) return 0;
  const std::uint64_t pages = knobs.max_total_tokens / knobs.page_size;
  const double tokens = static_cast<double>(pages * knobs.page_size) * knobs.swa_full_tokens_ratio;
  return std::min(static_cast<std::uint64_t>(tokens) / knobs.page_size, pages);
}

void SglangScheduler::begin_windows() {
  if (drafts()) throw UserError("drafts of a model with windows under SGLang are not played yet");
  if (role_ != PairRole::none)
    throw UserError("pairs of SGLang's servers of a model with windows are not played yet");
  if (knobs_.disable_radix_cache) {
    throw UserError(
        "disable_radix_cache: SGLang's cache without prefixes of a model with windows (SWAChunkCache) is not "
        "played yet");
  }
  SL_CHECK(knobs_.swa_eviction_interval > 0, "windows are dropped at times");
  const std::uint64_t pool = window_pages(knobs_);
  if (pool == 0) throw UserError("the KV cache of layers with windows has room for no page");
  windows_ = std::make_unique<SglangWindows>(pages_of(knobs_.sliding_window), pool);
}

// One for which there will never be room waits for ever, as all of its chunks are as long as a step's.
bool SglangScheduler::windows_fit(std::int64_t prompt) const {
  Budget b;
  b.chunk = knobs_.chunked_prefill_size;
  return windows_of(prompt, b) < static_cast<std::int64_t>(windows_->pages * knobs_.page_size);
}

// schedule_policy.py, _swa_budget_for_req: what a step computes of a prompt, or the window that it decodes
// with, and a page.
std::int64_t SglangScheduler::windows_of(std::int64_t tokens, const Budget& b) const {
  if (knobs_.chunked_prefill_size > 0) tokens = std::min(tokens, b.chunk);
  return std::max<std::int64_t>(tokens, knobs_.sliding_window) + knobs_.page_size;
}

std::int64_t SglangScheduler::window_room(const Budget& b) const {
  return static_cast<std::int64_t>(windows_->available() * knobs_.page_size) - b.window_offset;
}

// Whether a prompt lacks room in a pool. `before` could be lost before what it found was locked.
bool SglangScheduler::no_room(double total, std::uint32_t rest, const Budget& b,
                              const WindowTree::Pages& before) {
  const bool lacks_tokens = total >= room(b);
  if (!windows_) return lacks_tokens;
  const std::int64_t windows = windows_of(rest, b);
  const bool lacks_windows = windows >= window_room(b);
  const WindowTree::Pages& now = windows_->tree.evictable();
  const auto tokens = [&](std::uint64_t of, std::uint64_t left) { return (of - left) * knobs_.page_size; };
  windows_->refusal = {lacks_tokens || lacks_windows, false,
                       total + static_cast<double>(tokens(before.full, now.full)),
                       windows + static_cast<std::int64_t>(tokens(before.windows, now.windows))};
  return lacks_tokens || lacks_windows;
}

void SglangScheduler::give_back(const WindowTree::Pages& pages) {
  free_ += pages.full;
  windows_->free += pages.windows;
}

// common.py, evict_from_tree_cache: of each pool what it lacks.
void SglangScheduler::evict_both(std::uint64_t tokens) {
  const auto lacking = [&](std::uint64_t free) -> std::uint64_t {
    const std::uint64_t have = free * knobs_.page_size;
    return have < tokens ? pages_of(tokens - have) : 0;
  };
  const std::uint64_t full = lacking(free_), windows = lacking(windows_->free);
  if (full + windows == 0) return;
  give_back(windows_->tree.evict(full, windows));
  windows_->refusal.known = windows_->refusal.place;  // less may be found than was tried with
}

// swa_radix_cache.py, cache_unfinished_req.
void SglangScheduler::keep_with_windows(Request& r, std::uint32_t whole) {
  const std::span<const std::uint64_t> text = text_of(r, whole);
  give_back(windows_->tree.insert(text, r.kept, 0));
  const RadixTree::Match match = windows_->tree.match(text);
  SL_CHECK(match.pages == whole, "what was computed just now is found");
  unlock(r);
  lock(r, match.node);
  r.kept = whole;
}

// swa_radix_cache.py, cache_finished_req; its last page, which is not whole, is nobody's.
void SglangScheduler::leave_with_windows(Request& r, std::uint32_t held, std::uint32_t whole) {
  give_back(windows_->tree.insert(text_of(r, whole), r.kept, r.gone / knobs_.page_size));
  give_back({held - whole, held - whole});
}

// schedule_batch.py, maybe_evict_swa, as a step that decodes takes its pages: not of who decodes for the
// first time, as the step with its prompt may be under way.
void SglangScheduler::drop_windows() {
  if (windows_->of_running % knobs_.swa_eviction_interval != 0) return;
  for (const Id id : running_) {
    Request& r = requests_[id];
    if (r.decoded > 0) drop_before(r, r.prompt + r.known() - 1);
  }
}

// common.py, free_swa_out_of_window_slots: what is neither the tree's nor in the window of the token at
// `length`, but for a page.
void SglangScheduler::drop_before(Request& r, std::uint32_t length) {
  const std::uint32_t margin = knobs_.sliding_window + knobs_.page_size;
  r.gone = std::max(r.gone, r.kept * knobs_.page_size);
  if (length < margin) return;
  const std::uint32_t gone = (length - margin) / knobs_.page_size * knobs_.page_size;
  if (gone <= r.gone) return;
  windows_->free += (gone - r.gone) / knobs_.page_size;
  r.gone = gone;
}

// Of so many steps that are decided alike, each with a token of all known that the one before had not: the
// last look in them finds what all do.
void SglangScheduler::drop_windows_alike(std::uint32_t steps) {
  const std::uint64_t interval = knobs_.swa_eviction_interval, first = windows_->of_running;
  const std::uint64_t last = (first + steps - 1) / interval * interval;
  windows_->of_running = windows_->batches += steps;
  if (last < first) return;
  const auto before = static_cast<std::uint32_t>(last - first);
  for (const Id id : running_) {
    Request& r = requests_[id];
    if (r.decoded + before > 0) drop_before(r, r.prompt + r.known() + before);
  }
}

// At how many of the next decisions, `most` at most, whoever waits first has no room for sure, if nobody is
// done and nobody comes: pages become fewer, but room is kept for less of others' answers, and looks for
// windows to drop find some.
std::uint64_t SglangScheduler::refusals_alike(std::uint64_t most) const {
  const SglangWindows::Refusal& refused = windows_->refusal;
  if (refused.place) return running_.size() >= knobs_.max_running_requests ? most : 0;
  std::uint64_t good = 0;
  if (refused.windows >= static_cast<std::int64_t>(windows_->available() * knobs_.page_size)) {
    const std::uint64_t interval = knobs_.swa_eviction_interval;
    good = std::min(most, 1 + (interval - windows_->of_running % interval) % interval);
  }
  const std::size_t beside = knobs_.enable_mixed_chunk ? running_.size() : 0;
  const auto available = static_cast<double>(available_pages() * knobs_.page_size);
  const auto refuses = [&](std::uint64_t decisions) {
    const double ratio = ratio_after(ratio_steps_ + decisions - 1);
    auto offset = static_cast<double>(beside);
    for (const Id id : running_) {
      const Request& r = requests_[id];
      offset += clipped(r.answer - r.known() - static_cast<std::uint32_t>(decisions)) * ratio;
    }
    return refused.needed >= available - offset;
  };
  for (std::uint64_t bad = most + 1; bad - good > 1;) {
    const std::uint64_t middle = good + (bad - good) / 2;
    (refuses(middle) ? good : bad) = middle;
  }
  return good;
}

// Nobody runs and nobody begins: nothing will change that.
void SglangScheduler::stand_still() const {
  if (!steps_.empty() || !running_.empty() || (!cut_ && waiting_.empty())) return;
  throw EngineStops(
      std::string("SGLang stands still: ") +
      (cut_ ? "a prompt of which a part is computed holds the windows that its next part lacks"
            : "a prompt that was retracted needs more than there is, with what it had of its answer") +
      ", in a pool of " + std::to_string(windows_->pages * knobs_.page_size) +
      " tokens of layers with windows (raise swa_full_tokens_ratio or lower chunked_prefill_size)");
}

}  // namespace shardline
