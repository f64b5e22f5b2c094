#include "planner/requests/trtllm_pool.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

TrtllmPool::TrtllmPool(std::uint32_t blocks, bool prefixes)
    : children_(64), size_(blocks), prefixes_(prefixes) {
  SL_CHECK(blocks > 0 && blocks < ~std::uint32_t{0}, "a pool has blocks");
  queue_blank(true, blocks);
}

std::uint32_t TrtllmPool::new_run(const Run& run) {
  if (run.text != 0) texts_.use(run.text);
  return runs_.add(run);
}

// So many blocks without text are in the queue from now on, one run with those that are there already.
void TrtllmPool::queue_blank(bool at_front, std::uint32_t count) {
  if (count == 0) return;
  available_ += count;
  const std::uint32_t neighbour = at_front ? runs_[0].after : runs_[0].before;
  if (neighbour != 0 && runs_[neighbour].text == 0) {
    runs_[neighbour].high += count;
    return;
  }
  Run run;
  run.high = count;
  put_in_ring(runs_, at_front ? 0 : neighbour, new_run(run));
}

// Cuts a run in two; the part with the end of the text keeps its number and is the child of the other, which
// is returned: whoever knows the run as the last of a share goes on to.
std::uint32_t TrtllmPool::split(std::uint32_t run, std::uint32_t at) {
  Run below = runs_[run];
  const std::uint64_t known_as = texts_.key(below.parent, below.text, below.low);
  below.high = at;
  below.children = 1;
  const std::uint32_t out = new_run(below);
  runs_[run].low = at;
  runs_[run].parent = out;
  children_.replace(known_as, out);
  children_.try_insert(texts_.key(out, below.text, at), run);
  if (below.kept && below.holders == 0) put_in_ring(runs_, run, out);
  return out;
}

// The run and those before it, as far as they are lost and nothing is behind them.
void TrtllmPool::forget_lost(std::uint32_t run) {
  while (!runs_[run].kept && runs_[run].children == 0) {
    const Run& r = runs_[run];
    const std::uint32_t parent = r.parent;
    children_.erase(texts_.key(parent, r.text, r.low));
    --runs_[parent].children;
    texts_.drop(r.text);
    runs_.drop(run);
    run = parent;
  }
}

TrtllmPool::Found TrtllmPool::find(const Share& share, std::uint32_t most) {
  Found out;
  path_.clear();
  path_blocks_ = 0;
  if (!prefixes_) return out;
  std::uint32_t at = std::min(share.stored, most), before = share.last;
  while (at < most) {
    const std::uint32_t run = children_.find(texts_.key(before, share.text, at));
    if (run == 0 || !runs_[run].kept) break;
    const Run& r = runs_[run];
    const std::uint32_t end = texts_.alike(r.text, share.text, at, std::min(most, r.high));
    if (end == at) break;
    path_.push_back(run);
    if (r.holders == 0) out.idle += end - at;
    at = end;
    before = run;
    if (end < r.high) break;
  }
  path_blocks_ = out.blocks = at;
  if (at < most) out.fresh = chain_hash(texts_.key(before, share.text, at), at);
  return out;
}

void TrtllmPool::weigh_found(std::uint32_t weight) {
  for (const std::uint32_t run : path_) {
    Run& r = runs_[run];
    r.weight = weight + (r.weights == weights_ ? r.weight : 0);
    r.weights = weights_;
  }
}

void TrtllmPool::hold_found(Share& share) {
  SL_CHECK(share.blocks == 0, "who begins has no blocks");
  if (!path_.empty() && runs_[path_.back()].high > path_blocks_)
    path_.back() = split(path_.back(), path_blocks_);
  for (const std::uint32_t run : path_) {
    if (runs_[run].holders++ > 0) continue;
    take_out_of_ring(runs_, run);
    available_ -= runs_[run].blocks();
  }
  share.blocks = share.stored = path_blocks_;
  share.last = path_.empty() ? 0 : path_.back();
}

void TrtllmPool::take(std::uint32_t count) {
  SL_CHECK(count <= available_, "blocks that are taken are free");
  available_ -= count;
  while (count > 0) {
    const std::uint32_t run = runs_[0].after;
    Run& r = runs_[run];
    const std::uint32_t some = std::min(count, r.blocks());
    count -= some;
    if (r.text != 0) {
      lose(run, some);
      continue;
    }
    r.high -= some;
    if (r.high > 0) return;
    take_out_of_ring(runs_, run);
    runs_.drop(run);
  }
}

// The last so many blocks of a run, which is in the queue.
void TrtllmPool::lose(std::uint32_t run, std::uint32_t count) {
  filled_ -= count;
  Run& r = runs_[run];
  if (r.weights == weights_) lost_weight_ += r.weight;
  if (count < r.blocks()) {
    if (r.children == 0) {
      r.high -= count;
      return;
    }
    split(run, r.high - count);
  }
  take_out_of_ring(runs_, run);
  runs_[run].kept = false;
  forget_lost(run);
}

// The run of these blocks is the share's from now on.
void TrtllmPool::own(Share& share, std::uint32_t low, std::uint32_t high, std::uint32_t run) {
  if (low > share.stored) {
    auto next = std::find_if(share.more.begin(), share.more.end(),
                             [&](const Share::Piece& p) { return p.low > low; });
    if (next != share.more.begin() && std::prev(next)->high == low) {
      --next;
      next->high = high;
      next->last = run;
    } else {
      share.more.insert(next, {low, high, run});
    }
    return;
  }
  share.stored = high;
  share.last = run;
  while (!share.more.empty() && share.more.front().low == share.stored) {
    share.stored = share.more.front().high;
    share.last = share.more.front().last;
    share.more.erase(share.more.begin());
  }
}

void TrtllmPool::store(Share& share, std::uint32_t full, std::vector<std::uint64_t>& ids) {
  if (!prefixes_ || full <= share.stored) return;
  SL_CHECK(full <= share.blocks, "blocks that are stored are held");
  const auto keep = [&](std::uint32_t low, std::uint32_t high, std::uint32_t run) {
    own(share, low, high, run);
    filled_ += high - low;
    const auto new_ids = texts_.ids(share.text, low, high);
    ids.insert(ids.end(), new_ids.begin(), new_ids.end());
  };
  std::uint32_t at = share.stored, before = share.last;
  Run& last = runs_[before];
  if (before != 0 && last.holders == 1 && last.children == 0 && last.text == share.text &&
      share.more.empty()) {
    last.high = full;  // nobody else holds it, and nothing is behind it
    keep(at, full, before);
    return;
  }
  while (at < full) {
    const std::uint64_t known_as = texts_.key(before, share.text, at);
    std::uint32_t run = children_.find(known_as), end = full;
    if (run == 0) {
      run = new_run({before, at, full, share.text, 0, 1, 0, 0, true, 0, 0});
      children_.try_insert(known_as, run);
      ++runs_[before].children;
      keep(at, full, run);
    } else {
      const std::uint32_t high = runs_[run].high;
      end = texts_.alike(runs_[run].text, share.text, at, std::min(full, high));
      SL_CHECK(end > at, "texts with one key are alike for a block");
      const bool kept = runs_[run].kept;
      if (end < high && !(kept && end == full)) run = split(run, end);
      if (!kept) {
        runs_[run].kept = true;
        runs_[run].holders = 1;
        keep(at, end, run);
      }
    }
    at = end;
    before = run;
  }
}

std::optional<std::uint64_t> TrtllmPool::id_of(const Share& share, std::uint32_t block) const {
  const auto ids = texts_.ids(share.text, block, block + 1);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

bool TrtllmPool::keeps(const Share& share, std::uint32_t block) const {
  std::uint32_t at = 0, run = 0;
  while (prefixes_ && at <= block) {
    run = children_.find(texts_.key(run, share.text, at));
    if (run == 0) return false;
    const std::uint32_t end = texts_.alike(runs_[run].text, share.text, at, runs_[run].high);
    if (end <= block && end < runs_[run].high) return false;
    if (end == at) return false;
    at = end;
  }
  return prefixes_ && runs_[run].kept;
}

void TrtllmPool::leave_runs(std::uint32_t last, std::uint32_t low) {
  for (std::uint32_t run = last; run != 0 && runs_[run].low >= low; run = runs_[run].parent) {
    SL_CHECK(runs_[run].holders > 0, "a block that is left was held");
    if (--runs_[run].holders > 0) continue;
    put_in_ring(runs_, runs_[0].before, run);
    available_ += runs_[run].blocks();
  }
}

void TrtllmPool::release(Share& share) {
  std::uint32_t at = share.blocks;
  for (auto piece = share.more.rbegin(); piece != share.more.rend(); ++piece) {
    queue_blank(false, at - piece->high);
    leave_runs(piece->last, piece->low);
    at = piece->low;
  }
  queue_blank(false, at - share.stored);
  leave_runs(share.last, 0);
  share.blocks = share.stored = share.last = 0;
  share.more.clear();
}

void TrtllmPool::give_back(Share& share, std::uint32_t kept) {
  const std::uint32_t text = share.more.empty() ? share.stored : share.more.back().high;
  SL_CHECK(kept >= text && kept <= share.blocks, "blocks that are given back have no text");
  queue_blank(true, share.blocks - kept);
  share.blocks = kept;
}

std::uint32_t TrtllmPool::blank(const Share& share) const {
  std::uint32_t text = share.stored;
  for (const Share::Piece& p : share.more) text += p.high - p.low;
  return share.blocks - text;
}

std::uint32_t TrtllmPool::freed(const Share& share, Left& left) const {
  std::uint32_t out = blank(share);
  const auto leave = [&](std::uint32_t last, std::uint32_t low) {
    for (std::uint32_t run = last; run != 0 && runs_[run].low >= low; run = runs_[run].parent)
      if (++left[run] == runs_[run].holders) out += runs_[run].blocks();
  };
  for (const Share::Piece& p : share.more) leave(p.last, p.low);
  leave(share.last, 0);
  return out;
}

}  // namespace shardline
