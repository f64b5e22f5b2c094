// How each engine is told a plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"

namespace shardline {

/// The case's engine, or where it names none every engine that has a profile.
std::vector<EngineProfile> engines_of(const Case& c);

/// launch_files() of a plan that the engine's own rules let it start, else the rule.
Launch launch_under_rules(const Case& c, const Plan& plan, const EngineProfile& engine,
                          const std::string& stem, int copies = 1, const ServedOptions* served = nullptr);

/// launch_pair() of two plans that the engine's own rules let it start, else the rule.
Launch launch_pair_under_rules(const ServedHalf& context, const ServedHalf& generation,
                               const EngineProfile& engine, const std::string& stem);

/// Which engines start a plan of a case by the rules that were read of them, whichever engine the case is
/// priced under: of each in its own blocks of the cache, where these are of no price.
class EnginesThatStart {
 public:
  explicit EnginesThatStart(const Case& c);
  /// Names as --engine takes them: "trtllm vllm"; "none".
  std::string of(const Plan& plan) const;

 private:
  struct Asked {
    std::string name;
    Case in_own_blocks, in_blocks_of_case;
    bool runs_own = false, runs_others = false;  // any plan of these
  };
  std::vector<Asked> engines_;
};

/// Of plans that are priced by bare kernels: how many of them no engine starts, and why one that documents
/// their strategy does not start the first of these; "" where each is started by some, or the case has an
/// engine.
std::string unstarted_text(const Case& c, const std::vector<Plan>& plans);

/// One per engine that documents a way to run the plan, and one of the case's own engine.
std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem, int copies = 1);

}  // namespace shardline
