#include "hardware/cost/forms/forms.hpp"

namespace shardline {

std::span<const Form> forms() {
  static const Form all[] = {kGemmForm,
                             kAttentionDecodeForm,
                             kMlaDecodeForm,
                             kMlaBmmForm,
                             kNcclForm,
                             kAllreduceForm,
                             kAlltoallForm,
                             kMoeForm,
                             kAttentionPrefillForm,
                             kMlaPrefillForm,
                             kQuantizeForm,
                             kSparseKernelForm,
                             kLinearAttentionForm,
                             kMambaForm,
                             kHyperConnectionForm,
                             kSparseDecodeForm,
                             kSparsePrefillForm};
  return all;
}

const Form* find_form(std::string_view family) {
  for (const Form& f : forms()) {
    if (family == f.family) return &f;
  }
  return nullptr;
}

double fit_bytes(std::string_view type) {
  if (type == "nvfp4") return bytes_per_element(Dtype::fp4);
  return bytes_per_element(type == "bf16" ? Dtype::bf16 : Dtype::fp8);
}

FormContext form_context(const System& system, Dtype math) {
  FormContext c;
  c.flops = system.device.peak[static_cast<std::size_t>(math)].value;
  c.bandwidth = system.device.memory_bandwidth.value;
  c.exponentials = system.device.exponentials.value;
  const int sms = system.device.multiprocessors > 0 ? system.device.multiprocessors : system.device.sms;
  c.sms = sms > 0 ? sms : 1;
  c.link = system.fabric.nvlink.bandwidth.value;
  c.network = system.fabric.network.bandwidth.value;
  return c;
}

}  // namespace shardline
