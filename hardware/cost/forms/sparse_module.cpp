// Whole attention blocks of DSA, MSA and DeepSeek-V4 as engines run them, in parts. README.md [H71], [H72].
#include "hardware/cost/forms/sparse_module.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/sparse_models.hpp"

namespace shardline {

namespace {

constexpr const char* kWords[] = {"model", "layer", "dtype_kv", "dtype_gemm", "kernel"};

constexpr double kTileHeads = 64;  // of a thread block of an absorbed kernel, filled or not
constexpr double kPaddedRows = 2048;

// variant: the layer's place among all; the peak of attention, which is BF16's; bytes of a row of the cache;
// 1 where flat scores are sorted.
enum : std::size_t { kLayer, kAttendPeak, kRowBytes, kSorts };

// Candidates that share a bin of a kernel's histogram with the last one chosen are compared each with each by
// a block of so many threads, if there are no more than so many; more are told apart by further bits. Scores
// that lie flat share one bin, all of them. vLLM and TensorRT-LLM have one such kernel for prompts
// (vllm-project/vllm 030ea52effcb, csrc/libtorch_stable/sampler.cu, topKPerRowJob: insertionSort;
// NVIDIA/TensorRT-LLM 8dffabc596c0, cpp/tensorrt_llm/kernels/indexerTopK.cu), TensorRT-LLM for steps that
// decode, too.
constexpr double kSortThreads = 512, kSorted = 2048;
constexpr std::string_view kTensorRt = "DeepseekV4TrtllmAttention", kVllm = "FLASHMLA_SPARSE_DSV4",
                           kTensorRtDsa = "default";

const SparseLayer& layer(const FormContext& c) {
  return sparse_layers()[static_cast<std::size_t>(c.variant[kLayer])];
}

double row_bytes(const SparseLayer& l, bool fp8) {
  constexpr double kLatent[] = {1152, 656}, kCompressed[] = {1024, 584};
  if (l.cache == SparseCache::latent) return kLatent[fp8 ? 1 : 0];
  if (l.cache == SparseCache::compressed) return kCompressed[fp8 ? 1 : 0];
  return l.width * (fp8 ? 1 : 2);
}

bool context_of(std::span<const std::string> words, const System& system, bool sorts, FormContext& out) {
  const SparseLayer* const l = find_sparse_layer(words[0], words[1]);
  if (l == nullptr) return false;
  out = form_context(system, words[3] == "bf16"    ? Dtype::bf16
                             : words[3] == "nvfp4" ? Dtype::fp4
                                                   : Dtype::fp8);
  out.a_bytes = fit_bytes(words[3]);
  out.variant[kLayer] = static_cast<double>(l - sparse_layers().data());
  out.variant[kAttendPeak] = form_context(system, Dtype::bf16).flops;
  out.variant[kRowBytes] = row_bytes(*l, words[2] == "fp8");
  out.variant[kSorts] = sorts ? 1 : 0;
  return out.flops > 0 && out.variant[kAttendPeak] > 0;
}
bool covers(std::span<const double>) { return true; }

// Thread blocks of an attention to `rows` queries, and query heads that each of them computes, empty ones
// included.
double blocks_of(const SparseLayer& l, double rows, double heads) {
  return rows *
         (l.cache == SparseCache::blocks ? std::max(1.0, heads / l.group) : std::ceil(heads / kTileHeads));
}
double computed_heads(const SparseLayer& l) { return l.cache == SparseCache::blocks ? l.group : kTileHeads; }

double projected(const SparseLayer& l, const FormContext& c, double tokens, double heads, double e_weights,
                 double e_gemm) {
  constexpr double kShared = 3 * 7168, kPerHead = 1500;  // elements of activations between the products
  const double bytes = projection_bytes(l, heads, c.a_bytes) + 2 * tokens * (kShared + kPerHead * heads);
  return std::hypot(bytes / (e_weights * c.bandwidth),
                    2 * tokens * projection_weights(l, heads) / (e_gemm * c.flops));
}

// Mean over the tokens (from, from + count] of min(token / ratio, most).
double mean_of_least(double from, double count, double ratio, double most) {
  const double first = from / ratio, last = (from + count) / ratio;
  if (last <= most) return (first + last) / 2;
  if (first >= most) return most;
  const double full = (last - most) / (last - first);
  return full * most + (1 - full) * (first + most) / 2;
}

// Comparisons of a thread that sorts n candidates, n ceil(n / kSortThreads), over a row for each number of
// them in (from, to]: their integral, of those up to kSorted.
double comparisons(double from, double to) {
  double out = 0;
  for (double turns = 1; turns * kSortThreads <= kSorted; ++turns) {
    const double a = std::max(from, (turns - 1) * kSortThreads), b = std::min(to, turns * kSortThreads);
    if (b > a) out += turns * (b * b - a * a) / 2;
  }
  return out;
}

// Rows that a kernel goes through: of those that a query may select a part `pad` is not there, and read all
// the same.
double padded(const SparseLayer& l, double attended, double pad) {
  return l.selected > 0 ? pad * (l.selected + l.window) + (1 - pad) * attended : attended;
}

namespace decode {
// "default" is a kernel's name that others may have, too: MSA's would select whole blocks.
bool sorts(std::span<const std::string> words) {
  if (words[4] != kTensorRtDsa) return words[4] == kTensorRt;
  const SparseLayer* const l = find_sparse_layer(words[0], words[1]);
  return l != nullptr && l->cache == SparseCache::latent;
}
bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  return context_of(words, system, sorts(words), out);
}
enum : std::size_t { kBatch, kKeys, kHeads };
constexpr const char* kNumbers[] = {"batch", "kv_len", "heads_local"};
enum : std::size_t {
  kT0,
  kRow,
  kWeights,
  kGemm,
  kBlock,
  kAttend,
  kPad,
  kKey,
  kSelect,
  kIndex,
  kPerSm,
  kSort
};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 1, 60, 400},                         // of all kernels but the products and attention
    {"row", "ns", 0.01, 100, 2e4},                    // of a request in them
    {"e_weights", "1", 0.1, 0.7, 1.2},                // of the HBM peak
    {"e_gemm", "1", 0.03, 0.5, 1.5},                  // of the products' peak
    {"block", "us", 0.01, 10, 600},                   // of a thread block that goes through 2048 rows
    {"e_attend", "1", 0.02, 0.4, 1.5},                // of BF16's peak
    {"pad", "1", 1e-3, 0.5, 1},                       // how much of the rows that are not there counts
    {"key", "ns", 1e-4, 0.1, 5},                      // of a thread block that selects, for a key
    {"select", "us", 0.01, 3, 60},                    // of its start
    {"e_index", "1", 0.02, 0.6, kDecodeMemoryShare},  // of the HBM peak, where keys are scored
    {"per_sm", "1", 0.5, 1.5, 4},                     // thread blocks that select which an SM has at once
    {"sort", "ns", 0.01, 5, 100},                     // of a comparison of a thread that sorts
};
constexpr FormAxis kAxes[] = {{"requests", 1.5, 1.5}, {"keys", 2, 2}, {"heads", 1.5, 1.5}};

double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  return sparse_decode_parts(x, c, p).device();
}
double work(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  return 2 * x[kBatch] *
         (projection_weights(l, x[kHeads]) + x[kHeads] * l.width * attended_rows(l, x[kKeys]) +
          l.index_heads * 128 * x[kKeys] / l.ratio);
}
double traffic(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  const double index = l.index_heads > 0 ? l.index_bytes * x[kKeys] / l.ratio : 0;
  return projection_bytes(l, x[kHeads], c.a_bytes) +
         x[kBatch] * (attended_rows(l, x[kKeys]) * c.variant[kRowBytes] + index);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[kBatch]);
  out[1] = std::log2(x[kKeys]);
  out[2] = std::log2(x[kHeads]);
}
}  // namespace decode

namespace prefill {
bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  return context_of(words, system, words[4] == kTensorRt || words[4] == kVllm, out);
}
enum : std::size_t { kBatch, kNew, kCached, kHeads };
constexpr const char* kNumbers[] = {"batch", "seq_q", "kv_cached", "heads_local"};
enum : std::size_t {
  kHost,
  kT0,
  kRow,
  kWeights,
  kGemm,
  kAttend,
  kPad,
  kScore,
  kKey,
  kSelect,
  kPerSm,
  kGather,
  kScores,
  kRebuild,
  kRebuildRequest,
  kSort
};
constexpr FormParameter kParameters[] = {
    {"host", "us", 0.1, 200, 5000},     // to launch the kernels one by one
    {"t0", "us", 1, 60, 4000},          // of all kernels but the products and attention
    {"row", "ns", 0.01, 1, 1000},       // of a token in them
    {"e_weights", "1", 0.1, 0.7, 1.2},  // of the HBM peak
    {"e_gemm", "1", 0.03, 0.5, 1.5},    // of the products' peak
    {"e_attend", "1", 0.01, 0.4, 1.5},  // of BF16's peak
    {"pad", "1", 1e-3, 0.5, 1},         // how much of the rows that are not there counts
    {"score", "ns", 1e-3, 2, 100},      // of a thread block that scores, for a key
    {"key", "ns", 1e-4, 0.1, 5},        // of a thread block that selects, for a key
    {"select", "us", 0.005, 2, 60},     // of its start
    {"per_sm", "1", 0.5, 1.5, 8},       // thread blocks that select which an SM has at once
    {"gather", "ns", 1e-5, 0.1, 1000},  // of a cached token of a request, found in its pages or converted
    {"e_scores", "1", 0.05, 1, 1e4},    // of the HBM peak, a matrix of all rows and all requests' keys
    {"rebuild", "us", 0.1, 300, 5000},  // of the host, beyond kOneTiming: to rebuild a step's metadata
    {"rebuild_request", "us", 0.01, 20, 500},  // the same of a request
    {"sort", "ns", 0.01, 5, 100},              // of a comparison of a thread that sorts
};
constexpr FormAxis kAxes[] = {{"rows", 2, 2}, {"keys", 2, 2}, {"heads", 2, 2}};

// The collector of DSA's rows under SGLang times prompts behind more cached tokens than this in another way:
// each call also rebuilds what the engine builds once for all layers of a step (ai-dynamo/aiconfigurator
// 095f58a51, collector/sglang/collect_mla_module.py:1465,1824: init_forward_metadata).
constexpr double kOneTiming = 65536;

double host_of_row(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const bool rebuilds = layer(c).cache == SparseCache::latent && x[kCached] > kOneTiming;
  return 1e-6 * (p[kHost] + (rebuilds ? p[kRebuild] + p[kRebuildRequest] * x[kBatch] : 0));
}

double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double host = host_of_row(x, c, p), device = sparse_prefill_parts(x, c, p).device();
  return std::sqrt(std::hypot(host * host, device * device));
}
double rows(std::span<const double> x) { return x[kBatch] * x[kNew]; }
double attended(std::span<const double> x, const SparseLayer& l) {
  return mean_of_least(x[kCached], x[kNew], l.ratio, l.selected > 0 ? l.selected : HUGE_VAL) +
         mean_of_least(x[kCached], x[kNew], 1, l.window);
}
double work(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  return 2 * rows(x) *
         (projection_weights(l, x[kHeads]) + x[kHeads] * l.width * attended(x, l) +
          l.index_heads * 128 * (x[kCached] + x[kNew] / 2) / l.ratio);
}
double traffic(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  const double keys = (x[kCached] + x[kNew]) / l.ratio;
  return projection_bytes(l, x[kHeads], c.a_bytes) + 4 * rows(x) * x[kHeads] * l.width +
         x[kBatch] * keys * ((l.index_heads > 0 ? l.index_bytes : 0) + c.variant[kRowBytes]);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(rows(x));
  out[1] = std::log2(x[kCached] + x[kNew]);
  out[2] = std::log2(x[kHeads]);
}

// Of the peak of FP8, which is twice that of BF16, that scores reach at most: kernels timed alone [H68] get
// to .42 and .45 on Hopper (fp8_mqa_logits, fp8_paged_mqa_logits) and to .37 and .34 on Blackwell.
constexpr double kScoresPeak = 0.45, kIndexDim = 128;

// Seconds that scores of so many (row, key) pairs take at least. MSA's kernels were not timed alone.
double least_of_scores(const SparseLayer& l, const FormContext& c, double pairs) {
  if (l.cache == SparseCache::blocks) return 0;
  return 2 * l.index_heads * kIndexDim * pairs / (kScoresPeak * 2 * c.variant[kAttendPeak]);
}

// Rows that one thread block of the kernel that scores takes through all keys of a request; 0: the keys of
// each row are shared out evenly.
double scored_rows(const SparseLayer& l) {
  if (l.cache == SparseCache::compressed) return 0;
  return l.cache == SparseCache::latent ? 128 / l.index_heads : 128;
}
}  // namespace prefill

}  // namespace

SparseParts sparse_decode_parts(std::span<const double> x, const FormContext& c, std::span<const double> p,
                                const SparseShard& shard) {
  using namespace decode;
  const SparseLayer& l = layer(c);
  SparseParts out;
  out.projections = projected(l, c, x[kBatch], x[kHeads], p[kWeights], p[kGemm]);
  out.rest = p[kT0] * 1e-6 + p[kRow] * 1e-9 * x[kBatch];
  const double seen = shard.attended >= 0 ? shard.attended : attended_rows(l, x[kKeys]);
  const double held = x[kKeys] / l.ratio, rows = padded(l, seen, p[kPad]);
  const double blocks = blocks_of(l, x[kBatch], x[kHeads]);
  const double bytes = x[kBatch] * seen * c.variant[kRowBytes] *
                       (l.cache == SparseCache::blocks ? std::max(1.0, x[kHeads] / l.group) : 1);
  out.attend =
      std::hypot(p[kBlock] * 1e-6 * std::max(1.0, blocks / c.sms) * rows / kPaddedRows,
                 2 * blocks * computed_heads(l) * rows * l.width / (p[kAttend] * c.variant[kAttendPeak]),
                 bytes / (kDecodeMemoryShare * c.bandwidth));
  if (l.index_heads == 0) return out;
  out.index = x[kBatch] * held * l.index_bytes / (p[kIndex] * c.bandwidth);
  const double waves = std::max(1.0, x[kBatch] / (p[kPerSm] * c.sms));
  if (held > l.selected) out.top_k = (p[kSelect] * 1e-6 + p[kKey] * 1e-9 * held) * waves;
  // With the token that is computed; where there is one more than are sorted all of them are seldom in one
  // bin.
  const double candidates = std::floor((x[kKeys] + 1) / l.ratio), sorted = std::min(candidates, kSorted);
  if (c.variant[kSorts] > 0 && candidates > l.selected && candidates <= kSorted + 1)
    out.sorting = p[kSort] * 1e-9 * sorted * std::ceil(sorted / kSortThreads) * waves;
  return out;
}

SparseParts sparse_prefill_parts(std::span<const double> x, const FormContext& c, std::span<const double> p,
                                 const SparseShard& shard) {
  using namespace prefill;
  const SparseLayer& l = layer(c);
  const double all = prefill::rows(x), keys = x[kCached] + x[kNew];
  SparseParts out;
  out.projections = projected(l, c, all, x[kHeads], p[kWeights], p[kGemm]);
  out.rest = p[kT0] * 1e-6 + 1e-9 * (p[kRow] * all + p[kGather] * x[kBatch] * keys);
  const double blocks = blocks_of(l, all, x[kHeads]),
               read = padded(l, shard.attended >= 0 ? shard.attended : attended(x, l), p[kPad]);
  out.attend = 2 * blocks * computed_heads(l) * read * l.width / (p[kAttend] * c.variant[kAttendPeak]) *
               std::sqrt(std::max(1.0, c.sms / blocks));
  if (l.index_heads == 0) return out;
  const double first = x[kCached] / l.ratio, last = keys / l.ratio, together = scored_rows(l);
  const double waves = together > 0 ? std::max(1.0, all / (together * c.sms)) : all / c.sms;
  out.index = waves * p[kScore] * 1e-9 * (first + last) / 2 +
              x[kBatch] * last * l.index_bytes / (kDecodeMemoryShare * c.bandwidth) +
              4 * all * x[kBatch] * last / (p[kScores] * c.bandwidth);
  if (last > l.selected) {
    const double selecting = all * std::min(1.0, (last - l.selected) / (last - first));
    const double mean = (std::max(first, l.selected) + last) / 2;
    const double turns = std::max(1.0, selecting / (p[kPerSm] * c.sms));
    out.top_k = (p[kSelect] * 1e-6 + p[kKey] * 1e-9 * mean) * turns;
    const double least = std::max(first, l.selected);
    if (c.variant[kSorts] > 0)
      out.sorting = p[kSort] * 1e-9 * comparisons(least, last) / (last - least) * turns;
    // Rows of blocks seldom tell scores from the choice among them, which both grow with rows times keys:
    // what scores cannot do without is theirs. The sum is what was fitted.
    const double missing = least_of_scores(l, c, all * (first + last) / 2) - out.index;
    const double moved = std::clamp(missing, 0.0, p[kKey] * 1e-9 * mean * turns);
    out.index += moved;
    out.top_k -= moved;
  }
  return out;
}

const Form kSparseDecodeForm{"sparse_decode",     "H71",         decode::kNumbers, kWords,
                             decode::kParameters, decode::kAxes, decode::context,  covers,
                             decode::seconds,     decode::work,  decode::traffic,  decode::coordinates};
const Form kSparsePrefillForm{"sparse_prefill",     "H72",          prefill::kNumbers, kWords,
                              prefill::kParameters, prefill::kAxes, prefill::context,  covers,
                              prefill::seconds,     prefill::work,  prefill::traffic,  prefill::coordinates};

}  // namespace shardline
