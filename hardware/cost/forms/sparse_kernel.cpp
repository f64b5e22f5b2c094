// Kernels of sparse attention timed alone: scores of an index, the rows with the highest ones, and attention
// to them. README.md [H68].
#include <algorithm>
#include <cmath>
#include <string_view>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/sparse_models.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kNew, kCached };
constexpr const char* kNumbers[] = {"batch", "seq_q", "kv_cached"};
constexpr const char* kWords[] = {"op", "model", "kernel"};
enum : std::size_t { kT0, kRow, kStart, kKey, kMore, kKnee, kBlocks, kRound, kMemory, kThrottle, kRequest };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.05, 3, 100},           // launch
    {"row", "ns", 0.1, 200, 1e4},         // of a multiprocessor for a row beside its keys
    {"start", "us", 0.005, 2, 60},        // of a thread block
    {"key", "ns", 1e-3, 0.5, 100},        // of a thread block for a key
    {"more", "ns", 1e-5, 0.1, 20},        // for a key beyond the knee; of the longest chain (HCA)
    {"knee", "K", 2, 30, 300},            // keys
    {"blocks", "1", 0.5, 1.5, 8},         // thread blocks that a multiprocessor has at once
    {"round", "1", 1e-3, 0.5, 1},         // how much of a last, partly filled wave counts
    {"e_memory", "1", 0.02, 0.5, 0.955},  // of the HBM peak
    {"throttle", "1", 1e-3, 0.1, 3},      // of what takes longer than 20 ms
    {"request", "ns", 0.1, 100, 1e5},     // of a request with several new rows (HCA)
};
constexpr FormAxis kAxes[] = {{"rows", 2}, {"keys", 2}, {"requests", 2}};

// What a kernel does, and where it finds its keys.
enum : int { kRowBlocks, kPagedIndex, kTopK, kClusterTopK, kSparseMla, kHca };
int kind_of(std::string_view op) {
  if (op == "index_logits") return kRowBlocks;
  if (op == "v4_index_logits") return kPagedIndex;
  if (op.starts_with("topk_") || op.starts_with("v4_topk_v1_")) return kTopK;
  if (op.starts_with("v4_topk_v2_")) return kClusterTopK;
  if (op == "sparse_mla") return kSparseMla;
  return op == "v4_hca_attention" ? kHca : -1;
}

const SparseLayer* layer_of(std::string_view op, std::string_view model) {
  if (op == "v4_hca_attention") return find_sparse_layer(model, "hca");
  return find_sparse_layer(model, model.starts_with("deepseek-v4") ? "csa" : "indexer");
}

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const SparseLayer* const layer = layer_of(words[0], words[1]);
  const int kind = kind_of(words[0]);
  if (layer == nullptr || kind < 0) return false;
  out = form_context(system, kind == kRowBlocks || kind == kPagedIndex ? Dtype::fp8 : Dtype::bf16);
  out.variant[0] = kind;
  out.variant[1] = static_cast<double>(layer - sparse_layers().data());
  return out.flops > 0;
}

const SparseLayer& layer(const FormContext& c) {
  return sparse_layers()[static_cast<std::size_t>(c.variant[1])];
}
int kind(const FormContext& c) { return static_cast<int>(c.variant[0]); }

bool covers(std::span<const double>) { return true; }

// Rows of a request, in equal ones; rows that have more keys than are selected, and their keys: of the mean
// of them, and of the last.
struct Keys {
  double rows, selecting, mean, last;
};
Keys keys_of(std::span<const double> x, const SparseLayer& l, bool select) {
  const double last = (x[kCached] + x[kNew]) / l.ratio, first = (x[kCached] + 1) / l.ratio;
  if (!select) return {x[kBatch] * x[kNew], x[kBatch] * x[kNew], (first + last) / 2, last};
  const double part = std::clamp((x[kCached] + x[kNew] - l.ratio * (l.selected + 1) + 1) / x[kNew], 0.0, 1.0);
  const double selecting = std::round(x[kBatch] * x[kNew] * part);
  const double mean = selecting > 0 ? (std::max(first, l.selected) + last) / 2 : 0;
  return {x[kBatch] * x[kNew], selecting, mean, last};
}

double waves(double blocks, double at_once, double round) {
  const double load = blocks / at_once;
  return load + round * (std::max(1.0, std::ceil(load)) - load);
}

// DeepGEMM's fp8_mqa_logits: a thread block has 128 / heads rows, goes through all the keys of the requests
// that they belong to, 256 at a time, and never shares them.
double row_blocks(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  constexpr double kTileRows = 128, kTileKeys = 256;
  const double tile = kTileRows / layer(c).index_heads;
  const double requests = std::min(x[kBatch], std::max(1.0, tile / x[kNew]));
  const double longest = std::ceil(requests * (x[kCached] + x[kNew]) / kTileKeys) * kTileKeys;
  const double rows = x[kNew] > tile ? (x[kNew] + tile) / 2 : x[kNew];
  const double mean = std::min(longest, requests * (x[kCached] + rows) + kTileKeys / 2);
  const double blocks = std::ceil(x[kBatch] * x[kNew] / tile);
  const double all = std::max(1.0, waves(blocks, c.sms, p[kRound]));
  return std::max(all * (p[kKey] * 1e-9 * mean + p[kStart] * 1e-6),
                  p[kKey] * 1e-9 * longest + p[kStart] * 1e-6);
}

// The paged kernel: keys of a row in parts that fill the device.
double paged_index(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const Keys k = keys_of(x, layer(c), false);
  const double work =
      k.rows * (p[kKey] * 1e-9 * k.mean + p[kRow] * 1e-9) / c.sms + (k.last > 0 ? p[kStart] * 1e-6 : 0);
  const double bytes = x[kBatch] * k.last * layer(c).index_bytes + 4 * k.rows * k.mean;
  return std::hypot(work, bytes / (p[kMemory] * c.bandwidth));
}

// A thread block per row, which reads its scores twice.
double top_k(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const Keys k = keys_of(x, layer(c), true);
  const auto one = [&](double keys) {
    return p[kStart] * 1e-6 + 1e-9 * (p[kKey] * keys + p[kMore] * std::max(0.0, keys - p[kKnee] * 1e3));
  };
  const double whole = (k.rows - k.selecting) * p[kRow] * 1e-9 / c.sms;
  if (k.selecting <= 0) return whole;
  const double work = std::max(waves(k.selecting, p[kBlocks] * c.sms, p[kRound]) * one(k.mean), one(k.last));
  const double memory = 4 * k.selecting * k.mean / (p[kMemory] * c.bandwidth);
  return whole + std::cbrt(work * work * work + memory * memory * memory);
}

// SGLang's second kernel: keys that fit into the registers of one thread block, or a cluster of 8.
double cluster_top_k(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  constexpr double kRegisters = 16384;
  const Keys k = keys_of(x, layer(c), true);
  if (k.selecting <= 0) return 0;
  const bool registers = std::floor(k.mean) <= kRegisters;
  const double one =
      registers ? p[kStart] * 1e-6 + p[kKey] * 1e-9 * k.mean : p[kRow] * 1e-9 + p[kMore] * 1e-9 * k.mean;
  const double blocks = registers ? k.selecting : 8 * k.selecting;
  return one * std::max(1.0, blocks / (p[kBlocks] * c.sms));
}

// FlashMLA's sparse prefill: a thread block per row and 64 heads, the selected keys always padded to all.
double sparse_mla(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double all = std::max(1.0, waves(x[kBatch] * x[kNew], p[kBlocks] * c.sms, p[kRound]));
  return all * p[kKey] * 1e-9 * layer(c).selected;
}

// All rows that HCA keeps and the window: of one query in parts, of many a thread block each.
double hca(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double rows = x[kBatch] * x[kNew], keys = attended_rows(layer(c), x[kCached] + x[kNew]);
  const double alone = p[kStart] * 1e-6 + p[kMore] * 1e-9 * keys;
  const double all = waves(rows, p[kBlocks] * c.sms, p[kRound]);
  const double requests = x[kNew] > 1 ? p[kRequest] * 1e-9 * x[kBatch] : 0;
  return std::hypot(alone, all * (p[kRow] + p[kKey] * keys) * 1e-9) + requests;
}

double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  constexpr double (*kLaws[])(std::span<const double>, const FormContext&, std::span<const double>) = {
      row_blocks, paged_index, top_k, cluster_top_k, sparse_mla, hca};
  constexpr double kWarm = 20e-3;
  const double t = p[kT0] * 1e-6 + kLaws[kind(c)](x, c, p);
  return t * (1 + p[kThrottle] * t / (t + kWarm));
}

double work(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  constexpr double kIndexDim = 128, kHeads = 64;
  const double rows = x[kBatch] * x[kNew];
  switch (kind(c)) {
    case kRowBlocks:
    case kPagedIndex:
      return 2 * rows * keys_of(x, l, false).mean * l.index_heads * kIndexDim;
    case kSparseMla:
    case kHca:
      return 2 * rows * kHeads * attended_rows(l, x[kCached] + x[kNew]) * l.width;
    default:
      return 2 * rows * keys_of(x, l, false).mean;
  }
}

double traffic(std::span<const double> x, const FormContext& c) {
  const SparseLayer& l = layer(c);
  constexpr double kRowBytes = 656;
  const double rows = x[kBatch] * x[kNew], mean = keys_of(x, l, false).mean;
  switch (kind(c)) {
    case kRowBlocks:
    case kPagedIndex:
      return x[kBatch] * (x[kCached] + x[kNew]) / l.ratio * l.index_bytes + 4 * rows * mean;
    case kSparseMla:
    case kHca:
      return x[kBatch] * attended_rows(l, x[kCached] + x[kNew]) * kRowBytes;
    default:
      return 4 * rows * mean;
  }
}

void coordinates(std::span<const double> x, const FormContext& c, double* out) {
  out[0] = std::log2(x[kBatch] * x[kNew]);
  out[1] = std::log2(std::max(1.0, keys_of(x, layer(c), false).mean));
  out[2] = std::log2(x[kBatch]);
}

}  // namespace

const Form kSparseKernelForm{"sparse_kernel", "H68",  kNumbers, kWords, kParameters, kAxes,
                             context,         covers, seconds,  work,   traffic,     coordinates};

}  // namespace shardline
