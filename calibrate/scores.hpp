// Scores of an index as a model has them, in blocks of sparse attention that were measured with flat ones.
// README.md [F12].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/measurement.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

/// The tables, of which those of blocks (`sparse_decode`, `sparse_prefill`) have, in SGLang's rows of layers
/// that score, what the selection takes on scores with a clear top instead of what it takes on flat ones:
/// both were measured by a table of kernels (`sparse_kernel`), in the same shape or in others that a fit
/// joins. Without such a table, and for other engines, rows stay as they are. Adds to `notes` what was done.
std::vector<MeasurementTable> with_scores_of_models(const System& system,
                                                    std::span<const MeasurementTable> tables,
                                                    std::vector<std::string>& notes);

}  // namespace shardline
