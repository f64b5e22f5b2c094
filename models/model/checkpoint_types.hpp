// Internal to checkpoint.cpp: the types that tools of quantisation write down, each under its tool's names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/model/checkpoint.hpp"

namespace shardline::checkpoint {

/// The value of `key` unless it is missing or null.
std::optional<Reader> set(const Reader& map, std::string_view key);

/// A type, or why it is none of ours.
struct TypeFound {
  std::optional<MatrixType> type;
  std::string why;   // of no type: what was found, by its name
  std::string note;  // beside a type: what it leaves out
};

/// As ModelOpt names its algorithms, in either case: vllm-project/vllm 00155cdecca7 quantization/modelopt.py,
/// QUANT_ALGOS, and TensorRT-LLM v1.3 quantization/mode.py, QuantAlgo. FP8 has static scales of activations,
/// FP8_PER_CHANNEL_PER_TOKEN dynamic ones; W4A16 names kernels whose arithmetic stays BF16.
TypeFound type_of_algorithm(const std::string& name);

/// A group of compressed-tensors (compressed_tensors/quantization/quant_args.py and quant_scheme.py):
/// `weights` and, unless only weights are quantised, `input_activations`, whose `dynamic` is false, true or
/// "local".
TypeFound type_of_group(const Reader& group);

/// INT4 weights of GPTQ, AWQ and others, with a scale per `group` elements of a column; -1: one per column.
TypeFound int4_weights(std::int64_t group, Dtype math);

/// Of a KV cache. Nothing where the file says none, and a `why` where it says one that is not read.
TypeFound type_of_cache(const Reader& quantisation);

}  // namespace shardline::checkpoint
