// What a published table of context parallelism asks of the simulator: times of Llama-3.1-405B served as in
// arXiv 2411.01783, section 4 (FFN in FP8, attention in BF16, prefill launched kernel by kernel, decode under
// CUDA graphs), by context-parallel size, TP size and variant.
#pragma once

#include "planner/scenario/scenario.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// `cp` ranks of `tpa` GPUs each; cp 1 is tensor parallelism over tpa GPUs.
struct ContextPlan {
  int cp = 1, tpa = 8;
  bool pass_q = false;  // prefill variant
};

/// Parts of ring attention in one layer, as a profile shows them.
struct RingParts {
  Seconds attend;      // one iteration on another rank's keys or queries
  Seconds send_recv;   // one message
  Seconds all_to_all;  // pass-Q only
};

/// Parts of one layer's decode attention: the kernel, all iterations, messages, all-to-all and everything.
struct DecodeParts {
  Seconds attend, loop, send_recv, all_to_all, whole;
};

class ContextModel {
 public:
  /// `system`: a catalogue name or file (h100-gtt, h100-gti).
  ContextModel(const std::string& system, const Catalogs& catalogs);
  ContextModel(Model model, System system);

  /// Time to first token of one request (batch 1) with `cached` tokens in the cache and `fresh` new ones.
  /// `persistent`: the cache is kept between turns (Table 4 and 5), also where it is empty.
  Seconds ttft(const ContextPlan& plan, long long cached, long long fresh, bool persistent) const;
  RingParts ring_parts(const ContextPlan& plan, long long cached, long long fresh, bool persistent) const;
  /// Time per output token of `batch` requests.
  Seconds ttit(const ContextPlan& plan, long long context, int batch) const;
  DecodeParts decode_parts(const ContextPlan& plan, long long context, int batch) const;

  /// Floating-point operations of a prefill as Appendix A counts them: 2 W T + 1/2 4 T^2 D layers.
  Flops appendix_a_flops(long long fresh) const;
  const Model& model() const { return model_; }

 private:
  Case prefill(long long cached, long long fresh, bool persistent) const;
  Case decode(long long context) const;
  Model model_;
  System system_;
  std::shared_ptr<FabricCache> fabric_;  // of system_, whose routes all its questions share
};

}  // namespace shardline
