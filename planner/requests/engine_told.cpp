// What an engine tells of the steps that it plays: times, who runs and waits, caches held.
#include <algorithm>

#include "planner/requests/played_engine.hpp"

namespace shardline {

// What a step that has been played up to now_ adds to what is told.
void PlayedEngine::account(Seconds from, Seconds took, std::uint64_t steps) {
  if (clock_ && dummy_) return;  // a turn that nobody takes
  ++out_.events;
  if (dummy_) {
    out_.dummies += steps;
    out_.dummy_time += took;
    return;
  }
  PlayedStep told = account_time(from, took);
  told.from = since_.value_or(from);
  told.steps = steps;
  since_.reset();
  if (stepped_) stepped_(told);
  out_.end = now_;
  out_.steps += steps;
}

// What a time up to now_ adds.
PlayedStep PlayedEngine::account_time(Seconds from, Seconds took) {
  PlayedStep told{from, now_};
  double running = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Scheduler& s = *groups_[i].scheduler;
    const double held = s.kv_held();
    running += static_cast<double>(s.running());
    told.held += held;
    out_.most_held = std::max(out_.most_held, held);
    told.decodes += batches_[i]->decodes;
    told.prompts += static_cast<std::uint32_t>(batches_[i]->prompts.size());
    told.prompt_tokens += batches_[i]->prompt_tokens();
  }
  told.held /= static_cast<double>(groups_.size());
  told.waiting = waiting();
  out_.busy += took;
  if (prompts_) out_.prompting += took;
  out_.held += told.held * took.value;
  out_.running += running * took.value;
  out_.series.add(from, now_, {running, static_cast<double>(told.waiting), told.held, prompts_});
  return told;
}

}  // namespace shardline
