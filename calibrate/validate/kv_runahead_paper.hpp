// Times of KV-Runahead and TSP (arXiv 2405.05329) beside the simulator's, as a PaperReport.
#pragma once

#include <memory>
#include <string>

#include "calibrate/validate/kv_runahead_truth.hpp"
#include "calibrate/validate/paper_report.hpp"
#include "calibrate/validate/work_steps.hpp"
#include "planner/studies/searched_partition.hpp"

namespace shardline {

/// Simulates Llama, Falcon and others as the paper ran them: FP16, eager attention, one request.
class ChainModel {
 public:
  ChainModel(ChainMachine machine, const Catalogs& catalogs);

  /// Throws UserError where the machine has no such network or not enough GPUs.
  Seconds ttft(const std::string& model, long long context, int gpus, double network, ChainMethod method);
  /// KVR-S.
  const PartitionResult& searched(const std::string& model, long long context, int gpus, double network);

  /// One prefill of `context` tokens.
  Case study(const std::string& model, long long context, double network) const;

 private:
  ChainMachine machine_;
  Catalogs catalogs_;
  std::map<std::string, PartitionResult> found_;  // by measurement
};

/// Throws UserError with every row that is impossible, or if `steps` do not go on.
PaperReport chain_paper(const ChainTruth& truth, const Catalogs& catalogs, const WorkSteps& steps = {});

}  // namespace shardline
