// A small question of requests one by one, which tests ask in many ways.
#pragma once

#include <functional>
#include <string>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// Llama-3.1-8B on two GPUs of an H100 node, 2,048 tokens in and 128 out.
inline PlanQuestion small_line() {
  PlanQuestion q;
  q.model = "llama-3.1-8b";
  q.system = "h100-hgx";
  q.gpus = 2;
  q.input = 2048;
  q.output = 128;
  return q;
}

inline Study study_of_line(const std::string& engine = "vllm", PlanQuestion q = small_line()) {
  q.engine = engine;
  return asked_plan(q, shipped_catalogs()).study;
}

/// DeepSeek-R1 on eight H200, 4,096 tokens in and 512 out: plans of eight attention groups.
inline PlanQuestion question_of_groups() {
  PlanQuestion q;
  q.model = "deepseek-r1";
  q.system = "h200-hgx";
  q.gpus = 8;
  q.input = 4096;
  q.output = 512;
  return q;
}
inline Study study_of_groups(const std::string& engine = "vllm") {
  return study_of_line(engine, question_of_groups());
}

/// 400 requests, one a second, on both GPUs.
inline ServiceQuestion question(const Study& study, const std::string& plan = "tensor:tpa=2,tpf=2") {
  ServiceQuestion q;
  q.plan = possible_plan(study, plan);
  q.input = 2048;
  q.output = 128;
  q.rate = 1;
  q.requests = 400;
  return q;
}

/// What is said of what is wrong; empty: nothing.
inline std::string fault(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace shardline
