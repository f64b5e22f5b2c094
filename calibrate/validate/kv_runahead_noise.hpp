// The robustness experiment of KV-Runahead (arXiv 2405.05329, Figure 11) in its report.
#pragma once

#include "calibrate/validate/kv_runahead_paper.hpp"
#include "calibrate/validate/work_steps.hpp"

namespace shardline {

/// Adds the section on times beside other traffic, its values and its goals. Throws UserError where the
/// machine has too few GPUs, or if `steps` do not go on.
void add_chain_noise(const ChainNoise& noise, ChainModel& model, const WorkSteps& steps, PaperReport& paper);

}  // namespace shardline
