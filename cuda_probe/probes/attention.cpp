// Prefill attention: our kernels by each set of instructions that the GPU has, and cuDNN's beside them.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/probes/bench.hpp"
#include "cuda_probe/probes/cudnn_attention.hpp"
#include "cuda_probe/probes/prefill_operands.hpp"

namespace shardline {

namespace {

std::size_t z(int i) { return static_cast<std::size_t>(i); }

constexpr double kAlike = 0.03;        // several roundings to bfloat16
constexpr std::int64_t kChecked = 16;  // rows compared at the beginning and at the end of the queries

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

  /// Largest difference of a row from what our mma kernel makes of the same operands, over the row's norm.
  /// Infinity where there are numbers that are none.
  double difference() {
    PrefillArguments mma = sets_[0];
    const std::int64_t width = mma.out_row, rows = std::min<std::int64_t>(kChecked, mma.q_rows);
    mma.out = static_cast<Bf16*>(b_.take(static_cast<std::size_t>(mma.q_rows * width) * sizeof(Bf16)));
    launched(prefill(mma, b_.stream(), PrefillPath::mma), "prefill");
    double most = 0;
    for (const std::int64_t first : {std::int64_t{0}, mma.q_rows - rows}) {
      std::vector<Bf16> got(static_cast<std::size_t>(rows * width)), want(got.size());
      for (const auto& [to, from] : {std::pair{&got, sets_[0].out}, std::pair{&want, mma.out}})
        SL_CUDA(cudaMemcpyAsync(to->data(), from + first * width, to->size() * sizeof(Bf16),
                                cudaMemcpyDeviceToHost, b_.stream()));
      SL_CUDA(cudaStreamSynchronize(b_.stream()));
      for (std::size_t row = 0; row < got.size(); row += static_cast<std::size_t>(width)) {
        double off = 0, norm = 0;
        for (std::size_t i = row; i < row + static_cast<std::size_t>(width); ++i) {
          const double x = static_cast<double>(to_float(got[i])), y = static_cast<double>(to_float(want[i]));
          off += (x - y) * (x - y);
          norm += y * y;
        }
        const double share = std::sqrt(off / norm);
        if (!(share <= most)) most = std::isfinite(share) ? share : std::numeric_limits<double>::infinity();
      }
    }
    return most;
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

constexpr std::string_view kMma = "shardline_mma";

// Do two kernels compute the same?
struct Likeness {
  std::size_t shapes = 0, unlike = 0;
  double most = 0;
  void add(double difference) {
    ++shapes;
    if (difference > kAlike) ++unlike;
    most = std::max(most, difference);
  }
};

}  // namespace

void probe_attention(ProbeRun& probe_run, const std::vector<PrefillCase>& shapes) {
  Bench& b = probe_run.bench;
  FamilyResult out("attention_prefill");
  CudnnAttention cudnn;
  out.note(cudnn.missing().empty() ? "kernel cudnn: its graph API, version " + cudnn.version()
                                   : "no rows of cuDNN: " + cudnn.missing());
  std::map<std::string, std::size_t> refused;
  std::map<std::string, Likeness> likeness;  // of each kernel with our mma kernel
  probe_run.each(out, shapes, [&](const PrefillCase& c) {
    Attention attention(b, c);
    const auto row = [&](const std::string& kernel, const std::function<Measured()>& measured) {
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
        if (kernel != kMma) likeness[kernel].add(attention.difference());
      } catch (const Unsupported& e) {
        ++refused[fmt::format("{}: {}", kernel, e.what())];  // the other kernels may run
      }
    };
    row(kMma.data(), [&] { return attention.ours(PrefillPath::mma); });
    if (b.capability() == 90) row("shardline_wgmma", [&] { return attention.ours(PrefillPath::wgmma); });
    if (cudnn.missing().empty()) row("cudnn", [&] { return attention.cudnns(cudnn); });
  });
  for (const auto& [kernel, l] : likeness)
    out.note(fmt::format(
        "kernel {}: outputs differ from {}'s by up to {:.2g} % of a row's norm, {} of {} shapes by "
        "more than {:g} %{}",
        kernel, kMma, 100 * l.most, l.unlike, l.shapes, 100 * kAlike,
        l.unlike > 0 ? ": DO NOT TRUST these rows" : ""));
  for (const auto& [why, count] : refused) out.note(fmt::format("{} shapes left out: {}", count, why));
  probe_run.finish(out);
}

}  // namespace shardline
