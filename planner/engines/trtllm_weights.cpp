#include "planner/engines/trtllm_weights.hpp"

#include <fmt/format.h>

#include <cctype>
#include <string>

#include "planner/layers/share.hpp"

namespace shardline {

namespace {

/// What it has kernels for, by the documented matrix; beside it Triton's for experts in MXFP4 on Hopper.
/// Experts in INT4 are multiplied in FP8 (W4A8), with a scale per 128 weights, or not at all. Experts in FP8
/// need the scales of their inputs in the checkpoint, which one of dynamic ones does not have. FP8 with a
/// scale per row and token has kernels for Hopper, none for compute capability 10; with one per tensor
/// (`per_tensor`: files of the method fp8), on Blackwell, too.
bool runs(ModuleType t, Module m, Architecture a, bool per_tensor) {
  const bool ampere = a == Architecture::ampere, blackwell = a == Architecture::blackwell;
  const bool experts = m == Module::experts;
  switch (t.weights) {
    case Dtype::fp4:
    case Dtype::fp4_unscaled:
      return blackwell;
    case Dtype::mxfp4:
      return blackwell || (a == Architecture::hopper && experts);
    case Dtype::fp8:
    case Dtype::fp8_block:
      return !ampere;
    case Dtype::fp8_dynamic:
      return !ampere && !experts && (!blackwell || per_tensor);
    case Dtype::int4:
      if (experts) return a == Architecture::hopper && t.math == Dtype::fp8;
      return !blackwell && (!ampere || t.math != Dtype::fp8);
    case Dtype::int4_group32:
      return !experts && !blackwell && t.math != Dtype::fp8;
    case Dtype::bf16:
    case Dtype::fp32:
      return true;
  }
  return true;
}

// The types that it has kernels for on the device, or the devices that it has kernels of this type for.
std::string runnable(ModuleType asked, Module m, Architecture a, bool per_tensor) {
  std::string types, devices;
  for (const Dtype t : {Dtype::fp4, Dtype::mxfp4, Dtype::fp8, Dtype::int4, Dtype::bf16}) {
    if (runs({t, arithmetic_of(t)}, m, a, per_tensor))
      types += fmt::format("{}{}", types.empty() ? "" : ", ", to_string(t));
  }
  if (m == Module::experts && runs({Dtype::int4, Dtype::fp8}, m, a, per_tensor))
    types += ", int4 computed in fp8";
  for (const Architecture other : {Architecture::ampere, Architecture::hopper, Architecture::blackwell}) {
    if (!runs(asked, m, other, per_tensor)) continue;
    std::string name(to_string(other));
    name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
    devices += (devices.empty() ? "" : " or ") + name;
  }
  return fmt::format("one of: {}{}", types, devices.empty() ? "" : "; or a system of " + devices);
}

}  // namespace

std::optional<CaseComplaint> trtllm_weight_type(const Case& c) {
  const Architecture a = architecture_of(c.system.device);
  const bool per_tensor = c.model.checkpoint && c.model.checkpoint->method == "fp8";
  for (const KeptModule& k : kept_modules(c.model)) {
    const ModuleType t = c.precision.of(k.module);
    if (runs(t, k.module, a, per_tensor)) continue;
    const bool four_bits = k.module == Module::experts && element_bits(t.weights) == 4 &&
                           arithmetic_of(t.weights) == Dtype::bf16;
    return CaseComplaint{k.weights_key,
                         fmt::format("{} of {} in {}{} on {}", k.name, c.model.name, to_string(t.weights),
                                     four_bits ? fmt::format(", computed in {},", to_string(t.math)) : "",
                                     c.system.device.name),
                         runnable(t, k.module, a, per_tensor)};
  }
  return std::nullopt;
}

}  // namespace shardline
