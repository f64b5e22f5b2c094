#include "calibrate/derived.hpp"

#include <algorithm>
#include <utility>

#include "hardware/cost/forms/forms.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

struct NamedKernel {
  std::string_view kernel, engine;
};
// Tables with one engine's rows alone need not name it.
constexpr NamedKernel kKernels[] = {{"torch_flow", "trtllm"}, {"CutlassFP8", "vllm"}};

}  // namespace

std::string_view engine_of_gemm(std::string_view engine, std::string_view kernel) {
  if (!engine.empty()) return engine;
  const auto at = std::find_if(std::begin(kKernels), std::end(kKernels),
                               [&](const auto& k) { return k.kernel == kernel; });
  return at == std::end(kKernels) ? std::string_view() : at->engine;
}

FitRows static_products(const FitRows& dynamic, const FitRows& search, const FormContext& gemm) {
  std::map<std::pair<double, double>, double> seconds;  // of each activation
  CancelCheck check;
  for (std::size_t i = 0; i < search.size(); ++i) {
    check();
    const auto x = search.x(i);
    seconds.emplace(std::pair(x[0], x[1]), search.seconds[i]);
  }
  FitRows out;
  out.width = dynamic.width;
  for (std::size_t i = 0; i < dynamic.size(); ++i) {
    check();
    const auto x = dynamic.x(i);
    const auto found = seconds.find({x[0], x[2]});
    if (found == seconds.end()) continue;
    const double least =
        std::max(kGemmForm.work(x, gemm) / gemm.flops, kGemmForm.traffic(x, gemm) / gemm.bandwidth);
    out.numbers.insert(out.numbers.end(), x.begin(), x.end());
    out.seconds.push_back(std::max(least, dynamic.seconds[i] - found->second));
  }
  return out;
}

}  // namespace shardline
