#include "tests/planner/requests/blockwise_vllm.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

BlockwiseVllm::BlockwiseVllm(const VllmKnobs& knobs, PairRole role)
    : knobs_(knobs), role_(role), pool_(knobs.num_gpu_blocks, knobs.enable_prefix_caching) {}

std::uint32_t BlockwiseVllm::blocks_of(std::uint64_t tokens) const {
  return static_cast<std::uint32_t>((tokens + knobs_.block_size - 1) / knobs_.block_size);
}

std::optional<BlockwiseVllm::Id> BlockwiseVllm::add(const TraceRequest& request, std::uint32_t text_block) {
  SL_CHECK(request.input > 0 && request.output > 0, "a request asks and is answered");
  SL_CHECK(text_block > 0 && text_block % knobs_.block_size == 0, "blocks of text are whole blocks");
  if (request.input >= knobs_.max_model_len) return std::nullopt;
  text_block_ = text_block;
  Request r;
  r.prompt = static_cast<std::uint32_t>(request.input);
  r.answer = static_cast<std::uint32_t>(
      std::min<std::int64_t>(request.output, knobs_.max_model_len - request.input));
  r.text = request.blocks;
  r.number = added_++;
  r.remote = role_ == PairRole::decodes && !request.local_prefill;
  const Id id = requests_.add(std::move(r));
  waiting_.push_back(id);
  return id;
}

void BlockwiseVllm::forget(Id id) {
  SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
  requests_.forget(id);
}

void BlockwiseVllm::extend(Id id, std::size_t blocks) {
  Request& r = requests_[id];
  extend_chain(r.chain, blocks, {r.text, text_block_, knobs_.block_size, r.prompt, r.number});
}

// Blocks of tokens that are computed and known: not those that steps in flight will say.
void BlockwiseVllm::fill(Id id) {
  if (!knobs_.enable_prefix_caching) return;
  Request& r = requests_[id];
  const std::uint32_t full = std::min(r.computed, r.tokens() - r.in_flight) / knobs_.block_size;
  if (full <= r.filled) return;
  extend(id, full);
  for (; r.filled < full; ++r.filled) pool_.fill(r.blocks[r.filled], r.chain[r.filled]);
}

// Room for so many tokens in all, `computed` of which have some.
bool BlockwiseVllm::grow(Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  const auto has = static_cast<std::uint32_t>(r.blocks.size());
  const std::uint32_t more = std::max(blocks_of(tokens), has) - has;
  if (more > pool_.available()) return false;
  pool_.take(more, r.blocks);
  return true;
}

// Into the step that is being decided.
void BlockwiseVllm::count(Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  DecidedStep& step = steps_.back();
  if (tokens == 1 && (r.generated > 0 || r.read) && r.computed + 1 == r.tokens()) {
    step.add_decode(r.computed);
  } else {
    step.batch.prompts.push_back({tokens, r.computed});
  }
  r.computed += tokens;
  fill(id);
  const bool token = r.computed == r.tokens();
  if (token) {
    ++r.generated;
    ++r.in_flight;
  }
  step.parts.push_back({id, token});
}

void BlockwiseVllm::preempt(Id id) {
  Request& r = requests_[id];
  pool_.release(r.blocks);
  r.blocks.clear();
  r.computed = r.filled = 0;
  ++r.preempted;
  ++preemptions_;
  waiting_.push_front(id);
}

// Whether nobody lost its blocks.
bool BlockwiseVllm::schedule_running(std::uint32_t& budget) {
  bool kept = true;
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Id id = running_[i];
    const Request& r = requests_[id];
    if (r.generated == r.answer) continue;  // its last token is in a step that has not ended
    std::uint32_t tokens = r.tokens() - r.computed;
    const std::uint32_t part = knobs_.long_prefill_token_threshold;
    if (part > 0 && part < tokens) tokens = part;
    tokens = std::min({tokens, budget, knobs_.max_model_len - 1 - r.computed});
    if (tokens == 0) continue;
    bool fits = grow(id, r.computed + tokens);
    while (!fits) {
      const Id last = running_.back();
      running_.pop_back();
      preempt(last);
      kept = false;
      if (last == id) break;
      fits = grow(id, r.computed + tokens);
    }
    if (!fits) break;
    budget -= tokens;
    count(id, tokens);
  }
  return kept;
}

// Room for the whole prompt, beside what is found: then it reads.
bool BlockwiseVllm::read(Id id) {
  Request& r = requests_[id];
  const std::size_t whole = (r.prompt - 1) / knobs_.block_size;
  std::vector<KvBlock> found;
  if (knobs_.enable_prefix_caching) {
    extend(id, whole);
    pool_.find(std::span(r.chain).first(whole), found);
  }
  const auto kept = running_.empty() ? 0 : static_cast<std::uint32_t>(knobs_.watermark * pool_.size());
  if (blocks_of(r.prompt) - found.size() + pool_.idle(found) + kept > pool_.available()) return false;
  pool_.hold(found);
  r.filled = static_cast<std::uint32_t>(found.size());
  r.found = r.filled * knobs_.block_size;
  r.blocks = std::move(found);
  grow(id, r.prompt);
  r.began = r.reading = true;
  r.remote = false;
  ++reading_;
  reads_.push_back({id, r.number, r.prompt - r.found});
  return true;
}

// Nothing came of what it was to read.
bool BlockwiseVllm::compute_unread(Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  std::uint32_t rest = r.prompt - r.found;
  const std::uint32_t part = knobs_.long_prefill_token_threshold;
  if (part > 0 && part < rest) rest = part;
  if (!knobs_.enable_chunked_prefill && rest > budget) return false;
  if (!running_.empty() && static_cast<std::uint32_t>(knobs_.watermark * pool_.size()) > pool_.available())
    return false;
  rest = std::min(rest, budget);
  r.reading = false;
  r.computed = r.found;
  --reading_;
  running_.push_back(id);
  budget -= rest;
  count(id, rest);
  return true;
}

bool BlockwiseVllm::admit(Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  if (r.reading && r.fails) return compute_unread(id, budget);
  if (r.reading) {
    r.computed = r.prompt - 1;
    fill(id);
    if (!running_.empty() && static_cast<std::uint32_t>(knobs_.watermark * pool_.size()) > pool_.available())
      return false;
    r.reading = false;
    --reading_;
    running_.push_back(id);
    --budget;
    count(id, 1);
    return true;
  }
  // The last token is computed in any case: its logits are asked for.
  const std::size_t whole = (r.tokens() - 1) / knobs_.block_size;
  std::vector<KvBlock> found;
  if (knobs_.enable_prefix_caching) {
    extend(id, whole);
    pool_.find(std::span(r.chain).first(whole), found);
  }
  const auto hits = static_cast<std::uint32_t>(found.size());
  const std::uint32_t cached = hits * knobs_.block_size;
  std::uint32_t tokens = r.tokens() - cached;
  const std::uint32_t part = knobs_.long_prefill_token_threshold;
  if (part > 0 && part < tokens) tokens = part;
  if (!knobs_.enable_chunked_prefill && tokens > budget) return false;
  tokens = std::min(tokens, budget);
  const std::uint32_t asked = knobs_.scheduler_reserve_full_isl ? r.tokens() : cached + tokens;
  const auto kept = running_.empty() ? 0 : static_cast<std::uint32_t>(knobs_.watermark * pool_.size());
  // Blocks that are found and idle are in the free queue, too.
  if (std::uint64_t{blocks_of(asked)} - hits + pool_.idle(found) + kept > pool_.available()) return false;
  pool_.hold(found);
  r.blocks = std::move(found);
  r.computed = cached;
  r.filled = hits;
  if (!r.began) r.found = cached;
  r.began = true;
  const bool fits = grow(id, cached + tokens);
  SL_CHECK(fits, "what fits as a whole fits in parts");
  running_.push_back(id);
  budget -= tokens;
  count(id, tokens);
  return true;
}

bool BlockwiseVllm::schedule() {
  SL_CHECK(steps_.size() < depth(), "few enough steps are decided");
  if (decide()) return true;
  if (role_ == PairRole::none || !steps_.empty() || (told_.empty() && kept_)) return false;
  notice(told_, true);
  return decide();
}

// A dummy batch, of nothing, in which its worker is asked.
void BlockwiseVllm::schedule_or_dummy() {
  if (decide()) return;
  steps_.emplace_back();
  told_of_.push_back(std::exchange(told_, {}));
}

void BlockwiseVllm::fail(Id id, bool at_once) {
  Request& r = requests_[id];
  if (knobs_.recompute_failed_loads) {
    if (r.found > 0) {  // what was found stays, and so do all blocks
      r.read = true;
      return;
    }
    pool_.release(r.blocks);
    r.blocks.clear();
    r.filled = r.computed = 0;
    r.reading = r.fails = r.began = false;
    --reading_;
    return;
  }
  failed_.push_back({r.number, at_once});
  pool_.release(r.blocks);
  --reading_;
  std::erase(waiting_, id);
  requests_.forget(id);
}

void BlockwiseVllm::notice(std::vector<std::uint64_t>& told, bool at_once) {
  for (const std::uint64_t it : told) {
    if (role_ == PairRole::decodes) {
      if (requests_[static_cast<Id>(it)].fails)
        fail(static_cast<Id>(it), at_once);
      else
        requests_[static_cast<Id>(it)].read = true;
    } else {
      pool_.release(kept_blocks_.at(it));
      kept_blocks_.erase(it);
    }
  }
  told.clear();
}

bool BlockwiseVllm::decide() {
  steps_.emplace_back();
  std::uint32_t budget = knobs_.max_num_batched_tokens;
  kept_ = schedule_running(budget);
  for (const Id id : std::vector<Id>(waiting_.begin(), waiting_.end())) {
    if (!kept_ || budget == 0 || running_.size() >= knobs_.max_num_seqs) break;
    if (requests_[id].reading && !requests_[id].read) continue;
    if (requests_[id].remote) {
      if (!read(id)) break;
      continue;
    }
    if (!admit(id, budget)) break;
    std::erase(waiting_, id);
  }
  if (!steps_.back().parts.empty()) {
    told_of_.push_back(std::exchange(told_, {}));
    return true;
  }
  steps_.pop_back();
  return false;
}

const StepBatch& BlockwiseVllm::front() const {
  SL_CHECK(!steps_.empty(), "a step is decided");
  return steps_.front().batch;
}

std::uint64_t BlockwiseVllm::blocks_for(std::uint64_t steps) const {
  std::uint64_t sum = 0;
  for (const DecidedStep::Part& p : steps_.back().parts) {
    sum += blocks_of(requests_[p.id].computed + steps) - requests_[p.id].blocks.size();
  }
  return sum;
}

std::uint64_t BlockwiseVllm::steps_alike() const {
  if (steps_.size() < depth() || role_ != PairRole::none) return 1;
  const DecidedStep &first = steps_.front(), &last = steps_.back();
  // After a preemption others may begin in the next step, and who runs but is not in this one had no budget.
  // Else whoever waits goes on to: as long as nobody is done there are ever fewer blocks, and no more places.
  if (!kept_ || !first.batch.prompts.empty() || !last.batch.prompts.empty() || first.parts != last.parts ||
      last.parts.size() != running_.size()) {
    return 1;
  }
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();  // more that can be decided
  for (const DecidedStep::Part& p : last.parts) {
    most = std::min<std::uint64_t>(most, requests_[p.id].answer - requests_[p.id].generated);
  }
  if (blocks_for(most) <= pool_.available()) return most + 1;
  std::uint64_t fits = 0;
  while (most - fits > 1) {
    const std::uint64_t middle = fits + (most - fits) / 2;
    (blocks_for(middle) <= pool_.available() ? fits : most) = middle;
  }
  return fits + 1;
}

// Decides so many steps like the last one, whose place they take.
void BlockwiseVllm::more_alike(std::uint32_t steps) {
  DecidedStep& last = steps_.back();
  for (const DecidedStep::Part& p : last.parts) {
    Request& r = requests_[p.id];
    const bool fits = grow(p.id, r.computed + steps);
    SL_CHECK(fits, "steps that are alike have their blocks");
    r.computed += steps;
    r.generated += steps;
  }
  last.advance(steps);
}

Scheduler::Ended BlockwiseVllm::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps > 0 && !steps_.empty(), "a step that ends was decided");
  if (steps > 1) more_alike(static_cast<std::uint32_t>(steps - 1));
  ended_.clear();
  for (const DecidedStep::Part& p : steps_.front().parts) {
    if (!p.token) continue;
    Request& r = requests_[p.id];
    --r.in_flight;
    if (!r.blocks.empty()) fill(p.id);
    ended_.push_back(p.id);
    r.done = r.generated == r.answer && r.in_flight == 0;
  }
  steps_.pop_front();
  // Blocks of those that are done are given back in the order in which they ran.
  bool any = false;
  for (const Id id : ended_) {
    if (!requests_[id].done) continue;
    leave(id);
    any = true;
  }
  if (any) std::erase_if(running_, [&](Id id) { return requests_[id].done; });
  notice(told_of_.front(), false);
  told_of_.pop_front();
  return {ended_};
}

void BlockwiseVllm::leave(Id id) {
  Request& r = requests_[id];
  // Its blocks may be lost already: then it waited while its last token was in flight.
  if (r.blocks.empty()) std::erase(waiting_, id);
  if (role_ == PairRole::prefills) {
    kept_blocks_[r.number] = r.blocks;
  } else {
    pool_.release(r.blocks);
  }
  r.blocks = {};
  r.chain = {};
  r.text = {};
}

}  // namespace shardline
