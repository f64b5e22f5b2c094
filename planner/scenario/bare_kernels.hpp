// What is priced where no engine is asked for: planner/engines/ideal.yaml.
#pragma once

#include <string>

#include "planner/engines/profile.hpp"

namespace shardline {

/// The profile `ideal` of the data folder (shipped_catalogs). Cases of bare kernels have no engine: theirs is
/// nullptr. Throws UserError where the folder has none.
EngineProfile bare_kernels();

/// "ideal (bare kernels, nothing of what an engine adds around them)": what outputs say of such times.
std::string bare_kernels_text();

}  // namespace shardline
