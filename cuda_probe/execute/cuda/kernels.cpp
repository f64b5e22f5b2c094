#include "cuda_probe/execute/cuda/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "cuda_probe/execute/cuda/kernel_limits.hpp"
#include "cuda_probe/kernels/attend_plan.hpp"
#include "cuda_probe/kernels/splits.hpp"

namespace shardline {

namespace {

struct Attend {
  const Dataflow& flow;
  const Action& action;
  Block2d q, kv, out, lse;
  float scale;
  Gpu& gpu;
  RankMemory& memory;

  Launch prefill() const {
    const AttendPlan plan = plan_attend(flow.token_list(action.queries), flow.token_list(action.keys));
    const int r = action.rank;
    PrefillArguments p{};
    p.q = q.bf16();
    p.k = kv.bf16();
    p.v = kv.bf16() + action.qk_dim;
    p.q_row = q.pitch;
    p.q_head = action.qk_dim;
    p.kv_row = kv.pitch;
    p.kv_head = action.qk_dim + action.v_dim;
    p.out_row = out.pitch;
    p.out_head = action.v_dim;
    p.out = out.bf16();
    p.lse = lse.fp32();
    p.lse_row = lse.pitch;
    p.q_rows = static_cast<std::int32_t>(q.rows);
    p.kv_rows = static_cast<std::int32_t>(kv.rows);
    p.q_heads = action.heads;
    p.kv_heads = action.kv_heads;
    p.qk_dim = action.qk_dim;
    p.v_dim = action.v_dim;
    p.scale = scale;
    p.visible = memory.upload(r, plan.visible);
    p.codes = memory.upload(r, plan.codes);
    p.runs = memory.upload(r, plan.runs);
    p.run_begin = memory.upload(r, plan.run_begin);
    p.order = memory.upload(r, plan.order);
    return [p](Gpu& on, Stream stream) { on.prefill(stream, p); };
  }

  /// What the arguments of both decode kernels share.
  template <class Arguments>
  void fill(Arguments& d, int (*splits)(std::int64_t, int, int, int), int heads) const {
    const CachedKeys cache = *cache_rows(flow.token_list(action.queries), flow.token_list(action.keys));
    const int r = action.rank;
    d.q = q.bf16();
    d.q_row = q.pitch;
    d.q_head = action.qk_dim;
    d.kv_row = kv.pitch;
    d.kv_begin = memory.upload(r, cache.begin);
    d.kv_rows = memory.upload(r, cache.count);
    d.out = out.bf16();
    d.out_row = out.pitch;
    d.out_head = action.v_dim;
    d.lse = lse.fp32();
    d.lse_row = lse.pitch;
    d.sequences = static_cast<std::int32_t>(q.rows);
    d.q_heads = action.heads;
    d.scale = scale;
    const std::int32_t longest =
        cache.count.empty() ? 0 : *std::max_element(cache.count.begin(), cache.count.end());
    d.splits = splits(longest, d.sequences, heads, gpu.multiprocessors());
    if (d.splits == 1) return;
    const auto cells = static_cast<std::size_t>(d.splits * q.rows * action.heads);
    d.partial_out = memory.allocate_of<float>(r, cells * static_cast<std::size_t>(action.v_dim));
    d.partial_lse = memory.allocate_of<float>(r, cells);
  }

  Launch decode() const {
    DecodeArguments d{};
    fill(d, decode_splits, action.kv_heads);
    d.k = kv.bf16();
    d.v = kv.bf16() + action.qk_dim;
    d.kv_head = action.qk_dim + action.v_dim;
    d.kv_heads = action.kv_heads;
    d.head_dim = action.qk_dim;
    return [d](Gpu& on, Stream stream) { on.decode(stream, d); };
  }

  Launch latent_decode() const {
    MlaDecodeArguments d{};
    fill(d, mla_decode_splits, action.heads);
    d.kv = kv.bf16();
    d.cache_rows = kv.rows;
    return [d](Gpu& on, Stream stream) { on.mla_decode(stream, d); };
  }
};

Launch plan_merge(const Action& a, std::span<const Block2d> b) {
  const std::size_t parts = b.size() / 2 - 1;
  MergeArguments m{};
  m.parts = static_cast<int>(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    m.outputs[i] = b[2 * i].columns > 0 ? b[2 * i].bf16() : nullptr;
    m.output_row[i] = b[2 * i].pitch;
    m.lses[i] = b[2 * i + 1].fp32();
    m.lse_row[i] = b[2 * i + 1].pitch;
  }
  m.rows = b[0].rows;
  m.heads = a.heads;
  m.head_dim = a.v_dim;
  m.out = b[2 * parts].bf16();
  m.out_row = b[2 * parts].pitch;
  m.out_lse = b[2 * parts + 1].fp32();
  m.out_lse_row = b[2 * parts + 1].pitch;
  return [m](Gpu& gpu, Stream stream) { gpu.merge(stream, m); };
}

Launch plan_gemm(const Action& a, std::span<const Block2d> b) {
  GemmArguments g{};
  g.a = b[0].bf16();
  g.w = b[1].bf16();
  g.out = b[2].bf16();
  g.batches = a.function == Function::gemm_per_head ? a.heads : 1;
  g.rows = b[0].rows;
  g.k = b[0].columns / g.batches;
  g.n = b[1].columns;
  g.a_row = b[0].pitch;
  g.w_row = b[1].pitch;
  g.out_row = b[2].pitch;
  g.a_batch = g.k;
  g.w_batch = g.k * g.w_row;
  g.out_batch = g.n;
  return [g](Gpu& gpu, Stream stream) { gpu.gemm(stream, g); };
}

/// Keys and values of all heads in one batched product each, and the rotary key copied to every head.
Launch plan_expand(const Action& a, std::span<const Block2d> b) {
  GemmArguments keys{};
  keys.a = b[0].bf16();
  keys.w = b[1].bf16();
  keys.out = b[2].bf16();
  keys.batches = a.heads;
  keys.rows = b[0].rows;
  keys.k = b[1].rows;
  const std::int64_t rope = b[0].columns - keys.k, plain = a.qk_dim - rope;
  keys.n = plain;
  keys.a_row = b[0].pitch;
  keys.w_row = b[1].pitch;
  keys.out_row = b[2].pitch;
  keys.w_batch = plain + a.v_dim;
  keys.out_batch = a.qk_dim + a.v_dim;
  GemmArguments values = keys;
  values.n = a.v_dim;
  values.w += plain;
  values.out += a.qk_dim;
  std::vector<Copy> copies;
  for (int head = 0; head < a.heads && rope > 0; ++head) {
    copies.push_back({keys.a + keys.k, keys.out + head * keys.out_batch + plain,
                      static_cast<std::size_t>(keys.rows), static_cast<std::size_t>(rope) * sizeof(Bf16),
                      static_cast<std::size_t>(keys.a_row) * sizeof(Bf16),
                      static_cast<std::size_t>(keys.out_row) * sizeof(Bf16)});
  }
  return [=](Gpu& gpu, Stream stream) {
    gpu.gemm(stream, keys);
    gpu.gemm(stream, values);
    for (const Copy& copy : copies) gpu.copy(stream, copy);
  };
}

}  // namespace

Launch plan_action(const Dataflow& flow, const Layout& layout, const Action& a, double scale, Gpu& gpu,
                   RankMemory& memory) {
  std::vector<Block2d> b;
  for (const Region& r : flow.regions_of(a)) b.push_back(layout.block(a.rank, r));
  if (b[0].rows == 0) return [](Gpu&, Stream) {};
  switch (a.function) {
    case Function::attend: {
      const double used = scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(a.qk_dim));
      const Attend attend{flow, a, b[0], b[1], b[2], b[3], static_cast<float>(used), gpu, memory};
      const AttendKernel kernel = attend_kernel(flow, a);
      return kernel == AttendKernel::prefill  ? attend.prefill()
             : kernel == AttendKernel::decode ? attend.decode()
                                              : attend.latent_decode();
    }
    case Function::merge:
      return plan_merge(a, b);
    case Function::gemm:
    case Function::gemm_per_head:
      return plan_gemm(a, b);
    case Function::expand:
      return plan_expand(a, b);
    case Function::swiglu:
    case Function::rms_norm:
    case Function::add:
    case Function::silu:
    case Function::compress:
    case Function::index_scores:
    case Function::block_scores:
    case Function::choose:
    case Function::choose_among:
    case Function::make_rows:
    case Function::convolve:
    case Function::delta_rule:
    case Function::state_space:
    case Function::gated_norm:
    case Function::gated_squares:
    case Function::norm_by_squares:
      break;
  }
  const Block2d &last = b.back(), &second = b[1];
  const bool adds = a.function == Function::add;
  const RowArguments row{b[0].bf16(), adds ? second.bf16() : nullptr, last.bf16(), last.rows, last.columns,
                         b[0].pitch,  adds ? second.pitch : 0,        last.pitch};
  if (adds) return [row](Gpu& on, Stream stream) { on.add(stream, row); };
  if (a.function == Function::swiglu) return [row](Gpu& on, Stream stream) { on.swiglu(stream, row); };
  return [row](Gpu& on, Stream stream) { on.rms_norm(stream, row); };
}

}  // namespace shardline
