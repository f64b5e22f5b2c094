// Memory of one call of the prefill kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <functional>

#include "cuda_probe/gpu/cuda_gpu.hpp"
#include "cuda_probe/kernels/attend_plan.hpp"

namespace shardline {

/// Takes memory of the device, filled with random bfloat16 numbers or not at all.
using TakeMemory = std::function<void*(std::size_t bytes, bool random)>;

/// The plan of a call on the device: shared by calls of equal shape.
struct DevicePlan {
  const Visible* visible = nullptr;
  const std::int32_t *codes = nullptr, *run_begin = nullptr, *order = nullptr;
  const KeyRun* runs = nullptr;
};

template <class T>
const T* to_device(const std::vector<T>& values, const TakeMemory& take, cudaStream_t stream) {
  void* to = take(values.size() * sizeof(T), false);
  SL_CUDA(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
  SL_CUDA(cudaStreamSynchronize(stream));
  return static_cast<const T*>(to);
}

inline DevicePlan device_plan(const AttendPlan& p, const TakeMemory& take, cudaStream_t stream) {
  return {to_device(p.visible, take, stream), to_device(p.codes, take, stream),
          to_device(p.run_begin, take, stream), to_device(p.order, take, stream),
          to_device(p.runs, take, stream)};
}

/// Random queries, keys and values of `q_rows` and `kv_rows` rows; keys and values share rows.
inline PrefillArguments prefill_operands(std::int64_t q_rows, std::int64_t kv_rows, int q_heads, int kv_heads,
                                         int head_dim, const DevicePlan& plan, const TakeMemory& take) {
  const std::int64_t width = std::int64_t{q_heads} * head_dim, kv_width = std::int64_t{kv_heads} * head_dim;
  const auto bf16 = [&](std::int64_t count, bool random) {
    return static_cast<Bf16*>(take(static_cast<std::size_t>(count) * 2, random));
  };
  PrefillArguments a{};
  a.q = bf16(q_rows * width, true);
  a.k = bf16(kv_rows * 2 * kv_width, true);
  a.v = a.k + kv_width;
  a.q_row = a.out_row = width;
  a.q_head = a.kv_head = a.out_head = head_dim;
  a.kv_row = 2 * kv_width;
  a.out = bf16(q_rows * width, false);
  a.lse = static_cast<float*>(take(static_cast<std::size_t>(q_rows * q_heads) * 4, false));
  a.lse_row = q_heads;
  a.q_rows = static_cast<std::int32_t>(q_rows);
  a.kv_rows = static_cast<std::int32_t>(kv_rows);
  a.q_heads = q_heads;
  a.kv_heads = kv_heads;
  a.qk_dim = a.v_dim = head_dim;
  a.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  a.visible = plan.visible;
  a.codes = plan.codes;
  a.runs = plan.runs;
  a.run_begin = plan.run_begin;
  a.order = plan.order;
  return a;
}

}  // namespace shardline
