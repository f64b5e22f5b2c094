// Prefill attention: our kernels by each set of instructions that the GPU has, and cuDNN's beside them.
#include <fmt/format.h>

#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/probes/bench.hpp"
#include "cuda_probe/probes/cudnn_attention.hpp"
#include "cuda_probe/probes/prefill_operands.hpp"

namespace shardline {

namespace {

std::size_t z(int i) { return static_cast<std::size_t>(i); }

class Attention {
 public:
  Attention(Bench& bench, const PrefillCase& c) : b_(bench), c_(c) {
    Tokens queries, keys;
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(c.batch); ++r) {
      queries.push_back({r, c.cached, c.cached + c.fresh});
      keys.push_back({r, 0, c.cached + c.fresh});
    }
    plan_ = plan_attend(queries, keys);
  }

  Measured ours(PrefillPath path) {
    begin();
    return b_.measure({[&](int) { prepare(); },
                       [&](int i, cudaStream_t s) { launched(prefill(sets_[z(i)], s, path), "prefill"); }});
  }

  Measured cudnns(CudnnAttention& cudnn) {
    begin();
    cudnn.plan(c_);
    std::vector<void*> workspaces;
    return b_.measure({[&](int) {
                         prepare();
                         workspaces.push_back(b_.take(std::max<std::size_t>(256, cudnn.workspace())));
                       },
                       [&](int i, cudaStream_t s) {
                         const PrefillArguments& a = sets_[z(i)];
                         cudnn.run(a.q, a.k, a.v, a.out, workspaces[z(i)], s);
                       }});
  }

 private:
  void begin() {
    b_.clear();
    sets_.clear();
    on_device_ = device_plan(plan_, take(), b_.stream());
  }
  void prepare() {
    sets_.push_back(prefill_operands(c_.batch * c_.fresh, c_.batch * (c_.cached + c_.fresh), c_.q_heads,
                                     c_.kv_heads, c_.head_dim, on_device_, take()));
  }
  TakeMemory take() {
    return [this](std::size_t bytes, bool random) { return random ? b_.take_random(bytes) : b_.take(bytes); };
  }

  Bench& b_;
  const PrefillCase& c_;
  AttendPlan plan_;
  DevicePlan on_device_;
  std::vector<PrefillArguments> sets_;
};

}  // namespace

void probe_attention(ProbeRun& probe_run, const std::vector<PrefillCase>& shapes) {
  Bench& b = probe_run.bench;
  FamilyResult out("attention_prefill");
  CudnnAttention cudnn;
  out.note(cudnn.missing().empty() ? "kernel cudnn: its graph API, version " + cudnn.version()
                                   : "no rows of cuDNN: " + cudnn.missing());
  std::map<std::string, std::size_t> refused;
  probe_run.each(out, shapes, [&](const PrefillCase& c) {
    Attention attention(b, c);
    const auto row = [&](const char* kernel, const std::function<Measured()>& measured) {
      try {
        out.add({{"batch", c.batch},
                 {"seq_q", c.fresh},
                 {"kv_cached", c.cached},
                 {"heads_q", std::int64_t{c.q_heads}},
                 {"heads_kv", std::int64_t{c.kv_heads}},
                 {"head_dim", std::int64_t{c.head_dim}},
                 {"window", std::int64_t{0}},
                 {"dtype_compute", "bf16"},
                 {"dtype_kv", "bf16"},
                 {"kernel", kernel}},
                measured(), {Flops(flops_of(c)), Bytes(bytes_of(c))});
      } catch (const Unsupported& e) {
        ++refused[fmt::format("{}: {}", kernel, e.what())];  // the other kernels may run
      }
    };
    row("shardline_mma", [&] { return attention.ours(PrefillPath::mma); });
    if (b.capability() == 90) row("shardline_wgmma", [&] { return attention.ours(PrefillPath::wgmma); });
    if (cudnn.missing().empty()) row("cudnn", [&] { return attention.cudnns(cudnn); });
  });
  for (const auto& [why, count] : refused) out.note(fmt::format("{} shapes left out: {}", count, why));
  probe_run.finish(out);
}

}  // namespace shardline
