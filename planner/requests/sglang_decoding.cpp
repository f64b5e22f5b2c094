// Steps of SGLang that decode, and who loses its pages there.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

std::uint64_t SglangScheduler::pages_to_decode(std::span<const Id> ids) const {
  if (drafts()) return pages_to_verify(ids);
  std::uint64_t pages = 0;
  for (const Id id : ids) pages += requests_[id].computed % knobs_.page_size == 0 ? 1 : 0;
  return pages;
}

// A row for each that runs; of who has all its tokens one in vain.
void SglangScheduler::decode_all(DecidedStep& step) {
  if (drafts()) return verify_all(step);
  if (windows_) drop_windows();
  evict_for(std::uint64_t{running_.size()} * knobs_.page_size);
  const std::uint64_t pages = pages_to_decode(running_);
  if (lacks(pages) && role_ == PairRole::decodes) {
    throw PairStops(
        "SGLang aborts a request: the last one that decodes has no room for a token, as all else is "
        "kept for prompts that come (raise num_reserved_decode_tokens or max_total_tokens)");
  }
  if (lacks(pages) && staged()) {
    throw EngineStops(
        "SGLang aborts a request: the last one that decodes in a micro-batch has no room for a token, as "
        "those of others have all of the KV cache (raise max_total_tokens or lower max_running_requests)");
  }
  if (lacks(pages)) {
    throw UserError("SGLang ends with an error: no room for the tokens of " +
                    std::to_string(running_.size()) + " requests that decode beside prompts");
  }
  take(pages);
  for (const Id id : running_) {
    Request& r = requests_[id];
    step.add_decode(r.computed);
    ++r.computed;
    ++r.decoded;
    if (r.generated == r.answer) continue;
    ++r.generated;
    ++r.in_flight;
    step.parts.push_back({id, true});
  }
}

void SglangScheduler::release_retracted(Id id, std::size_t others) {
  Request& r = requests_[id];
  const std::uint64_t held = pages_of(held_tokens(r));
  free_ += held - r.kept;
  if (windows_) windows_->free += held - std::max(r.kept, r.gone / knobs_.page_size);
  unlock(r);
  evict_for(std::uint64_t{others} * knobs_.retract_decode_steps);
  // At most one step is decided; of its own micro-batch, in stages, none.
  if (!steps_.empty()) std::erase_if(steps_.front().parts, [&](const auto& p) { return p.id == id; });
  r.generated = r.known();  // the token under way is lost
  r.in_flight = r.computed = r.allocated = r.kept = r.gone = r.decoded = 0;
  --slots_;
  ++r.preempted;
  ++retractions_;
  retracted_.push_back(id);
}

// schedule_batch.py, retract_decode: from the back of those in the order of their answers so far, longest
// first, and of equal ones the shorter prompt first.
void SglangScheduler::retract() {
  std::vector<Id> order = running_;
  std::stable_sort(order.begin(), order.end(), [&](Id a, Id b) {
    const Request &x = requests_[a], &y = requests_[b];
    return x.known() != y.known() ? x.known() > y.known() : x.prompt < y.prompt;
  });
  retracted_.clear();
  const auto short_of = [&] {
    const std::uint64_t pages = pages_to_decode(order);
    evict_for(pages * knobs_.page_size);
    return lacks(pages);
  };
  for (bool first = true; order.size() > 1 && (first || short_of()); first = false) {
    const Id id = order.back();
    order.pop_back();
    release_retracted(id, order.size());
  }
  running_ = std::move(order);
  double known = 0, asked = 0;
  for (const Id id : running_) {
    known += requests_[id].known();
    asked += requests_[id].answer;
  }
  const auto left = static_cast<double>(running_.size());
  ratio_from_ = std::min(1.0, (known + knobs_.retract_decode_steps * left) / (asked + 1));
  ratio_steps_ = 0;
  auto& line = role_ == PairRole::decodes ? lost_ : waiting_;
  line.insert(line.end(), retracted_.begin(), retracted_.end());
  changed_ = true;
}

bool SglangScheduler::schedule_decodes() {
  if (running_.empty() && finished_ == 0) return false;
  if (finished_ > 0) full_ = false;
  finished_ = 0;
  gone_.clear();
  if (running_.empty()) return false;
  const std::uint64_t pages = pages_to_decode(running_);
  evict_for(pages * knobs_.page_size);
  if (lacks(pages)) {
    retract();
    full_ = full_ && retracted_.empty();
  } else {
    ++ratio_steps_;
  }
  decode_all(steps_.add());
  if (windows_) windows_->of_running = ++windows_->batches;
  return true;
}

std::uint64_t SglangScheduler::steps_alike() const {
  if (drafts() || staged() || steps_.size() < depth()) return 1;
  const DecidedStep &first = steps_.front(), &last = steps_.back();
  // Prompts are tried in every step unless nobody waits or somebody did not fit; that changes when one that
  // runs is done.
  const bool refused = windows_ ? windows_->refusal.known : full_;
  const bool tried = role_ == PairRole::decodes ? changed_ : !refused && !waiting_.empty();
  if (cut_ || last_prompts_ || finished_ > 0 || tried || !first.batch.prompts.empty() ||
      !last.batch.prompts.empty() || first.parts != last.parts || last.parts.size() != running_.size() ||
      last.batch.decodes != running_.size() || first.batch.decodes != running_.size()) {
    return 1;
  }
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const DecidedStep::Part& p : first.parts)
    most = std::min<std::uint64_t>(most, requests_[p.id].answer - requests_[p.id].known());
  if (windows_ && !waiting_.empty()) most = 1 + refusals_alike(most - 1);
  const std::uint64_t free = least_free();
  // Mostly there is room for all, whatever each needs exactly.
  if (running_.size() * (most / knobs_.page_size + 2) <= free) return most;
  // Nothing is lost for the steps that are decided meanwhile: as many pages are free in each as requests.
  const auto pages_in = [&](std::uint64_t steps) {
    std::uint64_t sum = 0;
    for (const Id id : running_)
      sum += pages_of(requests_[id].computed + steps) - pages_of(requests_[id].computed);
    return sum;
  };
  const auto fits = [&](std::uint64_t more) {
    return more == 0 || pages_in(more - 1) + running_.size() <= free;
  };
  std::uint64_t good = 0, bad = most;  // more steps than the first
  while (bad - good > 1) {
    const std::uint64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good + 1;
}

// Decides so many steps like the last one, whose place they take.
void SglangScheduler::more_alike(std::uint32_t steps) {
  DecidedStep& last = steps_.back();
  // Of who has its last token in the step before, this one computes a row in vain.
  std::erase_if(last.parts, [&](const DecidedStep::Part& p) {
    return requests_[p.id].answer - requests_[p.id].generated < steps;
  });
  if (windows_) drop_windows_alike(steps);
  for (const Id id : running_) {
    Request& r = requests_[id];
    take(pages_of(r.computed + steps) - pages_of(r.computed));
    r.computed += steps;
    r.decoded += steps;
    const std::uint32_t tokens = std::min(steps, r.answer - r.generated);
    r.generated += tokens;
    r.in_flight += tokens;
  }
  ratio_steps_ += steps;
  last.advance(steps);
}

}  // namespace shardline
