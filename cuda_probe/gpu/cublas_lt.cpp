#include "cuda_probe/gpu/cublas_lt.hpp"

#include <fmt/format.h>

namespace shardline {

namespace {

void require(cublasStatus_t status, const char* call, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw GpuError(fmt::format("{}:{}: {}: {}: {}", __FILE__, line, call, cublasLtGetStatusName(status),
                             cublasLtGetStatusString(status)));
}

#define SL_BLAS(call) require((call), #call, __LINE__)

/// Row-major [rows, columns] is column-major [columns, rows].
cublasLtMatrixLayout_t transposed_layout(std::int64_t rows, std::int64_t columns, std::int64_t row,
                                         std::int64_t batches, std::int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  SL_BLAS(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), row));
  const auto count = static_cast<std::int32_t>(batches);
  SL_BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  SL_BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch,
                                           sizeof batch));
  return layout;
}

}  // namespace

CublasLt::CublasLt() {
  SL_BLAS(cublasLtCreate(&handle_));
  SL_BLAS(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  SL_BLAS(cublasLtMatmulPreferenceCreate(&preference_));
  const std::size_t workspace = kWorkspace;
  SL_BLAS(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof workspace));
  // A plan serves any operands of its shape: none may count on more than what the arguments promise.
  const std::uint32_t alignment = 16;
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    SL_BLAS(cublasLtMatmulPreferenceSetAttribute(preference_, which, &alignment, sizeof alignment));
}

CublasLt::~CublasLt() {
  for (const auto& [shape, plan] : plans_) {
    for (const auto layout : {plan.w, plan.a, plan.out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
  if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

const CublasLt::Plan& CublasLt::plan(const Shape& shape) {
  const auto [found, fresh] = plans_.try_emplace(shape);
  Plan& plan = found->second;
  if (!fresh) return plan;
  const auto [rows, k, n, a_row, w_row, out_row, batches, a_batch, w_batch, out_batch] = shape;
  try {
    plan.w = transposed_layout(k, n, w_row, batches, w_batch);
    plan.a = transposed_layout(rows, k, a_row, batches, a_batch);
    plan.out = transposed_layout(rows, n, out_row, batches, out_batch);
    cublasLtMatmulHeuristicResult_t result{};
    int results = 0;
    SL_BLAS(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, plan.w, plan.a, plan.out, plan.out,
                                           preference_, 1, &result, &results));
    if (results == 0) throw GpuError(fmt::format("gemm: cuBLASLt has no algorithm for {}x{}x{}", rows, k, n));
    SL_BLAS(result.state);
    plan.algorithm = result.algo;
  } catch (...) {
    for (const auto layout : {plan.w, plan.a, plan.out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    plans_.erase(found);
    throw;
  }
  return plan;
}

void CublasLt::gemm(const GemmArguments& a, void* workspace, cudaStream_t stream) {
  const Shape shape = {a.rows,    a.k,       a.n,       a.a_row,   a.w_row,
                       a.out_row, a.batches, a.a_batch, a.w_batch, a.out_batch};
  const Plan& p = plan(shape);
  const float one = 1, zero = 0;
  // out^T = w^T a^T, all column-major.
  SL_BLAS(cublasLtMatmul(handle_, operation_, &one, a.w, p.w, a.a, p.a, &zero, a.out, p.out, a.out, p.out,
                         &p.algorithm, workspace, kWorkspace, stream));
}

}  // namespace shardline
