#include "planner/api/run.hpp"
#include "planner/api/shardline.hpp"
#include "planner/api/write_json.hpp"

namespace shardline::api {

std::string to_json(const PlanResult& r) { return document_of(r); }
std::string to_json(const ServeResult& r) { return document_of(r); }
std::string to_json(const SweepResult& r) { return document_of(r); }
std::string to_json(const RunRecord& r) { return document_of(r); }
std::string to_json(const SimulateResult& r) { return document_of(r); }
std::string to_json(const ExplainResult& r) { return document_of(r); }
std::string to_json(const CompareResult& r) { return document_of(r); }
std::string to_json(const HandoffResult& r) { return document_of(r); }
std::string to_json(const ListResult& r) { return document_of(r); }

std::string to_json(const ThresholdsResult& r) { return document_of(r); }
std::string to_json(const ThresholdsInContext& r) { return document_of(r); }
std::string to_json(const PartitionResult& r) { return document_of(r); }
std::string to_json(const ConversationResult& r) { return document_of(r); }
std::string to_json(const CalibrateResult& r) { return document_of(r); }
std::string to_json(const CalibrateEngineResult& r) { return document_of(r); }
std::string to_json(const CalibratePowerResult& r) { return document_of(r); }
std::string to_json(const EvaluateResult& r) { return document_of(r); }
std::string to_json(const AccuracyResult& r) { return document_of(r); }
std::string to_json(const VerifyResult& r) { return document_of(r); }
std::string to_json(const ValidateResult& r) { return document_of(r); }

}  // namespace shardline::api
