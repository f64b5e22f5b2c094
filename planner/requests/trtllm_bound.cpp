// TensorRT-LLM's prompts that wait in front of one that has tokens of a step, where the cache has no room.
//
// A step that is full but for less than a block asks in each decision for prompts far behind in the line. To
// know that nobody in front of one of these leaves it room takes a look at each of them: text that is found,
// and held, needs no blocks, and who waits for another one's text none at all. A walk that ended without room
// says so of later decisions, too, without a look at anybody: it leaves a bound, a sum of blocks that those
// lack at least that it has met. This is what keeps the bound true:
// - One that did not wait for another one's text does not later: nobody in front of it goes on with the text
//   behind what is found of it, and nobody comes in front of it.
// - What is found of it becomes one block more at most. Only those in front of it, and those that have begun,
//   compute prompts, and what these are about to store is known before it is looked at, so that it is text
//   that it does not share or has found; but for the last block of a prompt of whole ones, which is in no
//   look-up. Where more may be behind that block, where a prompt's step was on its way
//   before the walk, and where one that leaves stores what others have lost, the bound stands no more.
// - What is found of it becomes less, so that it may wait for others' text, only where text is lost that it
//   has found: all that found this text lack nothing from then on.
#include <algorithm>

#include "planner/requests/trtllm_scheduler.hpp"

namespace shardline {

// Whether the first behind that has tokens, and anybody behind it, has no room, as those in front of it lack
// more blocks than there are; of these the bound's that were looked at have theirs already.
bool TrtllmScheduler::bars(std::uint64_t first, const Room& room, std::int64_t passed) {
  const std::int64_t lost = static_cast<std::int64_t>(pool_.lost_weight());
  if (!bound_.stands || bound_.last >= first || bound_.blocks - lost - passed <= room.blocks) return false;
  ++barred_;
  return true;
}

// A walk begins, which the one before it is no use to.
void TrtllmScheduler::begin_bound(const Room& room) {
  bound_ = {bound_.number + 1, false, 0, 0, decided_, room.blocks};
  pool_.restart_weights();
}

// One that the walk has met, and that does not wait for others' text. What is found of it is known if it was
// looked up last, not before the walk began.
void TrtllmScheduler::add_to_bound(Id id, std::uint64_t first) {
  Request& r = requests_[id];
  if (!r.first_chunk() || found_last_ != id || r.number >= first) return;
  r.bound = bound_.number;
  r.least = r.all_blocks - r.look.now.blocks - 1;  // one more may be found
  pool_.weigh_found(r.least);
  bound_.blocks += r.least;
  bound_.last = r.number;
}

// The walk ended in front of `from`. Where there was no room for the first with tokens it goes on until those
// that it has met lack twice as many blocks as there were, so that the bound outlasts some that get free. Who
// has had its tokens goes past those of the bound.
void TrtllmScheduler::end_bound(std::deque<Id>::const_iterator from, std::uint64_t first) {
  if (first == kNobody) return;
  for (; from != waiting_.end() && bound_.blocks <= 2 * bound_.room; ++from) {
    if (requests_[*from].number >= first) break;
    if (!better_skipped(*from)) add_to_bound(*from, first);
  }
  bound_.stands = bound_.blocks > bound_.room;
}

// One waits no more. Where it goes past others of the bound, what it stores may be theirs.
void TrtllmScheduler::leave_bound(Id id) {
  if (!bound_.stands) return;
  Request& r = requests_[id];
  for (auto front = waiting_.begin(); bound_.stands && *front != id; ++front)
    bound_.stands = !is_in_bound(requests_[*front]);
  if (is_in_bound(r)) bound_.blocks -= r.least;
  r.bound = 0;
}

}  // namespace shardline
