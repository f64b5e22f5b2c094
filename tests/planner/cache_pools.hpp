// Cases of engines whose pools of caches tests look at.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "planner/engines/profile.hpp"
#include "tests/planner/support.hpp"

namespace shardline {

inline std::shared_ptr<const EngineProfile> engine_named(const char* name) {
  return std::make_shared<const EngineProfile>(load_engine(name, "", source_path("planner/engines")));
}

// Requests of an engine that have answered `output` tokens of prompts of `input`.
inline Case served(const char* engine_name, const char* model, long long input, long long output) {
  Case c = decode_case(model, "h100-hgx", input + output);
  c.engine = engine_named(engine_name);
  c.served = {input, output};
  return c;
}

inline Plan tensor(int tpa, int batch) {
  return parse_plan(fmt::format("tensor:tpa={},batch={}", tpa, batch));
}

}  // namespace shardline
