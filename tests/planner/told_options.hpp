// What a server is told by its launch files.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "planner/engines/launch_files.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {

using Values = std::map<std::string, std::string>;

/// Options of the command that the script `name` calls, or of the YAML beside it, and variables; checked
/// against the engine's table.
inline Values told_by(const std::string& engine, const Launch& launch, const std::string& name) {
  EXPECT_EQ(launch.refused, "");
  const OptionTable table(engine);
  const std::string version = load_engine(engine, "", source_path("planner/engines")).version;
  ScriptRunner runner;
  runner.write(launch.files);
  const Called called = runner.run(name + ".sh", {{"REPLICA", "0"}, {"MODEL", "m"}, {"THIS_ADDR", "this"}});
  EXPECT_EQ(called.code, 0);
  Values out;
  if (engine == "trtllm") {
    for (const LaunchFile& f : launch.files) {
      if (f.name != name + ".yaml") continue;
      EXPECT_THAT(table.yaml_faults("yaml", version, f.text, out), testing::IsEmpty());
    }
  } else {
    EXPECT_THAT(table.faults("serve", version, {called.words.begin() + 3, called.words.end()}, out),
                testing::IsEmpty());
  }
  for (const auto& [variable, value] : called.environment) {
    if (table.find("env", variable) != nullptr) out[variable] = value;
  }
  return out;
}

inline Values told(const std::string& engine, const Launch& launch) {
  return told_by(engine, launch, "1." + engine);
}

}  // namespace shardline
