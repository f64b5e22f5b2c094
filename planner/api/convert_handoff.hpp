// From hand-offs of planner/studies to the structs of this folder. Not installed.
#pragma once

#include "planner/api/handoff.hpp"
#include "planner/studies/handoff_study.hpp"

namespace shardline::api {

/// Everything but `version`, `command`, `scenario` and `question`.
HandoffResult handoff_result(const Study& study, const HandoffStudy& found);

}  // namespace shardline::api
