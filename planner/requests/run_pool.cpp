#include "planner/requests/run_pool.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

RunPool::RunPool(std::uint32_t blocks, bool prefixes)
    : children_(64), size_(blocks), available_(blocks), blank_(blocks), prefixes_(prefixes) {
  SL_CHECK(blocks > 0 && blocks < ~std::uint32_t{0}, "a pool has blocks");
}

std::uint32_t RunPool::new_run(const Run& run) {
  texts_.use(run.text);
  return runs_.add(run);
}

void RunPool::forget_run(std::uint32_t run) {
  texts_.drop(runs_[run].text);
  runs_.drop(run);
}

// Cuts off the blocks of a run before `at`; in the queue they are behind the others, as they were.
std::uint32_t RunPool::part_below(std::uint32_t run, std::uint32_t head, std::uint32_t at) {
  Run below = runs_[run];
  below.high = at;
  below.twin = 0;
  below.children = 0;
  if (below.is_twin) below.parent = head;
  const std::uint32_t out = new_run(below);
  runs_[run].low = at;
  if (below.holders == 0) put_in_ring(runs_, run, out);
  return out;
}

// The run and its twins in two; the part with the end of the text keeps its number and is the child of the
// other, which is returned: whoever knows the run as the last of a share goes on to.
std::uint32_t RunPool::split(std::uint32_t head, std::uint32_t at) {
  const std::uint32_t parent = runs_[head].parent, text = runs_[head].text;
  const std::uint64_t known_as = texts_.key(parent, text, runs_[head].low);
  const std::uint32_t below = part_below(head, 0, at);
  runs_[below].children = 1;
  runs_[head].parent = below;
  children_.replace(known_as, below);
  children_.try_insert(texts_.key(below, text, at), head);
  std::uint32_t last = below;
  for (std::uint32_t twin = runs_[head].twin; twin != 0; twin = runs_[twin].twin) {
    const std::uint32_t part = part_below(twin, below, at);
    runs_[last].twin = part;
    last = part;
  }
  return below;
}

RunPool::Found RunPool::find(const Share& share, std::uint32_t most) {
  Found out;
  path_.clear();
  std::uint32_t at = 0, run = 0;
  while (prefixes_ && at < most) {
    run = children_.find(texts_.key(run, share.text, at));
    if (run == 0) break;
    const Run& r = runs_[run];
    const std::uint32_t end = texts_.alike(r.text, share.text, at, std::min(most, r.high));
    if (end == at) break;
    path_.push_back(run);
    if (r.holders == 0) out.idle += end - at;
    at = end;
    if (end < r.high) break;
  }
  path_blocks_ = out.blocks = at;
  return out;
}

void RunPool::hold_found(Share& share) {
  SL_CHECK(share.blocks == 0, "who begins has no blocks");
  if (!path_.empty() && runs_[path_.back()].high > path_blocks_)
    path_.back() = split(path_.back(), path_blocks_);
  for (const std::uint32_t run : path_) {
    if (runs_[run].holders++ > 0) continue;
    take_out_of_ring(runs_, run);
    available_ -= runs_[run].blocks();
  }
  share.blocks = share.found = share.filled = path_blocks_;
  share.last = path_.empty() ? 0 : path_.back();
}

void RunPool::take(Share& share, std::uint32_t count) {
  take(count);
  share.blocks += count;
}

void RunPool::take(std::uint32_t count) {
  SL_CHECK(count <= available_, "blocks that are taken are free");
  available_ -= count;
  const std::uint32_t blank = std::min(blank_, count);
  blank_ -= blank;
  if (count > blank) lose(count - blank);
}

// Blocks from the front of the queue, of each run its end first.
void RunPool::lose(std::uint32_t count) {
  filled_ -= count;
  while (count > 0) {
    const std::uint32_t run = runs_[0].after;
    Run& r = runs_[run];
    if (r.blocks() > count) {
      if (!r.is_twin && r.twin == 0) {
        SL_CHECK(r.children == 0, "what stands behind a text is lost before it");
        r.high -= count;
        return;
      }
      split(r.is_twin ? r.parent : run, r.high - count);
    }
    count -= runs_[run].blocks();
    lose_run(run);
  }
}

void RunPool::lose_run(std::uint32_t run) {
  take_out_of_ring(runs_, run);
  Run& r = runs_[run];
  if (r.is_twin) {
    std::uint32_t before = r.parent;
    while (runs_[before].twin != run) before = runs_[before].twin;
    runs_[before].twin = r.twin;
    forget_run(run);
    return;
  }
  if (r.twin == 0) {
    SL_CHECK(r.children == 0, "what stands behind a text is lost before it");
    children_.erase(texts_.key(r.parent, r.text, r.low));
    --runs_[r.parent].children;
    forget_run(run);
    return;
  }
  // The next that was filled with the same takes its place in the tree.
  const std::uint32_t twin = r.twin;
  std::swap(r.text, runs_[twin].text);
  r.holders = runs_[twin].holders;
  r.filling = runs_[twin].filling;
  r.twin = runs_[twin].twin;
  if (r.holders == 0) {
    put_in_ring(runs_, twin, run);
    take_out_of_ring(runs_, twin);
  }
  forget_run(twin);
}

void RunPool::add_twin(std::uint32_t head, std::uint32_t text) {
  Run twin = runs_[head];
  twin.parent = head;
  twin.text = text;
  twin.children = twin.twin = 0;
  twin.holders = 1;
  twin.filling = twin.is_twin = true;
  const std::uint32_t added = new_run(twin);
  std::uint32_t last = head;
  while (runs_[last].twin != 0) last = runs_[last].twin;
  runs_[last].twin = added;
}

void RunPool::fill(Share& share, std::uint32_t filled) {
  SL_CHECK(filled <= share.blocks, "blocks that become full are held");
  if (!prefixes_ || filled <= share.filled) return;
  filled_ += filled - share.filled;
  Run& last = runs_[share.last];
  if (share.last != 0 && last.holders == 1 && last.filling && last.text == share.text && last.children == 0 &&
      last.twin == 0) {
    last.high = filled;
    share.filled = filled;
    return;
  }
  while (share.filled < filled) {
    const std::uint64_t known_as = texts_.key(share.last, share.text, share.filled);
    std::uint32_t run = children_.find(known_as);
    if (run == 0) {
      run = new_run({share.last, share.filled, filled, share.text, 0, 0, 1, 0, 0, true, false});
      children_.try_insert(known_as, run);
      ++runs_[share.last].children;
      share.filled = filled;
    } else {
      const std::uint32_t high = runs_[run].high;
      const std::uint32_t end =
          texts_.alike(runs_[run].text, share.text, share.filled, std::min(filled, high));
      SL_CHECK(end > share.filled, "texts with one key are alike for a block");
      if (end < high) run = split(run, end);
      add_twin(run, share.text);
      share.filled = end;
    }
    share.last = run;
  }
}

// Of a run and its twins the one that the request with this text has filled, and holds.
std::uint32_t RunPool::own(std::uint32_t head, std::uint32_t text) const {
  while (!runs_[head].filling || runs_[head].text != text) {
    head = runs_[head].twin;
    SL_CHECK(head != 0, "who filled a run holds it");
  }
  return head;
}

void RunPool::release(Share& share) {
  for (std::uint32_t head = share.last; head != 0; head = runs_[head].parent) {
    const bool is_own = runs_[head].low >= share.found;
    const std::uint32_t run = is_own ? own(head, share.text) : head;
    Run& r = runs_[run];
    if (is_own) r.filling = false;
    SL_CHECK(r.holders > 0, "a block that is left was held");
    if (--r.holders > 0) continue;
    put_in_ring(runs_, runs_[0].before, run);
    available_ += r.blocks();
  }
  const std::uint32_t blank = share.blocks - share.filled;
  blank_ += blank;
  available_ += blank;
  share.blocks = share.found = share.filled = share.last = 0;
}

}  // namespace shardline
