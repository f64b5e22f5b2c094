#include "tests/fuzz/step_machines.hpp"

#include <array>

#include "planner/serving/acceptance.hpp"

namespace shardline::fuzz {

namespace {

struct Named {
  const char* system;
  const char* folder;
};

constexpr const char* kParameters = FUZZ_CATALOG;  // no calibrations
constexpr const char* kCalibrated = FUZZ_SOURCES "/hardware/catalog";
constexpr Named kSystems[]{
    {"h100-hgx", kParameters},    {"gb200-nvl72", kParameters}, {"h200-hgx", kCalibrated},
    {"gb200-nvl72", kCalibrated}, {"h100-gtt", kParameters},    {"a100-hf-eager", kParameters},
    {"a800-apb", kParameters},
};

SteppedMachine load(const Named& named) {
  SteppedMachine m;
  m.study.system = load_system(named.system, named.folder);
  m.fabric = std::make_shared<FabricCache>(m.study.system.fabric);
  m.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  return m;
}

}  // namespace

int machines() { return static_cast<int>(std::size(kSystems)); }

SteppedMachine& machine(int i) {
  static std::array<std::unique_ptr<SteppedMachine>, std::size(kSystems)> known;
  auto& at = known[static_cast<std::size_t>(i)];
  if (!at) {
    at = std::make_unique<SteppedMachine>(load(kSystems[i]));
    at->warm = std::make_unique<CostModel>(at->study.system, AllReduceRule::fastest, at->fabric);
  }
  return *at;
}

namespace {

const std::vector<std::shared_ptr<const EngineProfile>>& profiles() {
  static const auto kProfiles = [] {
    std::vector<std::shared_ptr<const EngineProfile>> out;
    const std::filesystem::path folder = FUZZ_SOURCES "/planner/engines";
    for (const std::string& name : engine_names(folder)) {
      const std::size_t space = name.find(' ');
      out.push_back(std::make_shared<const EngineProfile>(
          load_engine(name.substr(0, space), name.substr(space + 1), folder)));
    }
    return out;
  }();
  return kProfiles;
}

}  // namespace

int engines() { return static_cast<int>(profiles().size()); }

std::shared_ptr<const EngineProfile> engine(int i) {
  return i < engines() ? profiles()[static_cast<std::size_t>(i)] : nullptr;
}

}  // namespace shardline::fuzz
