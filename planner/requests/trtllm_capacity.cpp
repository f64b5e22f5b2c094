// Which requests fit TensorRT-LLM's cache, and in what parts their prompts fit a step.
#include <algorithm>
#include <limits>
#include <string>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// What capacity counted is not there: drafts may need more, and of text that is found and held a part may
// have had nobody, which a prompt that begins before took for its own.
void TrtllmScheduler::lack_blocks() const {
  throw EngineStops({Diagnostic{
      {},
      std::string("TensorRT-LLM ends with an error (\"Can't allocate new blocks. No free blocks "
                  "left.\"): its capacity scheduler counts ") +
          (drafts() ? "no blocks for drafts behind the end of an answer"
                    : "text as found that another prompt of the step takes the blocks of") +
          ", and " + std::to_string(started_) + " requests that have begun fill all " +
          std::to_string(pool_.size()) + " blocks",
      {std::string(evicts() && drafts() ? "capacity_scheduler_policy=GUARANTEED_NO_EVICT keeps room for "
                                          "answers, and so do "
                                        : "room is left by ") +
       "fewer requests at once (max_batch_size) and more blocks"}}});
}

// Of its text less the last token, which is computed in any case; once in a decision.
const TrtllmPool::Found& TrtllmScheduler::found(Id id) {
  Request& r = requests_[id];
  if (r.look.decision != decisions_) {
    r.look.decision = decisions_;
    r.look.now = {};
    found_last_ = id;
    if (knobs_.enable_block_reuse)
      r.look.now = pool_.find(r.share, (r.context - 1) / knobs_.tokens_per_block);
  }
  return r.look.now;
}

// Of what is found, blocks that somebody holds.
std::uint32_t TrtllmScheduler::held(Id id) {
  const TrtllmPool::Found& f = found(id);
  return f.blocks - f.idle;
}

// Whether a prompt that has not begun waits for blocks that another one is about to fill; if not, it is about
// to fill its own.
bool TrtllmScheduler::better_skipped(Id id) {
  if (!requests_[id].first_chunk()) return false;
  const TrtllmPool::Found& f = found(id);
  if (!f.fresh) return false;
  return !about_.meet(*f.fresh);
}

// [R23] Slots of states that nobody has: one pads CUDA graphs.
std::int64_t TrtllmScheduler::free_slots() const {
  if (knobs_.state_slots == 0) return std::numeric_limits<std::int64_t>::max();
  return std::int64_t{knobs_.state_slots} - 1 - static_cast<std::int64_t>(started_);
}

void TrtllmScheduler::require_states_played() const {
  if (knobs_.state_slots == 0) return;
  SL_CHECK(knobs_.state_slots > 1 && role_ == PairRole::none && !drafts(),
           "a request has a slot beside the one of padding, and states are of one server without drafts");
  if (knobs_.enable_block_reuse)
    throw UserError(
        {Diagnostic{{},
                    "enable_block_reuse=true beside layers that keep states saves one of each "
                    "mamba_state_cache_interval tokens of every prompt, which is not played yet",
                    {"enable_block_reuse=false, as launch files say it: memory then has a state of each of "
                     "max_batch_size requests, and blocks"}}});
  if (knobs_.capacity_scheduler_policy == TrtllmPolicy::max_utilization)
    throw UserError({Diagnostic{
        {},
        "capacity_scheduler_policy=MAX_UTILIZATION beside layers that keep states counts slots of them by "
        "the tokens of prompts and answers (getNeededBlocksOneStep has no rule for states), which is not "
        "played yet",
        {"GUARANTEED_NO_EVICT, the engine's default, or STATIC_BATCH"}}});
}

// Blocks that it lacks for its whole answer: fewer than none where drafts behind the end have some.
std::int64_t TrtllmScheduler::to_completion(Id id) {
  const Request& r = requests_[id];
  return owes(r) - (r.first_chunk() ? held(id) : 0);
}

// Blocks that it lacks for the next step; of one that asks for those to read into, all of its prompt's.
std::int64_t TrtllmScheduler::next_blocks(Id id) {
  const Request& r = requests_[id];
  if (r.state == Request::State::asks) return blocks_of(r.prompt);
  if (r.first_chunk()) return blocks_of(std::uint64_t{r.context} + r.drafts) - held(id);
  if (r.state == Request::State::context) return 0;
  if (drafts()) return blocks_to_verify(r);
  return blocks_of(std::uint64_t{r.cached} + 1) - blocks_of(r.cached);
}

// One has all of its prompt; one leaves or is paused.
void TrtllmScheduler::decode(Id id) {
  if (!together_) put(decoding_, id);
  owed_ += owes(requests_[id]);
}

void TrtllmScheduler::complete(Request& r) {
  r.state = Request::State::to_complete;
  ++completing_;
}

void TrtllmScheduler::decode_no_more(Id id) {
  const Request& r = requests_[id];
  const bool completes = r.state == Request::State::to_complete;
  if (!together_ || !completes) take_out(decoding_, id);
  owed_ -= owes(r);
  if (completes) --completing_;
}

// Whether who waits is looked up only where its text may be found up to its end: parts of prompts fill a step
// in order, and behind them there is room for less than a block.
bool TrtllmScheduler::awaits_end() const {
  return in_order_ && knobs_.enable_chunked_prefill && role_ != PairRole::decodes && !evicts();
}

void TrtllmScheduler::activate(Id id) {
  if (evicts()) active_.push_back(id);
  waiting_.push_back(id);
}

// Most begin before anybody asks for those that may be found.
void TrtllmScheduler::await_ends() {
  const std::uint64_t before = awaited_;
  for (auto i = waiting_.rbegin(); i != waiting_.rend() && requests_[*i].number >= before; ++i) {
    awaited_ = std::max(awaited_, requests_[*i].number + 1);
    await_end(*i);
  }
}

void TrtllmScheduler::await_end(Id id) {
  const Request& r = requests_[id];
  const std::uint32_t whole = (r.context - 1) / knobs_.tokens_per_block;
  if (whole > 0 && !knobs_.enable_block_reuse) return;
  if (whole == 0 || pool_.keeps(r.share, whole - 1))
    ends_.add_found(id);
  else if (const auto end = pool_.id_of(r.share, whole - 1))
    ends_.add(id, *end);
}

void TrtllmScheduler::wait_no_more(Id id) {
  leave_bound(id);
  take_out(waiting_, id);
  const Request& r = requests_[id];
  if (!awaits_end() || r.number >= awaited_) return;
  const std::uint32_t whole = (r.context - 1) / knobs_.tokens_per_block;
  ends_.remove(id, whole == 0 ? std::nullopt : pool_.id_of(r.share, whole - 1));
}

void TrtllmScheduler::fit_no_evict() {
  const bool is_static = knobs_.capacity_scheduler_policy == TrtllmPolicy::static_batch;
  std::int64_t available = pool_.available() - owed_;
  // All of those that decode are in the step, but where tokens or places are out.
  const bool all = together_ || (completing_ == 0 && decoding_.size() * rows() <= knobs_.max_num_tokens);
  if (staged())
    fit_who_is_back();
  else
    (all ? generating_ : fitting_) = decoding_;
  if (is_static && decoding() + coming_.size() > 0) return;
  if (role_ != PairRole::decodes) {
    fit_prompts(available);
    return;
  }
  // [R21] Nobody is paused, so that all that wait ask for blocks.
  for (const Id id : waiting_) {
    const std::int64_t needed = to_completion(id);
    if (needed > available) break;
    reading_.push_back(id);
    available -= needed;
  }
}

// The first that came behind the one of a number and has all that it lacks in so few tokens, less than a
// block, if it has blocks: by its number, or kNobody.
std::uint64_t TrtllmScheduler::first_behind(std::uint64_t number, std::uint32_t left) {
  await_ends();
  std::uint64_t first = kNobody;
  for (const Id id : prompts_)
    if (const Request& r = requests_[id]; r.number > number && r.context - r.cached <= left)
      first = std::min(first, r.number);
  for (const Id id : ends_.found()) {
    const Request& r = requests_[id];
    if (r.number <= number || r.number >= first) continue;
    if (r.context - found(id).blocks * knobs_.tokens_per_block <= left) first = r.number;
  }
  return first;
}

// What is found of those that fit, and held, takes no room.
void TrtllmScheduler::count_found(Room& room) {
  for (const Id id : uncounted_) room.counted -= to_completion(id);
  uncounted_.clear();
  room.blocks = room.counted;
}

// Whether a prompt that is not among the fitting ones yet fits behind them, as to_completion() says it. What
// is found and held is counted only where it decides: while all fit without it, they do with it.
bool TrtllmScheduler::fits(Id id, Room& room) {
  const Request& r = requests_[id];
  const std::int64_t states = r.first_chunk() ? 1 : 0;
  const std::size_t before = steady_.count() + generating_.size() + fitting_.size();
  if (before >= places() || states > room.slots) return false;
  const std::int64_t most = owes(r);
  if (most > room.blocks) {
    count_found(room);
    if (to_completion(id) > room.blocks) return false;
  }
  uncounted_.push_back(id);
  room.blocks -= most;
  room.slots -= states;
  return true;
}

// Prompts that do not wait for others' blocks and fit, up to the last one that has tokens of a step: whether
// those behind it fit decides nothing.
void TrtllmScheduler::fit_prompts(std::int64_t available) {
  const bool is_static = knobs_.capacity_scheduler_policy == TrtllmPolicy::static_batch;
  const bool parts = knobs_.enable_chunked_prefill;
  const std::uint32_t block = knobs_.tokens_per_block;
  const std::uint64_t verified = staged() ? std::min<std::uint64_t>(fitting_.size(), knobs_.max_batch_size)
                                          : (decoding() - completing_) * rows();
  std::uint32_t left = knobs_.max_num_tokens -
                       static_cast<std::uint32_t>(std::min<std::uint64_t>(verified, knobs_.max_num_tokens));
  uncounted_.clear();
  Room room{available, available, free_slots()};
  std::size_t last = fitting_.size();
  auto begun = prompts_.begin();
  auto waits = waiting_.begin();
  std::uint64_t first = kNobody;  // behind the others, that has tokens
  std::uint32_t asked = 0;        // that were left when it was looked for
  std::int64_t passed = 0;        // blocks of the bound's of those that were looked at
  bool bounding = false;
  while (begun != prompts_.end() || waits != waiting_.end()) {
    const bool old = waits == waiting_.end() ||
                     (begun != prompts_.end() && requests_[*begun].number < requests_[*waits].number);
    const Id id = old ? *begun++ : *waits++;
    const Request& r = requests_[id];
    if (is_in_bound(r)) passed += r.least;
    if (!is_static && better_skipped(id)) continue;
    if (bounding) add_to_bound(id, first);
    if (!fits(id, room)) break;
    fitting_.push_back(id);
    if (!in_order_) continue;
    const std::uint32_t all = r.context - r.cached, cached = r.first_chunk() ? found(id).blocks * block : 0;
    const std::uint32_t needs = cost(all, cached, all);
    if (needs <= left || (parts && left >= block)) last = fitting_.size();
    if (!parts && needs > left) {
      if (needs > knobs_.max_num_tokens) last = fitting_.size();  // the engine ends with an error
      break;
    }
    left -= std::min(left, needs <= left ? needs : left / block * block);
    if (!parts || left >= block) continue;
    if (left == 0) break;
    if (left != asked) first = first_behind(r.number, left);
    if (first == kNobody) break;
    if (asked == 0 && !is_static && !drafts()) {
      count_found(room);
      if (bars(first, room, passed)) break;
      begin_bound(room);
      bounding = true;
    }
    asked = left;
  }
  if (bounding) end_bound(waits, first);
  if (in_order_) fitting_.resize(last);
}

void TrtllmScheduler::fit_max_utilization() {
  std::int64_t needed = 0, free = pool_.available();
  TrtllmPool::Left left;
  std::size_t end = active_.size();
  const auto comes = [&](Id id) { return requests_[id].state == Request::State::comes; };
  for (std::size_t i = 0; i < end;) {
    const Id id = active_[i];
    if (comes(id) || better_skipped(id)) {
      ++i;
      continue;
    }
    if (fitting_.size() < knobs_.max_batch_size) {
      const std::int64_t with = needed + next_blocks(id);
      if (with <= free) {
        const Request::State state = requests_[id].state;
        if (state == Request::State::context) reserved_ += static_cast<std::uint64_t>(with - needed);
        needed = with;
        (state == Request::State::asks ? reading_ : fitting_).push_back(id);
        ++i;
        continue;
      }
    }
    // Of those from here on, the last that has begun; [R21] not one that reads.
    std::size_t last = end;
    while (last > i && (requests_[active_[last - 1]].share.blocks == 0 || comes(active_[last - 1]))) --last;
    if (last == i) break;
    end = last - 1;
    free += pool_.freed(requests_[active_[end]].share, left);
    pausing_.push_back(active_[end]);
  }
}

// The tokens of a part that are computed: what is found shifts it, so that it is shorter only at the end.
std::uint32_t TrtllmScheduler::cost(std::uint32_t size, std::uint32_t reusable, std::uint32_t left) {
  if (reusable == 0 || reusable + size < left) return size;
  return left - std::min(reusable, left);
}

void TrtllmScheduler::cut_in_order(std::uint32_t capacity) {
  for (Chunk& c : chunks_) {
    c.size = c.left;
    if (capacity < cost(c.size, c.reusable, c.left)) c.size = capacity;
    if (cost(c.size, c.reusable, c.left) > knobs_.max_num_tokens)
      c.size = std::min(knobs_.max_num_tokens, c.left);
    if (c.size < c.left) c.size = c.size / knobs_.tokens_per_block * knobs_.tokens_per_block;
    capacity -= std::min(capacity, cost(c.size, c.reusable, c.left));
  }
}

void TrtllmScheduler::cut_equally(std::uint32_t capacity) {
  for (Chunk& c : chunks_) c.size = 0;
  std::uint32_t sum = 0;
  for (bool more = true; more && sum < capacity;) {
    more = false;
    for (Chunk& c : chunks_) {
      const std::uint32_t size = std::min(c.size + knobs_.tokens_per_block, c.left);
      const std::uint32_t before = cost(c.size, c.reusable, c.left), after = cost(size, c.reusable, c.left);
      if (sum + after > capacity + before || size > knobs_.max_num_tokens) continue;
      sum += after;
      sum -= before;
      more = more || size > c.size;
      c.size = size;
    }
  }
}

}  // namespace shardline
