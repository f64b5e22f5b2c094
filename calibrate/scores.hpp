// Scores of an index as a model has them, in blocks of sparse attention that were measured with flat ones.
// README.md [F12].
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/measurement.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

/// Tables as they were measured, but for those of which rows were changed: a table of a million rows is not
/// copied to be read. What was measured must outlive it.
class ScoredTables {
 public:
  ScoredTables(std::span<const MeasurementTable> measured, std::map<std::size_t, MeasurementTable> changed)
      : measured_(measured), changed_(std::move(changed)) {}

  std::size_t size() const { return measured_.size(); }
  const MeasurementTable& operator[](std::size_t i) const {
    const auto found = changed_.find(i);
    return found == changed_.end() ? measured_[i] : found->second;
  }

 private:
  std::span<const MeasurementTable> measured_;
  std::map<std::size_t, MeasurementTable> changed_;
};

/// The tables, of which those of blocks (`sparse_decode`, `sparse_prefill`) have, in SGLang's rows of layers
/// that score, what the selection takes on scores with a clear top instead of what it takes on flat ones:
/// both were measured by a table of kernels (`sparse_kernel`), in the same shape or in others that a fit
/// joins. Without such a table, and for other engines, rows stay as they are. Adds to `notes` what was done.
ScoredTables with_scores_of_models(const System& system, std::span<const MeasurementTable> tables,
                                   std::vector<std::string>& notes);

}  // namespace shardline
