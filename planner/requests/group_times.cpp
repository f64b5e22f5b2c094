#include "planner/requests/group_times.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Of requests with nothing cached.
Seconds bare(const StepTimes& times, std::uint32_t requests) {
  StepBatch step;
  step.decodes = requests;
  return times.of(step);
}

// Of one group whose graph has `most` rows.
DecodeStretch padded(const StepTimes& times, const StepBatch& batch, std::uint32_t most) {
  DecodeStretch line = times.decode(batch);
  if (batch.decodes < most)
    line.start += std::max(Seconds(0), bare(times, most) - bare(times, batch.decodes));
  return line;
}

// How many steps, from the first on, a line is not above another that is as high or higher there.
std::uint64_t steps_below(const DecodeStretch& line, const DecodeStretch& above, std::uint64_t most) {
  const double rise = (line.slope - above.slope).value, gap = (above.start - line.start).value;
  if (rise <= 0 || gap >= rise * static_cast<double>(most)) return most;
  return std::min(most, static_cast<std::uint64_t>(gap / rise) + 1);
}

bool has_prompts(std::span<const StepBatch* const> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const StepBatch* b) { return !b->prompts.empty(); });
}

bool has_work(std::span<const StepBatch* const> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const StepBatch* b) { return !b->empty(); });
}

}  // namespace

Seconds step_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups) {
  if (groups.size() == 1) return times.of(*groups.front());
  if (!has_prompts(groups)) return stretch_of_groups(times, groups).start;
  Seconds out;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (!groups[i]->empty()) out = std::max(out, times.of_group(groups, i));
  return out;
}

Seconds dummy_step(const StepTimes& times) { return bare(times, 1); }

DecodeStretch stretch_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups) {
  if (groups.size() == 1) return times.decode(*groups.front());
  SL_CHECK(has_work(groups) && !has_prompts(groups), "a stretch decodes and has no prompts");
  std::uint32_t most = 0;
  for (const StepBatch* b : groups) most = std::max(most, b->decodes);
  std::vector<DecodeStretch> lines;
  for (const StepBatch* b : groups)
    if (!b->empty()) lines.push_back(padded(times, *b, most));
  DecodeStretch out = lines.front();
  for (const DecodeStretch& line : lines) {
    if (line.start > out.start || (line.start == out.start && line.slope > out.slope)) {
      out.start = line.start;
      out.slope = line.slope;
    }
    out.steps = std::min(out.steps, line.steps);
  }
  for (const DecodeStretch& line : lines) out.steps = steps_below(line, out, out.steps);
  return out;
}

}  // namespace shardline
