// The answer of plan to a load with targets by percentile, on one screen.
#pragma once

#include <cstddef>
#include <string>

#include "planner/api/convert_deployment.hpp"

namespace shardline::cli {

/// `saved`: the file that --save wrote; empty: none. `everything`: also plans whose requests cannot be
/// played.
std::string deployment_text(const api::AskedDeployment& asked, const DeploymentAnswer& answer,
                            const std::string& slo, const std::string& saved, std::size_t width,
                            bool everything);

}  // namespace shardline::cli
