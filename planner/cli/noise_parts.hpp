// Background traffic in what simulate and sweep print and write.
#pragma once

#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/studies/rated_points.hpp"
#include "reports/plot.hpp"
#include "reports/trace.hpp"

namespace shardline::cli {

/// "1 flow each way between neighbours on NVLink, 50 % of the time in bursts of 1 ms; seeds 1 to 16"
std::string noise_text(const NoiseSpec& noise);

/// The table of one plan.
void print_noise(const NoiseSpec& noise, const NoiseEffect& effect);

/// One row per plan.
void print_noisy_plans(const NoiseSpec& noise, const std::vector<NoisyPlan>& plans);
std::string noise_csv(const NoiseSpec& noise, const std::vector<NoisyPlan>& plans);

/// Bursts of one seed until `end`, on a lane of their own beside each of `gpus` ranks; of the first
/// `pictured` ranks also in the picture.
void add_bursts(const Background& background, Seconds end, int gpus, int pictured, TraceNames& names,
                std::vector<TraceEvent>& events, Gantt& gantt);

}  // namespace shardline::cli
