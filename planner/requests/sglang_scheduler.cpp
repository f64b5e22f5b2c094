#include "planner/requests/sglang_scheduler.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

SglangScheduler::SglangScheduler(const SglangKnobs& knobs, PairRole role, DraftLaw law)
    : knobs_(knobs),
      role_(role),
      law_(std::move(law)),
      free_(knobs.max_total_tokens / std::max(1U, knobs.page_size)),
      steps_(std::vector<DecidedStep>(knobs.disable_overlap_schedule ? 1 : 2)),
      ratio_from_(0) {
  SL_CHECK(knobs.page_size > 0 && knobs.max_running_requests > 0 && knobs.new_token_ratio_decay_steps > 0,
           "pages have tokens, and somebody runs");
  if (knobs.chunked_prefill_size > 0 && knobs.chunked_prefill_size < knobs.page_size) {
    throw UserError("chunked_prefill_size " + std::to_string(knobs.chunked_prefill_size) +
                    " is less than a page of " + std::to_string(knobs.page_size) + " tokens");
  }
  if (free_ == 0) throw UserError("the KV cache has room for no page");
  // arg_groups/speculative_hook.py, _handle_eagle_family: "Mixed chunked prefill is disabled".
  if (drafts() && knobs.enable_mixed_chunk)
    throw UserError("enable_mixed_chunk: SGLang turns it off where drafts are verified");
  ratio_from_ = first_ratio();
  // arg_groups/pd_disaggregation_hook.py: "KV cache is forced as chunk cache for decode server".
  if (role == PairRole::decodes) knobs_.disable_radix_cache = true;
  if (knobs.sliding_window > 0) begin_windows();
  if (knobs.pp_size > 1) begin_stages();
}

double SglangScheduler::first_ratio() const {
  return std::min(1.0, knobs_.init_new_token_ratio * knobs_.schedule_conservativeness);
}

std::uint32_t SglangScheduler::pages_of(std::uint64_t tokens) const {
  // Divisions of 64 bits take several times as long, and this is asked of each that runs.
  const std::uint64_t up = tokens + knobs_.page_size - 1;
  if (up <= std::numeric_limits<std::uint32_t>::max())
    return static_cast<std::uint32_t>(up) / knobs_.page_size;
  return static_cast<std::uint32_t>(up / knobs_.page_size);
}

std::uint32_t SglangScheduler::clipped(std::uint32_t tokens) const {
  return std::min(tokens, knobs_.clip_max_new_tokens_estimation);
}

double SglangScheduler::new_token_ratio() const { return ratio_after(ratio_steps_); }

double SglangScheduler::ratio_after(std::uint64_t steps) const {
  const double first = first_ratio();
  const double least = std::min(1.0, first * knobs_.min_new_token_ratio_factor);
  const double decay = (first - least) / knobs_.new_token_ratio_decay_steps;
  return std::max(ratio_from_ - decay * static_cast<double>(steps), least);
}

double SglangScheduler::kv_held() const {
  const auto held = [](std::uint64_t available, std::uint64_t of) {
    return 1 - static_cast<double>(available) / static_cast<double>(of);
  };
  const double full = held(available_pages(), pages());
  return windows_ ? std::max(full, held(windows_->available(), windows_->pages)) : full;
}

std::optional<std::uint32_t> SglangScheduler::answer_of(const TraceRequest& request) const {
  SL_CHECK(request.input > 0 && request.output > 0, "a request asks and is answered");
  // max_req_len and max_req_input_len of tp_worker.py; validate_input_length refuses from there on.
  const std::int64_t most =
      std::min<std::int64_t>(knobs_.context_length, static_cast<std::int64_t>(pages()) * knobs_.page_size) -
      1;
  if (request.input >= most - 5) return std::nullopt;
  const auto answer = static_cast<std::uint32_t>(
      std::min<std::int64_t>(request.output, std::max<std::int64_t>(1, most - request.input - 1)));
  const std::uint64_t all = pages() * knobs_.page_size;
  if (role_ == PairRole::decodes) {
    const std::uint64_t room = std::max(knobs_.num_reserved_decode_tokens, clipped(answer));
    if (static_cast<std::uint64_t>(request.input) + room > all) return std::nullopt;
  } else if (static_cast<std::uint64_t>(request.input) + clipped(answer) + knobs_.page_size >= all) {
    return std::nullopt;
  }
  if (windows_ && !windows_fit(request.input)) return std::nullopt;
  return answer;
}

// on_idle of managers/scheduler.py, where no group has a batch; and [R14] a server that decodes has gone
// round with nothing to do since it answered the last ones.
void SglangScheduler::rests() {
  ratio_from_ = first_ratio();
  ratio_steps_ = 0;
  gone_.clear();
  if (role_ == PairRole::decodes) finished_ = 0;
  // Every micro-batch has had its turn since, and more than one.
  for (std::size_t i = 0; i < 2 * batches_.size(); ++i) take_turn();
}

std::optional<SglangScheduler::Id> SglangScheduler::add(const TraceRequest& request,
                                                        std::uint32_t text_block) {
  const std::optional<std::uint32_t> answer = answer_of(request);
  if (!answer) return std::nullopt;
  SL_CHECK(text_block > 0 && text_block % knobs_.page_size == 0, "blocks of text are whole pages");
  text_block_ = text_block;
  Request r;
  r.prompt = static_cast<std::uint32_t>(request.input);
  r.answer = *answer;
  if (!knobs_.disable_radix_cache) r.text = texts_.keep(request.blocks);  // nobody else asks for it
  r.stream = request.number;
  r.number = added_++;
  const std::uint64_t number = r.number;
  const Id id = requests_.add(std::move(r));
  ++live_;
  switch (role_) {
    case PairRole::none:
      waiting_.push_back(id);
      break;
    case PairRole::prefills:
      handshakes_.add(number, id);
      break;
    case PairRole::decodes:
      asks_.push_back(id);
      break;
  }
  return id;
}

void SglangScheduler::forget(Id id) {
  SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
  requests_.forget(id);
}

// One that is not done, and so has not left.
void SglangScheduler::forget_early(Id id) {
  drop_text(requests_[id]);
  requests_.forget(id);
}

// Who was in a step with prompts runs from then on.
void SglangScheduler::merge_last() {
  if (cut_ && !(windows_ && windows_->cut_is_kept)) {
    keep_prompt(*cut_, requests_[*cut_].computed);
    if (windows_) windows_->cut_is_kept = true;
  }
  if (role_ == PairRole::prefills) {  // prefill.py, process_prefill_chunk: nobody decodes here
    last_.clear();
    last_prompts_ = full_ = false;
  }
  if (!last_prompts_) return;
  // Of a prompt that has ended in another micro-batch this one knows the part that it computed.
  std::erase_if(last_, [&](Id id) { return cut_ == id || last_cut_ == id; });
  if (last_fewer_) full_ = false;
  if (!last_.empty()) {
    if (running_.empty() && finished_ == 0) {
      full_ = false;
      if (windows_) windows_->of_running = windows_->of_prompts;
    }
    running_.insert(running_.end(), last_.begin(), last_.end());
  }
  last_.clear();
  last_prompts_ = false;
}

double SglangScheduler::room(const Budget& b) const {
  return static_cast<double>(available_pages() * knobs_.page_size) - b.total_offset;
}

void SglangScheduler::charge(Budget& b, std::uint32_t tokens, std::uint32_t answer) const {
  const std::int64_t paged = std::int64_t{pages_of(tokens)} * knobs_.page_size;
  b.total_offset += static_cast<double>(paged + answer + knobs_.page_size);
  b.current_offset += paged + knobs_.page_size;
  if (windows_) b.window_offset += windows_of(paged, b);
  b.input -= paged;
  b.chunk -= paged;
}

SglangScheduler::Outcome SglangScheduler::state(const Budget& b) const {
  const auto current = static_cast<std::int64_t>(available_pages() * knobs_.page_size) - b.current_offset;
  if (room(b) <= 0 || current <= 0 || (windows_ && window_room(b) <= 0)) return Outcome::no_token;
  if (b.input <= 0 || (knobs_.chunked_prefill_size > 0 && b.chunk <= 0)) return Outcome::other;
  return Outcome::taken;
}

// The prompt of which a part is computed goes on in any case, unless there are windows and no room.
bool SglangScheduler::add_cut(Budget& b) {
  const Request& r = requests_[*cut_];
  const std::uint32_t rest = r.fill - r.computed;
  auto tokens = std::min(b.chunk, static_cast<std::int64_t>(room(b)));
  if (windows_) tokens = std::min(tokens, window_room(b) - knobs_.page_size);
  if (tokens <= 0 && windows_) return false;
  if (tokens <= 0) tokens = b.chunk;
  const bool cut = rest > tokens;
  const auto now =
      static_cast<std::uint32_t>(std::min<std::int64_t>(rest, std::max<std::int64_t>(1, tokens)));
  b.begun.push_back(*cut_);
  b.tokens.push_back(now);
  charge(b, now, cut ? 0 : clipped(r.answer));
  if (cut) b.cut = cut_;
  return true;
}

SglangScheduler::Outcome SglangScheduler::add_waiting(Id id, Budget& b) {
  if (knobs_.prefill_max_requests > 0 && b.begun.size() >= knobs_.prefill_max_requests) return Outcome::other;
  Request& r = requests_[id];
  r.fill = r.prompt + r.known();
  RadixTree::Match match{};
  if (!knobs_.disable_radix_cache) {
    // The last token is computed in any case: its logits are asked for.
    const std::uint32_t whole = text_pages(r.fill - 1);
    extend_text(r, whole);
    match = windows_ ? windows_->tree.match(text_of(r, whole)) : tree_.match(text_of(r, whole));
  }
  const auto prefix = static_cast<std::uint32_t>(match.pages * knobs_.page_size);
  const std::uint32_t rest = r.fill - prefix, paged = pages_of(rest) * knobs_.page_size;
  const bool chunks = knobs_.chunked_prefill_size > 0;
  const double total = static_cast<double>(rest + clipped(r.answer - r.known()) + knobs_.page_size);
  const WindowTree::Pages before = windows_ ? windows_->tree.evictable() : WindowTree::Pages{};
  if (no_room(total, rest, b, before)) return Outcome::no_token;
  if (!chunks && !b.begun.empty() && paged >= b.input) return Outcome::other;
  lock(r, match.node);
  // What is found can be lost no more, so there may be less room now.
  if (no_room(total, rest, b, before)) {
    unlock(r);
    return Outcome::no_token;
  }
  std::uint32_t tokens = rest;
  const bool cut = chunks && paged > b.chunk;
  if (cut) {
    const std::int64_t fits = std::max<std::int64_t>(0, b.chunk) / knobs_.page_size * knobs_.page_size;
    if (fits <= 0) {
      unlock(r);
      return Outcome::other;
    }
    tokens = static_cast<std::uint32_t>(fits);
    b.cut = id;
  }
  r.kept = static_cast<std::uint32_t>(match.pages);
  r.computed = prefix;
  if (!r.began) r.found = prefix;
  r.began = true;
  ++slots_;
  b.begun.push_back(id);
  b.tokens.push_back(tokens);
  charge(b, tokens, cut ? 0 : clipped(r.answer));
  return state(b);
}

bool SglangScheduler::schedule_prompts() {
  if (windows_) {
    full_ = false;  // is_hybrid_swa: somebody is tried in every step
    windows_->refusal = {};
  }
  if ((full_ || waiting_.empty()) && !cut_) return false;
  const std::size_t places = places_to_begin();
  Budget b = budget();
  const bool parked = cut_ && !add_cut(b);
  while (!waiting_.empty()) {
    if (b.begun.size() >= places) full_ = true;
    if (windows_ && places == 0 && !cut_) windows_->refusal = {true, true, 0, 0};
    if (full_ || held_) break;
    const Id id = waiting_.front();
    const std::size_t before = b.begun.size();
    const Outcome outcome = add_waiting(id, b);
    if (b.begun.size() > before) waiting_.pop_front();
    if (outcome == Outcome::no_token) full_ = true;
    if (outcome != Outcome::taken) break;
  }
  if (b.begun.empty()) return false;
  SL_CHECK(!parked, "nobody begins beside a prompt that has no room to go on");
  compute_prompts(b);
  return true;
}

void SglangScheduler::compute_prompts(const Budget& b) {
  cut_ = b.cut;
  most_begun_ = std::max(most_begun_, static_cast<std::uint32_t>(b.begun.size()));
  std::uint64_t tokens = 0, pages = 0;
  for (std::size_t i = 0; i < b.begun.size(); ++i) {
    const Request& r = requests_[b.begun[i]];
    tokens += b.tokens[i];
    pages += pages_of(r.computed + b.tokens[i]) - pages_of(r.computed);
  }
  // alloc_paged_token_slots_extend asks for a page more of each.
  evict_for(tokens + (knobs_.page_size > 1 ? b.begun.size() * knobs_.page_size : 0));
  if (lacks(pages)) {
    const std::string what =
        "SGLang ends with an error: no room for " + std::to_string(tokens) +
        " tokens of prompts that it began (lower chunked_prefill_size or max_running_requests)";
    if (staged()) throw EngineStops(what);
    throw UserError(what);
  }
  take(pages);
  if (windows_) {
    windows_->of_prompts = ++windows_->batches;
    windows_->cut_is_kept = false;
  }
  DecidedStep& step = steps_.add();
  last_.clear();
  last_prompts_ = true;
  last_cut_ = cut_;
  last_fewer_ = cut_.has_value();
  for (std::size_t i = 0; i < b.begun.size(); ++i) {
    const Id id = b.begun[i];
    Request& r = requests_[id];
    step.batch.prompts.push_back({b.tokens[i], r.computed});
    r.computed += b.tokens[i];
    const bool token = cut_ != id;
    if (token) {
      ++r.generated;
      ++r.in_flight;
    }
    step.parts.push_back({id, token});
    last_.push_back(id);
  }
  if (!knobs_.enable_mixed_chunk) return;
  // Who runs is in this step's batch now, and the running batch is a new one, even where nobody but those who
  // are done was in it (_get_new_batch_prefill_raw).
  finished_ = 0;
  if (running_.empty()) return;
  decode_all(step);
  last_.insert(last_.end(), running_.begin(), running_.end());
  running_.clear();
}

bool SglangScheduler::schedule() {
  SL_CHECK(steps_.size() < depth(), "few enough steps are decided");
  if (staged()) return schedule_turn();
  if (role_ == PairRole::decodes) return schedule_answers();
  if (role_ == PairRole::prefills) notice();
  merge_last();
  const bool fewer = finished_ > 0;  // their places are others' from the next step on
  if (schedule_prompts() || schedule_decodes()) return true;
  if (windows_ && !fewer && !held_) stand_still();
  return false;
}

const StepBatch& SglangScheduler::front() const {
  SL_CHECK(!steps_.empty(), "a step is decided");
  return steps_.front().batch;
}

SglangScheduler::Ended SglangScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps > 0 && !steps_.empty(), "a step that ends was decided");
  return staged() ? end_turn() : end_front(steps);
}

SglangScheduler::Ended SglangScheduler::end_front(std::uint64_t steps) {
  if (steps > 1) more_alike(static_cast<std::uint32_t>(steps - 1));
  ended_.clear();
  const DecidedStep& step = steps_.front();
  steps_.pop_front();
  if (role_ == PairRole::prefills) send(step);
  for (const DecidedStep::Part& p : step.parts) {
    if (!p.token) continue;
    Request& r = requests_[p.id];
    if (drafts() && step.batch.prompts.empty())
      end_verified(r);
    else
      r.in_flight -= static_cast<std::uint32_t>(steps);
    ended_.push_back(p.id);
    r.done = r.known() == r.answer;
    if (r.done && role_ == PairRole::prefills) {
      keep(p.id);
    } else if (r.done) {
      if (drafts()) leave_next_step(p.id);
      leave(r);
      --live_;
      --slots_;
      if (role_ == PairRole::decodes) gone_.emplace_back(r.prompt, r.answer);
    } else if (r.prompt + r.known() == r.fill + 1) {
      keep_prompt(p.id, r.fill);  // its prompt has just ended
    }
  }
  const auto done = [&](Id id) { return requests_[id].done; };
  if (std::any_of(ended_.begin(), ended_.end(), done)) {
    finished_ += static_cast<std::uint32_t>(std::erase_if(running_, done));
    if (last_prompts_ && std::erase_if(last_, done) > 0) last_fewer_ = true;
  }
  if (drafts()) recount_next_step();
  return {ended_};
}

}  // namespace shardline
