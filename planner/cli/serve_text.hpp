// What serve prints.
#pragma once

#include <cstddef>
#include <string>

#include "planner/studies/request_service.hpp"

namespace shardline::cli {

/// "p99.9"
std::string quantile_text(double quantile);
/// How requests come, how long they are, how many, and the seed.
std::string load_text(const ServiceQuestion& question);

/// [R16] What steps of a plan with drafts rest on; the answer has some.
std::string drafts_line(const ServiceAnswer& answer);
/// The engine, its knobs, and how its steps differ from others'.
std::string engine_line(const Study& study, const ServiceKnobs& knobs);
/// Requests answered, goodput, tokens/s/GPU; what was refused and what was found in the prefix cache.
std::string counts_text(const EngineProfile& engine, const ServiceAnswer& answer);
/// Where the GPUs' time and the KV cache go.
std::string use_text(const ServiceAnswer& answer);
/// How far prices may be off, beside what the draw of requests does.
std::string prices_text(const Study& study, const ServiceAnswer& answer);
/// Of a closed loop of equal lengths beside a scenario of drawn ones, that closed forms are of the latter and
/// have another TTFT (planner/README.md [P19]); else empty.
std::string closed_form_text(const Study& study, const ServiceQuestion& question);

/// "llama-3.1-70b on h200-hgx with device.memory.bandwidth=4 TB/s: requests one by one".
std::string served_title(const Study& study);
/// In at most `width` columns where words allow.
std::string serve_text(const Study& study, const ServiceAnswer& answer, std::size_t width);

/// A row per interval of time: means of requests that run and wait in all of so many replicas, of the part of
/// a replica's KV cache that requests hold, and the parts of replicas' time that go to steps with prompts, to
/// others, and to nothing.
std::string series_csv(const ServedSeries& series, int replicas);
/// A row per latency and quantile.
std::string serve_csv(const ServiceAnswer& answer);

}  // namespace shardline::cli
