// What serve draws: latencies, load over time, and a timeline of steps and requests.
#pragma once

#include <string>

#include "planner/cli/commands.hpp"
#include "planner/studies/request_service.hpp"
#include "reports/plot.hpp"

namespace shardline::cli {

/// How many requests are served as fast, by latency; targets as marks, which are met where a curve passes
/// above.
Plot latency_plot(const Study& study, const ServiceAnswer& answer, const Provenance& made_by);
/// Requests that run and that wait, in all replicas, over time.
Plot requests_plot(const Study& study, const ServiceAnswer& answer, const Provenance& made_by);
/// Parts of the KV cache that are held, and of the GPUs' time that go to steps with prompts and to others.
Plot use_plot(const Study& study, const ServiceAnswer& answer, const Provenance& made_by);
/// The same as a page, with the latencies and targets as tables.
std::string service_page(const Study& study, const ServiceAnswer& answer, const Provenance& made_by);
/// Steps of each replica, and requests in lanes: to the first token, then to the last. As trace_json(). The
/// answer has a timeline (checked).
std::string requests_trace(const ServiceAnswer& answer);
/// Where the timeline leaves something out: a line that says so; else empty.
std::string left_out_text(const ServiceAnswer& answer);

}  // namespace shardline::cli
