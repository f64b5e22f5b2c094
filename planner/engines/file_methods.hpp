// What engines read of the files that tools of quantisation write: one table per engine, by quant_method.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// A quant_method that an engine has a reader for. Methods that its table does not have, it refuses.
struct FileMethod {
  std::string_view method;
  /// Whether its reader takes matrices of a class and type, of files that are read here; null: any.
  bool (*reads)(const Checkpoint& files, Module of, MatrixType type) = nullptr;
  /// Whether it takes what is not read here, by the reason ("the method gptq with 3 bits"); null: any.
  bool (*reads_unread)(std::string_view reason) = nullptr;
};

/// Files of the case's model that an engine of this table does not read, whatever types the scenario says in
/// their place: an engine loads a checkpoint, it does not choose a type. Of files whose method nobody named
/// nothing is said.
std::optional<CaseComplaint> unread_files(const Case& c, std::span<const FileMethod> table);

/// Files of compressed-tensors that TensorRT-LLM 1.3.0rc20 reads.
bool trtllm_reads_groups(const Checkpoint& files, Module of, MatrixType type);

/// Files whose weights and activations are both INT8 (W8A8), on Blackwell: kernels of vLLM and SGLang end
/// with an error there.
std::optional<CaseComplaint> int8_device(const Case& c);
/// Files of GPTQ with zero points, which SGLang multiplies by other kernels than those of INT4 that were
/// measured.
std::optional<CaseComplaint> gptq_kernels(const Case& c);

extern const std::span<const FileMethod> kVllmFiles, kSglangFiles, kTrtllmFiles;

}  // namespace shardline
