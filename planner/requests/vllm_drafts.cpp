#include "planner/requests/vllm_drafts.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

VllmDraftScheduler::VllmDraftScheduler(const VllmKnobs& knobs, PairRole role, DraftLaw law)
    : VllmListed(knobs, role), law_(std::move(law)) {
  SL_CHECK(law_.drafts() > 0, "a scheduler of drafts has some");
}

std::optional<Scheduler::Id> VllmDraftScheduler::add(const TraceRequest& request, std::uint32_t text_block) {
  const std::optional<Id> id = VllmListed::add(request, text_block);
  if (id) requests_[*id].stream = request.number;
  return id;
}

// Its last token is in a step that has not ended, even if that accepts no draft.
bool VllmDraftScheduler::surely_ends(const Request& r) const {
  return r.promised > 0 && r.generated + 1 >= r.answer;
}

// Counts tokens of a request to the step that is being decided.
void VllmDraftScheduler::count(Step& step, Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  const std::uint32_t whole = r.known() + r.promised;
  // A step of the last token alone is one of decoding, whoever computed the rest of a prompt.
  const bool decodes = r.computed + 1 == whole && (r.generated + r.promised > 0 || r.read);
  Part part{id, false, decodes, false, 0, decodes ? r.computed : 0};
  if (!decodes) step.batch.prompts.push_back({tokens, r.computed});
  r.computed += tokens;
  fill(r, std::min(r.computed, r.known()));
  part.token = r.computed >= whole;
  if (part.token) {
    part.drafts = r.computed - whole;
    r.promised += 1 + part.drafts;
    r.next_drafts = law_.drafts();
  }
  r.part = static_cast<std::uint32_t>(step.parts.size());
  step.parts.push_back(part);
}

void VllmDraftScheduler::schedule_running(Step& step, std::uint32_t& budget) {
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Id id = running_[i];
    Request& r = requests_[id];
    if (surely_ends(r)) continue;
    const std::uint32_t lacks = r.known() + r.promised + r.next_drafts - r.computed;
    const std::uint32_t tokens =
        std::min({knobs_.part_of(lacks), budget, knobs_.max_model_len - 1 - r.computed});
    if (tokens == 0) continue;
    // Blocks that rejected drafts had are there already.
    const bool fits = make_room(id, std::uint64_t{r.computed} + tokens + law_.drafts());
    // Whoever begins needs no blocks for drafts, and whoever goes on does.
    if (!fits && running_.empty()) lost_alone(r);
    if (!fits) break;
    budget -= tokens;
    count(step, id, tokens);
  }
}

bool VllmDraftScheduler::admit(Step& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  // The last token is computed in any case: its logits are asked for.
  RunPool::Found found = pool_.find(r.share, (r.known() - 1) / knobs_.block_size);
  if (found.blocks > 0) found = pool_.find(r.share, found.blocks - 1);
  if (r.remote) return begin_read(id, found);
  // Who begins has no room for drafts yet.
  const std::uint32_t tokens = begin_computing(r, found, r.known(), budget);
  if (tokens > 0) run(step, id, tokens, budget);
  return tokens > 0;
}

void VllmDraftScheduler::run(Step& step, Id id, std::uint32_t tokens, std::uint32_t& budget) {
  VllmListed::run(id);
  budget -= tokens;
  count(step, id, tokens);
}

void VllmDraftScheduler::recount(Step& step) {
  step.batch.decodes = step.batch.longest = 0;
  step.batch.cached = 0;
  for (const Part& p : step.parts) {
    if (!p.decodes) continue;
    ++step.batch.decodes;
    step.batch.cached += p.cached;
    step.batch.longest = std::max(step.batch.longest, p.cached);
  }
}

bool VllmDraftScheduler::decide(bool dummy) {
  Step& now = steps_.emplace_back();
  now.told.swap(told_);
  std::uint32_t budget = knobs_.max_num_batched_tokens;
  kept_ = true;
  schedule_running(now, budget);
  admit_waiting(
      budget, law_.drafts(), [&](Id id) { return admit(now, id, budget); },
      [&](Id id, std::uint32_t tokens) { run(now, id, tokens, budget); });
  if (now.parts.empty() && !dummy) {
    told_.swap(now.told);
    steps_.pop_back();
    return false;
  }
  recount(now);
  return true;
}

// Dummy batches: who waits has not begun, and nothing changes for it until something is told.
std::uint64_t VllmDraftScheduler::steps_alike() const {
  if (steps_.size() < depth() || !kept_ || !running_.empty() || !told_.empty()) return 1;
  const bool nothing = std::all_of(steps_.begin(), steps_.end(),
                                   [](const Step& s) { return s.parts.empty() && s.told.empty(); });
  return nothing ? kEndless : 1;
}

const StepBatch& VllmDraftScheduler::front() const {
  SL_CHECK(!steps_.empty(), "a step is decided");
  return steps_.front().batch;
}

void VllmDraftScheduler::end(const Part& part) {
  Request& r = requests_[part.id];
  const std::uint32_t yields = part.drafts > 0 ? law_.tokens(r.stream, r.verified++, part.drafts) : 1;
  const std::uint32_t rejected = part.drafts + 1 - yields;
  if (r.running) r.computed -= rejected;
  r.promised -= 1 + part.drafts;
  r.generated = std::min(r.answer, r.generated + yields);
  const bool last = r.generated == r.answer;
  // The step decided next counts all drafts of it as accepted.
  if (!steps_.empty() && r.part < steps_.front().parts.size()) {
    Part& next = steps_.front().parts[r.part];
    if (next.id == part.id && !next.gone) {
      if (next.decodes) next.cached -= rejected;
      next.gone = last;
    }
  }
  // Without async scheduling blocks are full when the next step is decided, and not looked at here.
  if (r.running && knobs_.async_scheduling) fill(r, r.known() - 1);
  ended_.push_back(part.id);
  changed();
  if (last) leave(part.id);
}

Scheduler::Ended VllmDraftScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(!steps_.empty(), "a step that ends was decided");
  SL_CHECK(steps == 1 || steps_.front().parts.empty(), "steps that are alike are dummy batches");
  Step ended = std::move(steps_.front());
  steps_.pop_front();
  ended_.clear();
  for (const Part& p : ended.parts)
    if (p.token && !p.gone) end(p);
  if (!steps_.empty()) recount(steps_.front());
  notice(ended.told, false);
  return {ended_};
}

}  // namespace shardline
