// Servers that serve requests as they were played one by one.
#pragma once

#include <string>

#include "planner/engines/launch_files.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline {

/// The scheduler of the answer's plan as its engine is told it: its caps, what --knob asked for, lengths up
/// to the longest of the load and graphs of as many requests as the times are of.
ServedOptions served_options(const Case& c, const ServiceAnswer& answer);
/// Likewise of the pool that prefills beside it, --prefill-knob; there is one (checked). `c`: its own case.
ServedOptions prefill_options(const Case& c, const ServiceAnswer& answer);

/// [P20] Files of the answer's replicas, of both pools of a pair, or why there are none; names begin with
/// `stem`.
Launch launch_of_service(const Study& study, const ServiceAnswer& answer, const std::string& stem);

}  // namespace shardline
