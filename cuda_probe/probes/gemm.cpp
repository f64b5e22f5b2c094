// GEMM through cuBLASLt: out[m, n] = x[m, k] w[n, k]^T, as engines store weights; bf16 output, fp32 sums. The
// algorithm is the first that cuBLASLt's heuristic names, as engines choose it, not the fastest of many.
#include <cublasLt.h>
#include <fmt/format.h>

#include <memory>
#include <type_traits>

#include "cuda_probe/probes/bench.hpp"

namespace shardline {

namespace {

void require(cublasStatus_t status, const char* call, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
      status == CUBLAS_STATUS_ARCH_MISMATCH)
    throw Unsupported(fmt::format("cuBLASLt: {}", cublasLtGetStatusString(status)));
  throw GpuError(fmt::format("{}:{}: {}: {}", __FILE__, line, call, cublasLtGetStatusName(status)));
}
#define SL_LT(call) require((call), #call, __LINE__)

template <class T, cublasStatus_t (*Destroy)(T)>
struct Destroyer {
  using pointer = T;
  void operator()(T t) const { Destroy(t); }
};
using Handle = std::unique_ptr<void, Destroyer<cublasLtHandle_t, cublasLtDestroy>>;
using Operation = std::unique_ptr<void, Destroyer<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Destroyer<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<void, Destroyer<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

struct Type {
  const char* name;
  cudaDataType_t cuda;
  Data data;
  int bits;
  int capability;  // lowest that has it
};
constexpr Type kTypes[] = {{"bf16", CUDA_R_16BF, Data::bf16, 16, 80},
                           {"fp8", CUDA_R_8F_E4M3, Data::fp8, 8, 89},
                           {"nvfp4", CUDA_R_4F_E2M1, Data::fp4, 4, 100}};

constexpr std::size_t kWorkspace = std::size_t{32} << 20;
std::size_t z(std::int64_t v) { return static_cast<std::size_t>(v); }

Layout layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t out = nullptr;
  SL_LT(cublasLtMatrixLayoutCreate(&out, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows));
  return Layout(out);
}

template <class T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  SL_LT(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value));
}

// One scale per 16 values of a row, in tiles of 128 rows by 4 scales.
std::size_t scale_bytes(std::int64_t rows, std::int64_t k) {
  return z((rows + 127) / 128 * 128) * z((k / 16 + 3) / 4 * 4);
}
std::size_t operand_bytes(std::int64_t rows, std::int64_t k, const Type& type) {
  return z(rows) * z(k) * static_cast<std::size_t>(type.bits) / 8;
}

class Lt {
 public:
  Lt(Bench& bench, cublasLtHandle_t handle, const Type& type, const GemmCase& c)
      : b_(bench), handle_(handle), type_(type), c_(c) {
    workspace_ = b_.take(kWorkspace);
    // Column-major, so out^T[n, m] = (w^T)^T x^T.
    w_ = layout(type.cuda, c.k, c.n);
    x_ = layout(type.cuda, c.k, c.m);
    out_ = layout(CUDA_R_16BF, c.n, c.m);
    // Heuristics read no scales, but may want some to be there.
    const void* somewhere = type.bits < 16 ? workspace_ : nullptr;
    operation_ = operation(somewhere, somewhere);
    cublasLtMatmulPreference_t preference = nullptr;
    SL_LT(cublasLtMatmulPreferenceCreate(&preference));
    const Preference owner(preference);
    SL_LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspace, sizeof kWorkspace));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, operation_.get(), w_.get(), x_.get(), out_.get(), out_.get(), preference, 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
      throw Unsupported(fmt::format("cuBLASLt has no algorithm for {}", type.name));
    SL_LT(status);
    SL_LT(best.state);
    algorithm_ = best.algo;
  }

  Measured measure() {
    return b_.measure({[&](int) { prepare(); }, [&](int i, cudaStream_t s) { enqueue(sets_[z(i)], s); }});
  }

 private:
  struct Operands {
    void *w, *x, *out;
    Operation operation;  // holds the pointers to scales
  };

  Operation operation(const void* w_scale, const void* x_scale) const {
    cublasLtMatmulDesc_t created = nullptr;
    SL_LT(cublasLtMatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Operation out(created);
    set(out, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(out, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (type_.bits == 8) set(out, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});  // as engines do
    if (type_.bits == 4) {
      constexpr auto kBlocks = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
      set(out, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kBlocks);
      set(out, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kBlocks);
    }
    if (w_scale != nullptr) {
      set(out, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w_scale);
      set(out, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, x_scale);
    }
    return out;
  }

  const void* scales(std::int64_t rows) const {
    if (type_.bits == 16) return nullptr;
    if (type_.bits == 8) return b_.take_copy(std::vector<float>{1.0f});
    void* out = b_.take(scale_bytes(rows, c_.k));
    SL_CUDA(cudaMemsetAsync(out, 0x38, scale_bytes(rows, c_.k), b_.stream()));  // 1 in E4M3
    return out;
  }

  void prepare() {
    Operands o;
    o.w = b_.take_random(operand_bytes(c_.n, c_.k, type_), type_.data);
    o.x = b_.take_random(operand_bytes(c_.m, c_.k, type_), type_.data);
    o.out = b_.take(z(c_.m) * z(c_.n) * 2);
    const void* w_scale = scales(c_.n);
    o.operation = operation(w_scale, w_scale == nullptr ? nullptr : scales(c_.m));
    sets_.push_back(std::move(o));
  }

  void enqueue(const Operands& o, cudaStream_t stream) const {
    const float one = 1, zero = 0;
    SL_LT(cublasLtMatmul(handle_, o.operation.get(), &one, o.w, w_.get(), o.x, x_.get(), &zero, o.out,
                         out_.get(), o.out, out_.get(), &algorithm_, workspace_, kWorkspace, stream));
  }

  Bench& b_;
  cublasLtHandle_t handle_;
  const Type& type_;
  const GemmCase& c_;
  void* workspace_ = nullptr;
  Layout w_, x_, out_;
  Operation operation_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::vector<Operands> sets_;
};

}  // namespace

std::string cublaslt_version() {
  const std::size_t v = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

void probe_gemm(ProbeRun& probe_run, const std::vector<GemmCase>& shapes) {
  Bench& b = probe_run.bench;
  FamilyResult out("gemm");
  out.note(
      "kernel cublaslt: its heuristic's first choice, 32 MiB of workspace, bf16 output; fp8: E4M3, a scale "
      "per tensor, fast accumulation; nvfp4: a scale per 16 values; activations are not quantized in the "
      "time");
  for (const Type& t : kTypes) {
    if (b.capability() < t.capability)
      out.note(fmt::format("no {}: compute capability {}.{}, needs {}.{}", t.name, b.properties().major,
                           b.properties().minor, t.capability / 10, t.capability % 10));
  }
  cublasLtHandle_t handle = nullptr;
  SL_LT(cublasLtCreate(&handle));
  const Handle owner(handle);
  std::map<std::string, std::size_t> refused;
  probe_run.each(out, shapes, [&](const GemmCase& c) {
    for (const Type& t : kTypes) {
      if (b.capability() < t.capability) continue;
      b.clear();
      try {
        const double element = t.bits == 4 ? 0.5 + 1.0 / 16 : t.bits / 8.0;
        out.add({{"m", c.m}, {"n", c.n}, {"k", c.k}, {"dtype", t.name}, {"kernel", "cublaslt"}},
                Lt(b, handle, t, c).measure(), {Flops(flops_of(c)), Bytes(bytes_of(c, element))});
      } catch (const Unsupported& e) {
        ++refused[fmt::format("{}: {}", t.name, e.what())];  // the other types may run
      }
    }
  });
  for (const auto& [why, count] : refused) out.note(fmt::format("{} shapes left out: {}", count, why));
  probe_run.finish(out);
}

}  // namespace shardline
