#include "cuda_probe/probes/cudnn_attention.hpp"

#include <fmt/format.h>

#include "cuda_probe/probes/bench.hpp"

#ifdef SHARDLINE_HAVE_CUDNN

#include <cudnn_graph.h>
#include <dlfcn.h>

#include <cmath>
#include <limits>
#include <optional>

namespace shardline {

// Types of the functions alone: nothing is linked.
struct CudnnAttention::Library {
  void* file = nullptr;
  decltype(&::cudnnCreate) create = nullptr;
  decltype(&::cudnnDestroy) destroy = nullptr;
  decltype(&::cudnnSetStream) set_stream = nullptr;
  decltype(&::cudnnGetVersion) version = nullptr;
  decltype(&::cudnnGetErrorString) error = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&::cudnnBackendSetAttribute) set = nullptr;
  decltype(&::cudnnBackendGetAttribute) get = nullptr;
  decltype(&::cudnnBackendFinalize) finalize = nullptr;
  decltype(&::cudnnBackendExecute) execute = nullptr;
  cudnnHandle_t handle = nullptr;

  template <class F>
  bool load(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(file, name));
    return function != nullptr;
  }
  bool load_all() {
    return load(create, "cudnnCreate") && load(destroy, "cudnnDestroy") &&
           load(set_stream, "cudnnSetStream") && load(version, "cudnnGetVersion") &&
           load(error, "cudnnGetErrorString") && load(create_descriptor, "cudnnBackendCreateDescriptor") &&
           load(destroy_descriptor, "cudnnBackendDestroyDescriptor") &&
           load(set, "cudnnBackendSetAttribute") && load(get, "cudnnBackendGetAttribute") &&
           load(finalize, "cudnnBackendFinalize") && load(execute, "cudnnBackendExecute");
  }
  void require(cudnnStatus_t status, const char* what) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    const std::string text = fmt::format("cuDNN, {}: {}", what, error(status));
    // Families of status codes: 2000 bad parameter, 3000 not supported.
    if (status >= 2000 && status < 4000) throw Unsupported(text);
    throw GpuError(text);
  }
};

namespace {

constexpr const char* kLibrary = "libcudnn.so.9";

std::string version_text(std::size_t v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); }

// Identifiers of the graph's own tensors.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kScale, kLowest, kShift, kFirstVirtual };

}  // namespace

struct CudnnAttention::Plan {
  explicit Plan(const Library& library) : l(library) {}
  ~Plan() {
    for (auto d = descriptors.rbegin(); d != descriptors.rend(); ++d) l.destroy_descriptor(*d);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  using Descriptor = cudnnBackendDescriptor_t;

  Descriptor create(cudnnBackendDescriptorType_t type) {
    Descriptor d = nullptr;
    l.require(l.create_descriptor(type, &d), "a descriptor");
    descriptors.push_back(d);
    return d;
  }
  template <class T>
  void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
           std::int64_t count = 1) {
    l.require(l.set(d, name, type, count, values), "an attribute");
  }
  Descriptor done(Descriptor d, const char* what) {
    l.require(l.finalize(d), what);
    return d;
  }

  Descriptor tensor(std::int64_t uid, cudnnDataType_t type, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides, bool is_virtual, bool by_value = false) {
    const Descriptor d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const std::int64_t alignment = 16;
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &uid);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes.data(),
        static_cast<std::int64_t>(sizes.size()));
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(),
        static_cast<std::int64_t>(strides.size()));
    set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
    set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
    return done(d, "a tensor");
  }
  // A value between two operations of the graph: [batch, heads, queries, `width`].
  Descriptor between(cudnnDataType_t type, std::int64_t width) {
    return tensor(next_uid++, type, {b, h, sq, width}, {h * sq * width, sq * width, width, 1}, true);
  }

  void matmul(Descriptor a, Descriptor x, Descriptor out) {
    const Descriptor how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
    done(how, "a matrix product");
    const Descriptor d = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &a);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &out);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &how);
    operations.push_back(done(d, "a matrix product"));
  }
  void reduce(cudnnReduceTensorOp_t op, Descriptor x, Descriptor out) {
    const Descriptor how = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &op);
    set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
    done(how, "a reduction");
    const Descriptor d = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &out);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &how);
    operations.push_back(done(d, "a reduction"));
  }
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, Descriptor x, Descriptor second,
                 Descriptor third, Descriptor out, std::optional<std::int64_t> axis = {}) {
    const Descriptor how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
    if (axis) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &*axis);
    done(how, "a pointwise operation");
    const Descriptor d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, &how);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x);
    if (second != nullptr)
      set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &second);
    if (third != nullptr) set(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &third);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &out);
    operations.push_back(done(d, "a pointwise operation"));
  }

  void build(const PrefillCase& c) {
    b = c.batch;
    h = c.q_heads;
    sq = c.fresh;
    const std::int64_t sk = c.cached + c.fresh, dim = c.head_dim, kv_row = 2 * c.kv_heads * dim;
    const std::vector<std::int64_t> one{1, 1, 1, 1};
    constexpr auto kFloat = CUDNN_DATA_FLOAT, kInt = CUDNN_DATA_INT32, kIo = CUDNN_DATA_BFLOAT16;
    const Descriptor q = tensor(kQ, kIo, {b, h, sq, dim}, {sq * h * dim, dim, h * dim, 1}, false);
    const Descriptor k =
        tensor(kK, kIo, {b, c.kv_heads, dim, sk}, {sk * kv_row, dim, 1, kv_row}, false);  // transposed
    const Descriptor v = tensor(kV, kIo, {b, c.kv_heads, sk, dim}, {sk * kv_row, dim, kv_row, 1}, false);
    const Descriptor out = tensor(kOut, kIo, {b, h, sq, dim}, {sq * h * dim, dim, h * dim, 1}, false);
    const Descriptor scale = tensor(kScale, kFloat, one, one, false, true);
    const Descriptor lowest = tensor(kLowest, kFloat, one, one, false, true);

    const Descriptor scores = between(kFloat, sk), scaled = between(kFloat, sk);
    matmul(q, k, scores);
    pointwise(CUDNN_POINTWISE_MUL, kFloat, scores, scale, nullptr, scaled);
    Descriptor row = between(kInt, sk);
    const Descriptor column = between(kInt, sk);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, kFloat, scaled, nullptr, nullptr, row, 2);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, kFloat, scaled, nullptr, nullptr, column, 3);
    if (c.cached > 0) {  // the last query sees the last key
      const Descriptor shift = tensor(kShift, kInt, one, one, false, true);
      const Descriptor moved = between(kInt, sk);
      pointwise(CUDNN_POINTWISE_ADD, kInt, row, shift, nullptr, moved);
      row = moved;
    }
    const Descriptor seen = between(CUDNN_DATA_BOOLEAN, sk), masked = between(kFloat, sk);
    pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column, nullptr, seen);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, kFloat, scaled, lowest, seen, masked);
    const Descriptor highest = between(kFloat, 1), lowered = between(kFloat, sk),
                     powers = between(kFloat, sk), sum = between(kFloat, 1), weights = between(kIo, sk);
    reduce(CUDNN_REDUCE_TENSOR_MAX, masked, highest);
    pointwise(CUDNN_POINTWISE_SUB, kFloat, masked, highest, nullptr, lowered);
    pointwise(CUDNN_POINTWISE_EXP, kFloat, lowered, nullptr, nullptr, powers);
    reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    pointwise(CUDNN_POINTWISE_DIV, kFloat, powers, sum, nullptr, weights);
    matmul(weights, v, out);

    const Descriptor graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &l.handle);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
        static_cast<std::int64_t>(operations.size()));
    choose(done(graph, "the graph of attention"));
    scale_value = 1 / std::sqrt(static_cast<float>(c.head_dim));
    shift_value = static_cast<std::int32_t>(c.cached);
    shifted = c.cached > 0;
  }

  // The first engine of the heuristic's list that takes the graph.
  void choose(Descriptor graph) {
    const Descriptor heuristic = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, &graph);
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    done(heuristic, "its choice of an engine");
    std::int64_t count = 0;
    l.require(
        l.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "its choice of an engine");
    std::vector<Descriptor> engines(static_cast<std::size_t>(count));
    for (Descriptor& e : engines) e = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (count > 0)
      l.require(l.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                      engines.data()),
                "its choice of an engine");
    for (const Descriptor& e : engines) {
      const Descriptor p = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      set(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &l.handle);
      set(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, &e);
      if (l.finalize(p) != CUDNN_STATUS_SUCCESS) continue;
      l.require(l.get(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &workspace),
                "its workspace");
      plan = p;
      return;
    }
    throw Unsupported("cuDNN has no engine for this attention");
  }

  const Library& l;
  std::vector<Descriptor> descriptors, operations;
  std::int64_t b = 0, h = 0, sq = 0, next_uid = kFirstVirtual, workspace = 0;
  Descriptor plan = nullptr;
  float scale_value = 1, lowest_value = -std::numeric_limits<float>::infinity();
  std::int32_t shift_value = 0;
  bool shifted = false;
};

CudnnAttention::CudnnAttention() : library_(std::make_unique<Library>()) {
  Library& l = *library_;
  l.file = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (l.file == nullptr) {
    missing_ = fmt::format("{} was not found", kLibrary);
  } else if (!l.load_all()) {
    missing_ = fmt::format("{} lacks its graph interface", kLibrary);
  } else {
    version_ = version_text(l.version());
    const cudnnStatus_t status = l.create(&l.handle);
    if (status != CUDNN_STATUS_SUCCESS) missing_ = fmt::format("cuDNN does not start: {}", l.error(status));
  }
}

CudnnAttention::~CudnnAttention() {
  plan_.reset();
  if (library_->handle != nullptr) library_->destroy(library_->handle);
  // The library stays loaded: it does not survive being loaded again beside a live context.
}

void CudnnAttention::plan(const PrefillCase& shape) {
  plan_ = std::make_unique<Plan>(*library_);
  plan_->build(shape);
}

std::size_t CudnnAttention::workspace() const { return static_cast<std::size_t>(plan_->workspace); }

void CudnnAttention::run(const void* q, const void* k, const void* v, void* out, void* workspace,
                         cudaStream_t stream) {
  Library& l = *library_;
  Plan& p = *plan_;
  l.require(l.set_stream(l.handle, stream), "its stream");
  std::vector<std::int64_t> uids{kQ, kK, kV, kOut, kScale, kLowest};
  std::vector<const void*> values{q, k, v, out, &p.scale_value, &p.lowest_value};
  if (p.shifted) {
    uids.push_back(kShift);
    values.push_back(&p.shift_value);
  }
  cudnnBackendDescriptor_t pack = nullptr;
  l.require(l.create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "a descriptor");
  const auto count = static_cast<std::int64_t>(uids.size());
  cudnnStatus_t status =
      l.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data());
  if (status == CUDNN_STATUS_SUCCESS)
    status = l.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, values.data());
  if (status == CUDNN_STATUS_SUCCESS)
    status = l.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = l.finalize(pack);
  if (status == CUDNN_STATUS_SUCCESS) status = l.execute(l.handle, p.plan, pack);
  l.destroy_descriptor(pack);
  l.require(status, "attention");
}

std::string cudnn_version() {
  // Without a handle: making one takes long.
  void* const file = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const auto version = file == nullptr
                           ? nullptr
                           : reinterpret_cast<decltype(&::cudnnGetVersion)>(dlsym(file, "cudnnGetVersion"));
  return version == nullptr ? fmt::format("none: {} was not found", kLibrary) : version_text(version());
}

}  // namespace shardline

#else

namespace shardline {

struct CudnnAttention::Library {};
struct CudnnAttention::Plan {};
CudnnAttention::CudnnAttention() : missing_("built without cuDNN's headers") {}
CudnnAttention::~CudnnAttention() = default;
void CudnnAttention::plan(const PrefillCase&) { throw Unsupported("no cuDNN"); }
std::size_t CudnnAttention::workspace() const { return 0; }
void CudnnAttention::run(const void*, const void*, const void*, void*, void*, cudaStream_t) {}
std::string cudnn_version() { return "none: built without cuDNN's headers"; }

}  // namespace shardline

#endif
