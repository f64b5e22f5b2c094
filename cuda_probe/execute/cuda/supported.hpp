// Which schedules the device executor can run.
#pragma once

#include <optional>
#include <string>

#include "models/ir/schedule.hpp"

namespace shardline {

/// Which op of the schedule has no kernel and why; nothing if all have one.
std::optional<std::string> unsupported(const Schedule& schedule);

}  // namespace shardline
