#include "planner/requests/step_times.hpp"

#include <cmath>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

namespace shardline {

std::uint64_t StepBatch::prompt_tokens() const {
  std::uint64_t sum = 0;
  for (const PromptPart& p : prompts) sum += p.tokens;
  return sum;
}

double StepBatch::prompt_pairs() const {
  double sum = 0;
  for (const PromptPart& p : prompts) {
    const double n = p.tokens;
    sum += n * p.past + n * (n + 1) / 2;
  }
  return sum;
}

LinearStepTimes::LinearStepTimes(const Rates& rates)
    : rates_(rates), log_missed_(rates.missed > 0 ? natural_log(rates.missed) : 0) {
  for (const Seconds rate :
       {rates.step, rates.request, rates.cached, rates.prompt_token, rates.prompt_pair, rates.experts}) {
    SL_CHECK(std::isfinite(rate.value) && rate >= Seconds(0), "times are finite and not negative");
  }
  SL_CHECK(rates.step > Seconds(0), "a step takes time");
  SL_CHECK(rates.missed > 0 && rates.missed <= 1, "a token misses a part of the experts");
}

Seconds LinearStepTimes::experts(double tokens) const {
  if (rates_.experts == Seconds(0)) return Seconds(0);
  return rates_.experts * (1 - natural_exp(tokens * log_missed_));
}

// `tokens`: that go to experts.
Seconds LinearStepTimes::step(const StepBatch& batch, double tokens) const {
  const double decodes = batch.decodes, prompts = static_cast<double>(batch.prompt_tokens());
  const Seconds decode = rates_.request * decodes + rates_.cached * static_cast<double>(batch.cached);
  return rates_.step + experts(tokens) + decode + rates_.prompt_token * prompts +
         rates_.prompt_pair * batch.prompt_pairs();
}

Seconds LinearStepTimes::of(const StepBatch& batch) const {
  return step(batch, batch.decodes + static_cast<double>(batch.prompt_tokens()));
}

Seconds LinearStepTimes::of_group(std::span<const StepBatch* const> groups, std::size_t which) const {
  double tokens = 0;
  for (const StepBatch* b : groups) tokens += b->decodes + static_cast<double>(b->prompt_tokens());
  return step(*groups[which], tokens / static_cast<double>(groups.size()));
}

DecodeStretch LinearStepTimes::decode(const StepBatch& batch) const {
  SL_CHECK(batch.prompts.empty(), "a stretch has no prompts");
  return {of(batch), rates_.cached * static_cast<double>(batch.decodes),
          std::numeric_limits<std::uint64_t>::max()};
}

}  // namespace shardline
