// Questions of requests one by one on plans with drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "planner/serving/acceptance.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {

// DeepSeek-R1 on eight H200, of whose drafts each is accepted with 0.8, 0.72, ... if those before are.
inline Study drafting_study(const std::string& engine = "vllm", AcceptanceForm form = {0.8, 0.9}) {
  PlanQuestion q;
  q.model = "deepseek-r1";
  q.system = "h200-hgx";
  q.gpus = 8;
  q.input = 2048;
  q.output = 256;
  Study study = study_of_line(engine, q);
  study.study.acceptance = std::make_shared<const AcceptanceCurve>(form);
  return study;
}

inline constexpr const char* kThree = "tensor:tpa=8,ep=8,drafts=3";

inline ServiceAnswer drafting_answer(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

inline double mean_of(const ServiceAnswer& a, Latency latency) {
  return a.load.latencies[static_cast<std::size_t>(latency)].mean;
}

}  // namespace shardline
