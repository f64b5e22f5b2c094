// Device results against those of the CPU executor on the same inputs.
#pragma once

#include <string>
#include <vector>

#include "cuda_probe/execute/cuda/device_executor.hpp"

namespace shardline {

/// Relative error of one rounding to bfloat16: eight significant bits, to nearest.
inline constexpr double kBf16Unit = 1.0 / 256;

/// Roundings to bfloat16 behind an element of each slot and rank when the schedule ends [slot * ranks +
/// rank]. Inputs: none, both executors start from the same bits. attend: those of query and kv, one of the
/// probabilities before they meet the values, one of the result. merge: the most of its parts (it averages
/// them) and one; log-sum-exps are float32. gemm: those of both inputs and one. add: the most of both (errors
/// and numbers add alike) and one. rms_norm: its input's and one. swiglu: its input's twice (gate and up) and
/// one. Messages: those of the source; where they add, as add.
std::vector<int> roundings(const Schedule& schedule);

/// What n roundings of each of `elements` numbers may do to the largest error, relative to the largest number
/// of its row: the lesser of n units (all add up) and what independent ones reach: each has at most the
/// standard deviation unit / sqrt(3), and the largest of E normal errors is about sqrt(2 ln E) deviations.
double allowed_error(int roundings, double elements);

struct OutputCheck {
  Binding binding;
  double error = 0;    // largest |got - want| over the largest |want| of its row
  double allowed = 0;  // allowed_error()
  std::string worst;   // where `error` is
};

struct DeviceCheck {
  std::vector<OutputCheck> outputs;  // of local ranks
  std::vector<std::string> faults;   // NaN or infinity in an output, missing outputs
  double error() const;              // largest of all
  double share_of_allowed() const;   // largest error / allowed
  bool passed() const;
};

/// `want`: Executor<float> on the inputs that `got` was given. Padding rows are not compared.
DeviceCheck compare(const Schedule& schedule, const DeviceResult& got, const RunResult<float>& want);

}  // namespace shardline
