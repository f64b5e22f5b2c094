#include "planner/api/sharding.hpp"

#include "planner/api/error.hpp"
#include "planner/plan/plan.hpp"
#include "planner/studies/plan_load.hpp"
#include "sim/base/error.hpp"

namespace shardline::api {

std::string sharding_of_plan(const std::string& plan) {
  try {
    return to_string(sharding_of(parse_plan(plan)));
  } catch (const UserError& e) {
    throw Error(ErrorKind::bad_input, e.what());
  }
}

}  // namespace shardline::api
