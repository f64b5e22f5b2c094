// What SGLang's servers of a pair do beside their scheduler [R14].
#include <algorithm>
#include <string>
#include <utility>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// The server that prefills (disaggregation/prefill.py).

void SglangScheduler::has_room(std::uint64_t number) {
  const std::optional<Id> id = handshakes_.find(number);
  SL_CHECK(id, "who has room has come, and had none before");
  roomed_.emplace(number, *id);
}

// [R15] The other server is gone before it had room: nothing is held for the request but its place in line.
void SglangScheduler::lose_room(std::uint64_t number) {
  const std::optional<Id> id = handshakes_.find(number);
  SL_CHECK(id && !roomed_.contains({number, *id}), "who has no room loses none");
  forget_early(*id);
  handshakes_.erase(number);
  --live_;
}

// Ends of transfers are asked for once a step, or all the time where there is nothing to compute, in the
// order in which prompts ended (process_disagg_prefill_inflight_queue).
void SglangScheduler::was_read(std::uint64_t number, bool at_once) {
  SL_CHECK(kept_.contains(number), "who was read was computed");
  if (at_once) release_read();
  told_.push_back(number);
  if (at_once) release_read();
}

void SglangScheduler::release_read() {
  std::sort(told_.begin(), told_.end(),
            [&](std::uint64_t a, std::uint64_t b) { return kept_.at(a).second < kept_.at(b).second; });
  for (const std::uint64_t number : told_) {
    const auto at = kept_.find(number);
    leave(at->second.first);
    kept_.erase(at);
    --slots_;
    --buffers_;
  }
  told_.clear();
}

// Who has room at the other server is asked for likewise, in the order in which requests came
// (pop_bootstrapped).
void SglangScheduler::notice() {
  release_read();
  // managers/scheduler.py, init_disaggregation: buffer_size = max_running_requests * 2.
  const std::size_t most = std::size_t{2} * knobs_.max_running_requests;
  while (!roomed_.empty() && buffers_ < most) {
    const auto [number, id] = *roomed_.begin();
    roomed_.erase(roomed_.begin());
    handshakes_.erase(number);
    waiting_.push_back(id);
    ++buffers_;
  }
}

// All that was computed up to now, what was found here with the first part (send_kv_chunk).
void SglangScheduler::send(const DecidedStep& step) {
  for (std::size_t i = 0; i < step.parts.size(); ++i) {
    Request& r = requests_[step.parts[i].id];
    const PromptPart& part = step.batch.prompts[i];
    const std::uint32_t end = part.past + part.tokens;
    sent_.push_back({r.number, end - r.sent, step.parts[i].token});
    r.sent = end;
  }
}

// Its pages stay until they were read; others find its text already.
void SglangScheduler::keep(Id id) {
  keep_prompt(id, requests_[id].fill);
  Request& r = requests_[id];  // but for its text all of it is still asked for
  kept_.emplace(r.number, std::pair(std::move(r), kept_order_++));
  r.text = {};
  r.pages = 0;
  --live_;
}

void SglangScheduler::take_sent(std::vector<Sent>& out) {
  out.insert(out.end(), sent_.begin(), sent_.end());
  sent_.clear();
}

// The server that decodes (disaggregation/decode.py).

void SglangScheduler::take_reads(std::vector<Read>& out) {
  out.insert(out.end(), rooms_.begin(), rooms_.end());
  rooms_.clear();
}

void SglangScheduler::take_firsts(std::vector<Id>& out) {
  out.insert(out.end(), firsts_.begin(), firsts_.end());
  firsts_.clear();
}

void SglangScheduler::has_read(Id id) { arrived_.push_back(id); }

// [R15] Its receiver has failed: looked for as ends of transfers are.
void SglangScheduler::give_up(std::uint64_t number) {
  const auto is_it = [&](Id id) { return requests_[id].number == number; };
  const auto asks = std::find_if(asks_.begin(), asks_.end(), is_it);
  const auto comes = std::find_if(comes_.begin(), comes_.end(), is_it);
  SL_CHECK(asks != asks_.end() || comes != comes_.end(), "who gives up waits for a cache");
  requests_[asks != asks_.end() ? *asks : *comes].fails = true;
  ++failing_;
}

// pop_preallocated and pop_transferred: of who has failed, without pages or with them.
void SglangScheduler::drop_failed(bool with_pages) {
  if (failing_ == 0) return;
  const auto drop = [&](Id id) {
    const Request& r = requests_[id];
    if (!r.fails) return false;
    if (with_pages) {
      free_ += pages_of(r.computed);
      --slots_;
    }
    std::erase(arrived_, id);
    --failing_;
    --live_;
    changed_ = true;
    forget_early(id);
    return true;
  };
  if (with_pages)
    std::erase_if(comes_, drop);
  else
    std::erase_if(asks_, drop);
}

// process_decode_queue, then get_next_disagg_decode_batch_to_run. While somebody who lost its pages waits for
// them nothing else goes on, not even the look for caches that have come. With nothing to wait for the loop
// goes round at once (decides_again()).
bool SglangScheduler::schedule_answers() {
  changed_ = !gone_.empty();  // they are counted now and not when the next step is decided
  resume_lost();
  if (lost_.empty()) {
    give_room();
    look_for_read();
  }
  begin_read();
  return schedule_decodes();
}

std::size_t SglangScheduler::places() const {
  return std::size_t{knobs_.max_running_requests} + knobs_.disaggregation_decode_extra_slots;
}

// _active_reserved_tokens: of all that have pages, or had them up to the step before.
std::int64_t SglangScheduler::reserved() const {
  const std::size_t active = running_.size() + gone_.size() + comes_.size() + waiting_.size();
  return static_cast<std::int64_t>(active) * knobs_.num_reserved_decode_tokens;
}

void SglangScheduler::take_pages(Id id, std::uint32_t tokens) {
  const std::uint32_t pages = pages_of(tokens);
  if (pages > free_) {
    throw PairStops(
        "SGLang ends with an error: no page for the end of a prompt for which there were tokens "
        "(num_reserved_decode_tokens is less than a page)");
  }
  free_ -= pages;
  requests_[id].computed = tokens;
  ++slots_;
  changed_ = true;
}

// Who lost its pages has its cache in the host's memory, but for the token under way.
void SglangScheduler::resume_lost() {
  std::int64_t room = static_cast<std::int64_t>(free_ * knobs_.page_size) - reserved();
  while (!lost_.empty() && slots_ < places()) {
    const Id id = lost_.front();
    const Request& r = requests_[id];
    const std::uint32_t tokens = r.prompt + std::max(1U, r.known()) - 1;
    const std::int64_t needed = std::int64_t{tokens} + knobs_.num_reserved_decode_tokens;
    if (needed > room) return;
    room -= needed;
    lost_.pop_front();
    waiting_.push_back(id);
    take_pages(id, tokens);
  }
}

// pop_preallocated: in the order in which they came, until one does not fit beside what is kept for all, and
// beside what the longest that runs may still need when all others are retracted.
void SglangScheduler::give_room() {
  drop_failed(false);
  if (asks_.empty()) return;
  std::int64_t retractable = 0, longest = 0;
  bool counted = false;
  const auto count = [&](std::uint32_t prompt, std::uint32_t known, std::uint32_t answer) {
    retractable += std::int64_t{prompt} + known;
    longest = std::max(longest, std::int64_t{prompt} + clipped(answer));
  };
  const auto count_all = [&] {
    if (std::exchange(counted, true)) return;
    for (const Id id : running_) count(requests_[id].prompt, requests_[id].known(), requests_[id].answer);
    for (const auto& [prompt, answer] : gone_) count(prompt, answer, answer);
  };
  // managers/scheduler.py, init_disaggregation: buffer_size = req_to_token_pool.size * 2.
  const std::size_t buffers = std::size_t{2} * knobs_.max_running_requests;
  while (!asks_.empty() && slots_ < places() && comes_.size() < buffers) {
    const Id id = asks_.front();
    const Request& r = requests_[id];
    const auto free = static_cast<std::int64_t>(free_ * knobs_.page_size);
    const std::int64_t kept = std::int64_t{r.prompt} + knobs_.num_reserved_decode_tokens;
    if (kept > free - reserved()) return;  // what is free only falls while nobody is done
    // The longest lacks no more than its answer beyond what all have, so that mostly nobody is counted.
    const std::int64_t alone = std::int64_t{r.prompt} + clipped(r.answer);
    const std::int64_t lacks = knobs_.clip_max_new_tokens_estimation;
    if (std::max(kept, alone) > free - std::max(reserved(), lacks)) count_all();
    if (counted && std::max(kept, alone - retractable) > free - std::max(reserved(), longest - retractable)) {
      if (!running_.empty()) changed_ = true;  // the tokens that all have may let it in
      return;
    }
    asks_.pop_front();
    comes_.push_back(id);
    rooms_.push_back({id, r.number, r.prompt});
    take_pages(id, r.prompt);
  }
}

// pop_transferred: whoever is whole, in the order in which they had room.
void SglangScheduler::look_for_read() {
  drop_failed(true);
  if (arrived_.empty()) return;
  const auto place = [&](Id id) { return std::find(comes_.begin(), comes_.end(), id); };
  std::sort(arrived_.begin(), arrived_.end(), [&](Id a, Id b) { return place(a) < place(b); });
  waiting_.insert(waiting_.end(), arrived_.begin(), arrived_.end());
  for (const Id id : arrived_) comes_.erase(place(id));
  arrived_.clear();
  changed_ = true;
}

// get_new_prebuilt_batch: as many as there are places to run join those that do. The token that came with the
// cache goes to the client at once.
void SglangScheduler::begin_read() {
  const std::size_t running = running_.size() + finished_;
  std::size_t left = knobs_.max_running_requests > running ? knobs_.max_running_requests - running : 0;
  for (; left > 0 && !waiting_.empty(); --left) {
    const Id id = waiting_.front();
    waiting_.pop_front();
    Request& r = requests_[id];
    changed_ = true;
    if (!r.began) {
      r.began = true;
      r.generated = 1;
      firsts_.push_back(id);
      r.done = r.answer == 1;
    }
    if (!r.done) {
      running_.push_back(id);
      continue;
    }
    leave(r);
    --live_;
    --slots_;
  }
}

}  // namespace shardline
