#include "planner/requests/group_times.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Of requests with nothing cached.
PricedStep bare(const StepTimes& times, std::uint32_t requests) {
  StepBatch step;
  step.decodes = requests;
  return times.priced(step);
}

// Of one group whose graph has `most` rows.
DecodeStretch padded(const StepTimes& times, const StepBatch& batch, std::uint32_t most) {
  DecodeStretch line = times.decode(batch);
  if (batch.decodes == most) return line;
  const PricedStep full = bare(times, most), own = bare(times, batch.decodes);
  line.start += std::max(Seconds(0), full.time - own.time);
  line.energy += full.energy - own.energy;
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

PricedStep priced_step_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups) {
  if (groups.size() == 1) return times.priced(*groups.front());
  if (!has_prompts(groups)) {
    const DecodeStretch line = stretch_of_groups(times, groups);
    return {line.start, line.energy};
  }
  PricedStep out;
  double work = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i]->empty()) continue;
    const PricedStep step = times.priced_group(groups, i);
    out.time = std::max(out.time, step.time);
    out.energy += step.energy;
    out.shared += step.shared;
    ++work;
  }
  const auto all = static_cast<double>(groups.size());
  out.energy = (out.energy + out.shared * ((all - work) / work)) * (1 / all);
  return out;
}

Seconds step_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups) {
  return priced_step_of_groups(times, groups).time;
}

DecodeStretch dummy_steps(const StepTimes& times) {
  const PricedStep one = bare(times, 1);
  return {one.time, Seconds(0), std::numeric_limits<std::uint64_t>::max(), one.energy};
}

DecodeStretch stretch_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups) {
  if (groups.size() == 1) return times.decode(*groups.front());
  SL_CHECK(has_work(groups) && !has_prompts(groups), "a stretch decodes and has no prompts");
  std::uint32_t most = 0;
  for (const StepBatch* b : groups) most = std::max(most, b->decodes);
  std::vector<DecodeStretch> lines;
  StepEnergy drawn, rise;  // of all groups together
  for (const StepBatch* b : groups) {
    if (b->empty()) {
      drawn += bare(times, most).energy;
      continue;
    }
    lines.push_back(padded(times, *b, most));
    drawn += lines.back().energy;
    rise += lines.back().rise;
  }
  DecodeStretch out = lines.front();
  out.energy = drawn * (1 / static_cast<double>(groups.size()));
  out.rise = rise * (1 / static_cast<double>(groups.size()));
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
