#include "planner/scenario/bare_kernels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/scenario/shipped.hpp"

namespace shardline {

EngineProfile bare_kernels() { return load_engine(kIdealEngine, "", shipped_catalogs().engines); }

std::string bare_kernels_text() {
  const EngineProfile p = bare_kernels();
  return fmt::format("{} ({}, {})", p.name, p.title, fmt::join(p.assumes, ", "));
}

}  // namespace shardline
