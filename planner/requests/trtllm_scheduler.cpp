#include "planner/requests/trtllm_scheduler.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// How many steps may be decided and not ended. In stages as many as the queue of those that are launched has
// places (py_executor.py, MIN_ASYNC_MICRO_BATCH_NUM and executed_batch_queue).
std::size_t steps_ahead(const TrtllmKnobs& knobs) {
  if (knobs.pipeline_parallel_size > 1) return 1024;
  return knobs.disable_overlap_scheduler ? 1 : 2;
}

}  // namespace

TrtllmScheduler::TrtllmScheduler(const TrtllmKnobs& knobs, PairRole role, DraftLaw law)
    : knobs_(knobs),
      role_(role),
      law_(std::move(law)),
      in_order_(!knobs.enable_chunked_prefill ||
                knobs.context_chunking_policy != TrtllmChunking::equal_progress),
      together_(law_.drafts() == 0 && knobs.capacity_scheduler_policy != TrtllmPolicy::max_utilization &&
                knobs.max_batch_size <= knobs.max_num_tokens && knobs.pipeline_parallel_size == 1),
      pool_(knobs.blocks, knobs.enable_block_reuse),
      steady_(knobs.tokens_per_block),
      steps_(std::vector<DecidedStep>(steps_ahead(knobs))) {
  SL_CHECK(knobs.tokens_per_block > 0 && knobs.max_num_tokens > 0 && knobs.max_batch_size > 0,
           "a step has room for a token of a request");
  if (blocks_of(knobs.max_seq_len) > knobs.blocks) {
    throw UserError("max_seq_len " + std::to_string(knobs.max_seq_len) + " needs " +
                    std::to_string(blocks_of(knobs.max_seq_len)) + " blocks of " +
                    std::to_string(knobs.tokens_per_block) + " tokens, the KV cache has " +
                    std::to_string(knobs.blocks));
  }
  if (knobs.enable_chunked_prefill && knobs.max_num_tokens < knobs.tokens_per_block) {
    throw UserError("max_num_tokens " + std::to_string(knobs.max_num_tokens) + " is less than a block of " +
                    std::to_string(knobs.tokens_per_block) + " tokens, of which parts of prompts are made");
  }
  require_room_for_drafts();
  require_states_played();
  require_stages_played();
}

std::uint32_t TrtllmScheduler::blocks_of(std::uint64_t tokens) const {
  return static_cast<std::uint32_t>((tokens + knobs_.tokens_per_block - 1) / knobs_.tokens_per_block);
}

bool TrtllmScheduler::takes(const TraceRequest& request) const {
  if (request.input >= knobs_.max_seq_len) return false;
  if (role_ == PairRole::decodes) return true;  // which computes no prompt
  return knobs_.enable_chunked_prefill || request.input <= knobs_.max_num_tokens;
}

std::optional<TrtllmScheduler::Id> TrtllmScheduler::add(const TraceRequest& request,
                                                        std::uint32_t text_block) {
  SL_CHECK(request.input > 0 && request.output > 0, "a request asks and is answered");
  SL_CHECK(text_block > 0 && text_block % knobs_.tokens_per_block == 0, "blocks of text are whole blocks");
  if (!takes(request)) return std::nullopt;
  Request r;
  r.prompt = r.context = static_cast<std::uint32_t>(request.input);
  r.answer =
      static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, knobs_.max_seq_len - request.input));
  r.all_blocks = blocks_of(std::uint64_t{r.prompt} + r.answer);
  r.stream = request.number;
  r.number = added_++;
  if (knobs_.enable_block_reuse)
    r.share.text = pool_.add_text({request.blocks, text_block, knobs_.tokens_per_block, r.prompt, r.number});
  if (role_ == PairRole::decodes) r.state = Request::State::asks;
  const Id id = requests_.add(std::move(r));
  queue_.push_back(id);
  ++here_;
  return id;
}

void TrtllmScheduler::forget(Id id) {
  SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
  requests_.forget(id);
}

// So many tokens have blocks.
void TrtllmScheduler::take_blocks(Request& r, std::uint64_t tokens) {
  if (tokens <= std::uint64_t{r.share.blocks} * knobs_.tokens_per_block) return;
  const std::uint32_t blocks = blocks_of(tokens) - r.share.blocks;
  if (blocks > pool_.available()) lack_blocks();
  pool_.take(r.share, blocks);
  if (r.state != Request::State::context && r.state != Request::State::asks) owed_ -= blocks;
}

// Of those that fit the cache, those that fit a step.
void TrtllmScheduler::choose() {
  std::size_t count = steady_.count() + generating_.size();
  auto tokens = static_cast<std::uint32_t>(count * rows());
  std::uint64_t prompts = 0;
  bool fit = true;
  for (const Id id : fitting_) {
    if (count >= knobs_.max_batch_size) break;
    const Request& r = requests_[id];
    if (r.state == Request::State::to_complete) continue;
    if (r.state != Request::State::context) {
      if (tokens + rows() > knobs_.max_num_tokens) break;
      generating_.push_back(id);
      tokens += rows();
    } else {
      Chunk c{id, r.context - r.cached, 0, 0};
      if (r.first_chunk()) c.reusable = found(id).blocks * knobs_.tokens_per_block;
      c.size = c.left;
      std::uint32_t now = cost(c.size, c.reusable, c.left) + r.drafts;
      if (!knobs_.enable_chunked_prefill) {
        now = std::max(1U, now);
        if (now > knobs_.max_num_tokens) {
          throw UserError("TensorRT-LLM ends with an error: a request of " + std::to_string(c.left) +
                          " tokens, after a pause, exceeds max_num_tokens " +
                          std::to_string(knobs_.max_num_tokens) + " (set enable_chunked_prefill)");
        }
        if (tokens + now > knobs_.max_num_tokens) break;
        tokens += now;
      } else {
        if (now > knobs_.max_num_tokens) {
          now = knobs_.max_num_tokens;
          fit = false;
        }
        prompts += now;
      }
      chunks_.push_back(c);
    }
    ++count;
  }
  if (!knobs_.enable_chunked_prefill) return;
  const std::uint32_t capacity = knobs_.max_num_tokens - tokens;
  if (fit && prompts <= capacity) return;
  if (knobs_.context_chunking_policy == TrtllmChunking::equal_progress)
    cut_equally(capacity);
  else
    cut_in_order(capacity);
  std::erase_if(chunks_, [](const Chunk& c) { return c.size == 0; });
}

// Whether prompts wait for more of them to share their step.
bool TrtllmScheduler::held_back() {
  if (knobs_.batch_wait_timeout_iters == 0 && knobs_.batch_wait_max_tokens_ratio <= 0) return false;
  const std::size_t decodes = steady_.count() + generating_.size();
  if (chunks_.empty() || decodes == 0) return false;
  auto tokens = static_cast<double>(decodes * rows());
  for (const Chunk& c : chunks_) tokens += cost(c.size, c.reusable, c.left);
  if (waited_ >= knobs_.batch_wait_timeout_iters ||
      tokens >= knobs_.batch_wait_max_tokens_ratio * knobs_.max_num_tokens) {
    waited_ = 0;
    return false;
  }
  ++waited_;
  return true;
}

// Full blocks of so many tokens that nobody else has stored can be found.
void TrtllmScheduler::store(Request& r, std::uint32_t tokens) {
  if (!knobs_.enable_block_reuse) return;
  new_ids_.clear();
  pool_.store(r.share, tokens / knobs_.tokens_per_block, new_ids_);
  ends_.store(new_ids_);
  // What the bound does not foresee, trtllm_bound.cpp.
  const bool foreseen = !r.stored && finished_ > bound_.decided &&
                        (r.context % knobs_.tokens_per_block != 0 || !pool_.is_followed(r.share));
  if (!foreseen && !new_ids_.empty()) bound_.stands = false;
}

void TrtllmScheduler::pause(Id id) {
  Request& r = requests_[id];
  // Of its text the last token counts as one without KV, whether a step of it is under way or not.
  const std::uint32_t known = r.prompt + r.generated - (r.last > finished_ ? 1 : 0);
  store(r, std::min(r.cached, known - 1));
  if (r.state == Request::State::context)
    take_out(prompts_, id);
  else
    decode_no_more(id);
  put(waiting_, id);
  pool_.release(r.share);
  r.context = r.prompt + r.generated;
  r.cached = r.kv = 0;
  r.state = Request::State::context;
  r.stored = false;
  ++r.preempted;
  ++paused_;
  --started_;
}

// Blocks for the first so many tokens of its text: those that are found, whose tokens are given back, and
// others.
std::uint32_t TrtllmScheduler::take_text(Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  if (knobs_.enable_block_reuse) {
    pool_.find(r.share, (tokens - 1) / knobs_.tokens_per_block);
    pool_.hold_found(r.share);
  }
  const std::uint32_t found = r.share.blocks * knobs_.tokens_per_block;
  if (!r.began) r.found = found;
  r.began = true;
  // num_extra_kv_tokens, for the module's later passes, and drafts that it had when it was paused.
  if (drafts())
    add_tokens(r, tokens + law_.drafts() - 1 + r.drafts);
  else
    take_blocks(r, tokens);
  return found;
}

void TrtllmScheduler::begin(Id id) {
  Request& r = requests_[id];
  wait_no_more(id);
  put(prompts_, id);
  r.cached = take_text(id, r.context);
  ++started_;
}

bool TrtllmScheduler::compute_prompt(const Chunk& c, std::uint32_t& budget) {
  Request& r = requests_[c.id];
  if (r.first_chunk()) begin(c.id);
  const std::uint32_t block = knobs_.tokens_per_block;
  std::uint32_t size = r.context - r.cached;
  if (c.size < size) size = (r.cached + c.size) / block * block - r.cached;
  // What was counted as found may have been lost to another one of this step.
  if (knobs_.enable_chunked_prefill && size > budget)
    size = std::max((r.cached + budget) / block * block, r.cached) - r.cached;
  if (size == 0) return false;
  budget -= std::min(budget, size);
  DecidedStep& step = steps_.back();
  step.batch.prompts.push_back({size, r.cached});
  r.cached += size;
  const bool token = r.cached == r.context;
  if (token) {
    r.drafts = law_.drafts();
    r.state = Request::State::generation;
    take_out(prompts_, c.id);
    decode(c.id);
    if (drafts())
      ++r.in_flight;
    else
      add_token(c.id);
  }
  step.parts.push_back({c.id, token});
  return true;
}

bool TrtllmScheduler::schedule() {
  SL_CHECK(steps_.size() < depth(), "few enough steps are decided");
  while (!queue_.empty() && active() < places()) {
    activate(queue_.front());
    queue_.pop_front();
  }
  left_early_ = false;
  notice();
  fitting_.clear();
  reading_.clear();
  pausing_.clear();
  generating_.clear();
  chunks_.clear();
  ++decisions_;
  about_.restart();
  reserved_ = 0;
  if (drafts()) leave_out_who_ends();
  for (const Id id : prompts_) {
    const TrtllmPool::Found& f = found(id);
    if (f.fresh) about_.meet(*f.fresh);
  }
  if (evicts())
    fit_max_utilization();
  else
    fit_no_evict();
  begin_reads();
  choose();
  undisturbed_ = pausing_.empty() && !left_early_;
  if (held_back()) {
    chunks_.clear();
    undisturbed_ = false;
  }
  for (const Id id : pausing_) pause(id);
  const auto decodes = static_cast<std::uint32_t>(steady_.count() + generating_.size());
  if (chunks_.empty() && decodes == 0) return false;
  DecidedStep& step = steps_.add();
  std::uint32_t budget = knobs_.max_num_tokens - decodes * rows();
  for (const Chunk& c : chunks_) compute_prompt(c, budget);
  if (drafts())
    verify_all(step);
  else
    decode_all(step);
  if (step.batch.empty()) {
    steps_.drop_back();
    return false;
  }
  ++decided_;
  join_steady();
  return true;
}

const StepBatch& TrtllmScheduler::front() const {
  SL_CHECK(!steps_.empty(), "a step is decided");
  return steps_.front().batch;
}

TrtllmScheduler::Ended TrtllmScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps > 0 && !steps_.empty(), "a step that ends was decided");
  if (drafts()) return finish_verified();
  if (steps > 1) more_alike(steps - 1);
  finished_ += steps;
  ended_.clear();
  bool any = false;
  const DecidedStep& step = steps_.front();
  for (const DecidedStep::Part& p : step.parts) {
    if (!p.token) continue;
    Request& r = requests_[p.id];
    ended_.push_back(p.id);
    r.done = r.generated == r.answer && r.last <= finished_;
    any = any || r.done;
    if (!r.stored && r.share.blocks > 0) {
      store(r, r.context);
      r.stored = true;
    }
  }
  steps_.pop_front();
  if (any) leave_done();
  return {ended_, step.others, step.before};
}

// In the order in which they came.
void TrtllmScheduler::leave_done() {
  leaving_.clear();
  for (const Id id : ended_)
    if (requests_[id].done) put(leaving_, id);
  for (const Id id : leaving_) leave(id);
}

void TrtllmScheduler::leave(Id id) {
  Request& r = requests_[id];
  --here_;
  if (evicts()) take_out(active_, id);
  if (r.share.blocks == 0) {
    wait_no_more(id);
  } else {
    decode_no_more(id);
    store(r, r.prompt + r.answer - 1);
    if (role_ != PairRole::prefills) pool_.release(r.share);
    --started_;
  }
  if (knobs_.enable_block_reuse) pool_.drop_text(r.share.text);
  if (role_ == PairRole::prefills) keep(r);
  r.share = {};
}

}  // namespace shardline
