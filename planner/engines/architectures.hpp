// Architectures that engines have classes for, as the config.json of a checkpoint names them: one table per
// engine and version. planner/README.md [P21].
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/plan/case.hpp"

namespace shardline {

/// The first name under `architectures` of a config.json, and where the engine's class for it is, below the
/// folder of the table; of one that it has no class for, where that was read.
struct ReadArchitecture {
  const char* name;
  const char* place;
};

/// What was read of one engine and version. A name in neither list was not looked for.
struct ArchitectureTable {
  const char* folder;  // that places of `has` are below
  std::span<const ReadArchitecture> has, lacks;
};

extern const ArchitectureTable kVllmArchitectures, kSglangArchitectures, kTrtllmArchitectures;

enum class HasArchitecture : std::uint8_t { yes, no, not_read };
/// Whether the engine of the table has a class for it; not_read of an empty name, too.
HasArchitecture has_architecture(const ArchitectureTable& table, const std::string& name);

/// "whether vLLM 0.24.0 has a class for NAME was not checked, because ...", where the case's engine is not
/// known to have its model, nor not to. Throws as does_not_start().
std::optional<std::string> unchecked_model(const Case& c);

}  // namespace shardline
