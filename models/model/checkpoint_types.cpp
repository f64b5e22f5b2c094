#include "models/model/checkpoint_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "models/model/json_name.hpp"

namespace shardline::checkpoint {

namespace {

struct Algorithm {
  std::string_view name;
  MatrixType type;
};
// FP8_PB_WO stores blocks for weights alone, and vLLM's ModelOptFp8PbWoLinearMethod scales activations while
// it serves. TensorRT-LLM calls DeepSeek's blocks FP8_BLOCK_SCALES.
constexpr std::array kAlgorithms{
    Algorithm{"FP8", Dtype::fp8},
    Algorithm{"FP8_PER_CHANNEL_PER_TOKEN", Dtype::fp8_dynamic},
    Algorithm{"FP8_PB_WO", Dtype::fp8_block},
    Algorithm{"FP8_PB_REAL", Dtype::fp8_block},
    Algorithm{"FP8_BLOCK_SCALES", Dtype::fp8_block},
    Algorithm{"NVFP4", Dtype::fp4},
    Algorithm{"NVFP4_AWQ", Dtype::fp4},
    Algorithm{"NVFP4_SVDQUANT", Dtype::fp4},
    Algorithm{"W4A16_NVFP4", {Dtype::fp4, Dtype::bf16}},
    Algorithm{"W4A8_NVFP4_FP8", {Dtype::fp4, Dtype::fp8}},
    Algorithm{"W4A16_MXFP4", {Dtype::mxfp4, Dtype::bf16}},
    Algorithm{"W4A8_MXFP4_FP8", {Dtype::mxfp4, Dtype::fp8}},
    Algorithm{"W4A8_MXFP4_MXFP8", {Dtype::mxfp4, Dtype::fp8}},
    Algorithm{"W4A16", Dtype::int4},
    Algorithm{"W4A16_AWQ", Dtype::int4},
    Algorithm{"W4A16_GPTQ", Dtype::int4},
    Algorithm{"W4A8_AWQ", {Dtype::int4, Dtype::fp8}},
};

TypeFound no(std::string why) { return {std::nullopt, std::move(why), ""}; }

std::string word(const Reader& map, std::string_view key, std::string_view otherwise) {
  const auto at = set(map, key);
  return at ? json_name(*at) : std::string(otherwise);
}

std::int64_t bits_of(const Reader& map) {
  const auto at = set(map, "num_bits");
  return at ? at->integer(1, 64) : 0;
}

/// "int8", "float4"
std::string element(const Reader& args) {
  return word(args, "type", "float") + std::to_string(bits_of(args));
}

/// Scales of 32 elements that are powers of two, a byte each: the microscaling formats.
bool microscaled(const Reader& group, const Reader& weights) {
  const auto size = set(weights, "group_size");
  return word(weights, "scale_dtype", "") == "torch.uint8" || word(group, "format", "").starts_with("mxfp") ||
         (size && size->integer(-1, 1 << 20) == 32);
}

/// The arithmetic that activations of a group ask for; nothing where it is none of ours.
std::optional<Dtype> arithmetic(const std::optional<Reader>& activations) {
  if (!activations) return Dtype::bf16;
  const std::string type = element(*activations);
  if (type == "float8") return Dtype::fp8;
  if (type == "float4") return Dtype::fp4;
  return std::nullopt;
}

// Scales found while serving: dynamic is true, or "local" where a scale of the tensor stands beside them.
bool dynamic(const Reader& activations) {
  const auto at = set(activations, "dynamic");
  return at && ((at->is_scalar() && at->text() == "local") || at->boolean());
}

TypeFound float8_weights(const Reader& group, const Reader& weights, const std::optional<Reader>& inputs,
                         Dtype math) {
  if (microscaled(group, weights)) return no("weights of MXFP8");
  if (math == Dtype::fp4) return no("FP8 weights under activations of 4 bits");
  if (word(weights, "strategy", "tensor") == "block") return {MatrixType{Dtype::fp8_block, math}, "", ""};
  if (inputs && dynamic(*inputs)) return {MatrixType{Dtype::fp8_dynamic, math}, "", ""};
  return {MatrixType{Dtype::fp8, math}, "", ""};
}

}  // namespace

std::optional<Reader> set(const Reader& map, std::string_view key) {
  auto at = map.find(key);
  if (at && at->is_null()) at.reset();
  return at;
}

TypeFound type_of_algorithm(const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto at = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                               [&](const Algorithm& a) { return a.name == upper; });
  if (at == kAlgorithms.end()) return no("the algorithm " + name);
  return {at->type, "", ""};
}

TypeFound int4_weights(std::int64_t group, Dtype math) {
  const MatrixType wide{Dtype::int4, math}, narrow{Dtype::int4_group32, math};
  if (group == 128) return {wide, "", ""};
  if (group == 32) return {narrow, "", ""};
  const bool fine = group > 0 && group < 64;
  return {fine ? narrow : wide, "",
          fmt::format("INT4 with a scale per {}: its bytes are counted with one per {}",
                      group > 0 ? fmt::format("{} elements", group) : "column", fine ? 32 : 128)};
}

TypeFound type_of_group(const Reader& group) {
  const auto weights = set(group, "weights");
  if (!weights) return no("a group without weights");
  const auto inputs = set(group, "input_activations");
  const std::optional<Dtype> math = arithmetic(inputs);
  const std::string stored = element(*weights);
  if (!math) return no(fmt::format("activations of {}", element(*inputs)));
  if (stored == "float8") return float8_weights(group, *weights, inputs, *math);
  if (stored == "float4")
    return {MatrixType{microscaled(group, *weights) ? Dtype::mxfp4 : Dtype::fp4, *math}, "", ""};
  if (stored != "int4" || *math == Dtype::fp4) return no(fmt::format("weights of {}", stored));
  const auto size = set(*weights, "group_size");
  return int4_weights(size ? size->integer(-1, 1 << 20) : -1, *math);
}

TypeFound type_of_cache(const Reader& r) {
  for (const char* key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
    const auto at = set(r, key);
    if (!at) continue;
    if (!at->is_map()) {
      const std::string name = json_name(*at);
      TypeFound found = type_of_algorithm(name);
      if (found.type && (found.type->weights == Dtype::fp8 || found.type->weights == Dtype::fp4))
        return found;
      return no("a KV cache of " + name);
    }
    const std::string type = element(*at);
    if (type == "float8") return {Dtype::fp8, "", ""};
    if (type == "float4") return {Dtype::fp4, "", ""};
    return no("a KV cache of " + type);
  }
  return {};
}

}  // namespace shardline::checkpoint
