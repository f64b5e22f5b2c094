#include "tests/planner/api/schema.hpp"

#include "planner/api/shardline.hpp"

namespace shardline::api {

const std::vector<StructText>& all_structs() {
  static const std::vector<StructText> all = [] {
    Schema s;
    s.add<PlanResult>();
    s.add<ServeResult>();
    s.add<SweepResult>();
    s.add<RunRecord>();
    s.add<SimulateResult>();
    s.add<ExplainResult>();
    s.add<CompareResult>();
    s.add<HandoffResult>();
    s.add<ListResult>();
    s.add<ThresholdsResult>();
    s.add<PartitionResult>();
    s.add<ConversationResult>();
    s.add<VerifyResult>();
    s.add<ValidateResult>();
    s.add<CalibrateResult>();
    s.add<CalibrateEngineResult>();
    s.add<CalibratePowerResult>();
    s.add<EvaluateResult>();
    s.add<AccuracyResult>();
    return s.structs();
  }();
  return all;
}

}  // namespace shardline::api
