// The answer of `plan` as text, on one screen.
#pragma once

#include <string>

#include "planner/studies/plan_answer.hpp"

namespace shardline::cli {

/// Lines of at most `width` columns: the question, the plans, what bounds the best one, how sure that is and
/// what to run next. `saved`: the file that the question was written to, or empty.
std::string plan_text(const PlanAnswer& answer, const std::string& saved, std::size_t width, bool colours);

}  // namespace shardline::cli
