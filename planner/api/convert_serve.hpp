// From the question of serve, and to its answer. Not installed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "planner/api/options.hpp"
#include "planner/api/serve.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline::api {

struct AskedService {
  Study study;
  ServiceQuestion question;
  /// Settings that change nothing of the play, and what chose the plan and is no target of requests.
  std::vector<shardline::Diagnostic> warnings = {};
};

/// What of a question is of requests, whatever they are served on; their lengths are left out. Throws
/// UserError.
ServiceQuestion asked_load(const ServeQuestion& question);

/// The study and the plan that requests are served on; a plan that is not named is searched for, of which
/// `progress` is told. Throws UserError.
AskedService asked_service(const ServeQuestion& question, const RunOptions& options,
                           const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

std::vector<ServedLatency> latencies_of(const ServedLoadAnswer& load);
std::vector<ServedTarget> targets_of(const ServedLoadAnswer& load);

/// Everything but `version` and `command`. `question`: of which the result has what is not of requests.
ServeResult serve_result(const AskedService& asked, const ServiceAnswer& answer,
                         const ServeQuestion& question);

}  // namespace shardline::api
