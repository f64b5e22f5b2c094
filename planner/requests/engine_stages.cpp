// An engine whose steps pass the stages of a pipeline [R36], [R38].
#include <algorithm>

#include "planner/requests/played_engine.hpp"

namespace shardline {

// Up to the end of the first of the steps, which is played then: true. One that looks behind [R38] may only
// decide its next step meanwhile, which is an event without a step.
bool PlayedEngine::pass_stages() {
  const PipelineClock::Event next = clock_->next();
  stretch_.start = std::max(Seconds(0), next.at - now_);
  if (next.ends) stretch_.energy = clock_->drawn();
  if (next.ends || next.at > dies_) return true;
  open_ = 0;
  const Seconds from = now_;
  now_ = std::max(now_, next.at);
  account_time(from, now_ - from);
  if (!since_) since_ = from;
  return false;
}

}  // namespace shardline
