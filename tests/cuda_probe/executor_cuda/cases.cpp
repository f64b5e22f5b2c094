#include "tests/cuda_probe/executor_cuda/cases.hpp"

#include <algorithm>
#include <cstring>

#include "cuda_probe/transport/loopback.hpp"
#include "planner/layers/share.hpp"

namespace shardline::testing {

cli::CaseSizes device_sizes() {
  cli::CaseSizes z;
  z.hidden = 64;
  z.inner = 32;
  z.head_dim = 64;
  z.kv_lora = 512;
  z.rope = 64;
  z.nope = 128;
  z.mla_v = 128;
  return z;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> out;
  for (const Strategy* s : strategies()) {
    // APB's choice of rows is left to the CPU, and vertical-slash sparsity is timed only.
    if (id_of(*s) != strategy_id("apb") && id_of(*s) != strategy_id("sparse")) out.emplace_back(s->name);
  }
  return out;
}

bool has_kernels(const cli::VerifyCase& c) {
  const Model& m = c.study.model;
  if (c.plan[kDrafts] > 0 && has_latents(m)) return false;
  const auto absorbed = [&](const Attention& a) { return absorbs_prompts(c.study, a, c.plan); };
  if (std::any_of(m.attentions.begin(), m.attentions.end(), absorbed)) return false;
  return !has_local_attention(m) && !has_recurrence(m) &&
         std::none_of(m.attentions.begin(), m.attentions.end(), [](const Attention& a) { return a.index; });
}

std::vector<cli::VerifyCase> sampled(const std::string& name, std::size_t count) {
  std::vector<cli::VerifyCase> all = cli::verify_cases(strategy(name), device_sizes());
  std::erase_if(all, [](const cli::VerifyCase& c) { return !has_kernels(c); });
  std::vector<cli::VerifyCase> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(all[(2 * i + 1) * all.size() / (2 * count)]);
  return chosen;
}

Inputs::Inputs(const Problem& problem) : tensors(rounded_to_bf16(reference(problem))) {}

RunResult<float> Inputs::on_cpu(const Schedule& schedule) const {
  return Executor<float>(schedule, tensors).run();
}

DeviceResult on_emulated(const Schedule& schedule, const Inputs& inputs, const EmulatedOptions& gpu_options,
                         const DeviceOptions& options) {
  EmulatedGpu gpu(gpu_options);
  LoopbackTransport transport(gpu, ranks_of(schedule));
  Lanes lanes(transport);
  return DeviceExecutor(schedule, inputs.tensors, lanes, options).run();
}

bool same_bits(const DeviceResult& a, const DeviceResult& b) {
  if (a.outputs.size() != b.outputs.size()) return false;
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    const Matrix<float>&x = a.outputs[i].values, &y = b.outputs[i].values;
    if (x.rows() != y.rows() || x.cols() != y.cols() ||
        std::memcmp(x.data(), y.data(), sizeof(float) * static_cast<std::size_t>(x.size())) != 0)
      return false;
  }
  return true;
}

std::string describe(const DeviceCheck& check) {
  std::string text;
  for (const std::string& fault : check.faults) text += fault + "\n";
  for (const OutputCheck& o : check.outputs) {
    if (o.error > o.allowed)
      text +=
          o.worst + ": error " + std::to_string(o.error) + ", allowed " + std::to_string(o.allowed) + "\n";
  }
  return text;
}

}  // namespace shardline::testing
