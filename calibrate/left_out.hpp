// Rows of measurements that no kernel's price can be taken from, though they are well formed.
#pragma once

#include <string>

#include "calibrate/measurement.hpp"

namespace shardline {

/// Takes rows out of the table by the rules of README.md ("What is left out"): times of the host, kernels
/// that an engine would not run for the shape, congested networks. Adds a note with `file`, the number of
/// rows and the reason for each rule that applied. Kernels that releases name differently get one name. The
/// table may end up without rows.
void leave_out(MeasurementTable& table, const std::string& file);

}  // namespace shardline
