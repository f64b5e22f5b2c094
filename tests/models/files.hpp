// Files that the tests of this folder read.
#pragma once

#include "tests/support/files.hpp"

namespace shardline::testing {

inline std::filesystem::path catalog_dir() { return source_dir() / "models" / "catalog"; }
inline std::filesystem::path hf_dir() { return source_dir() / "tests" / "models" / "hf"; }

}  // namespace shardline::testing
