// Scenarios of every kind.
#include "planner/scenario/scenario.hpp"

#include "tests/fuzz/catalogs.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const Scenario s = parse_scenario("scenario.yaml", text, fuzz::catalogs());
    fuzz::require(!s.studies.empty(), "a scenario asks something");
    for (const Study& study : s.studies)
      fuzz::require(study.study.longest() >= 1 && study.study.system.gpus() >= 1,
                    "of some tokens on some GPUs");
  });
}
