#include "calibrate/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

/// A time of so many times the shortest is a kernel's more than the host's, which launches beside it.
constexpr double kAboveHost = 3;
constexpr std::string_view kDeepEp = "deepepmoe";  // SGLang's experts behind DeepEP
constexpr std::string_view kRenamed = "moe_";      // before torch_flow, in newer tables of TensorRT-LLM
/// A product of one row of so many times that of 2 to 16 is not of their kernel alone.
constexpr double kApart = 1.5;
constexpr double kFewRows = 16;
/// Rows of one expert that DeepGEMM's contiguous layout pads to (SGLang's DeepEP dispatcher does).
constexpr double kExpertBlock = 128;
/// A row of so many times what launches take (launch_times()) ends with the device, not with the host: where
/// nothing but launches counts, rows lie within 1.1 (H100, H200) and 1.2 (GB200) of each other.
constexpr double kAboveLaunches = 1.25;

struct Row {
  const MeasurementTable& table;
  std::size_t at;
  double shortest;  // seconds, of the rows with the same words
  double one_row;   // see one_row_apart()
  double launches;  // seconds, see launch_times()

  std::string_view word(std::string_view column) const { return table.word(column)[at]; }
  double number(std::string_view column) const { return table.number(column)[at]; }
  double seconds() const { return table.median[at].value; }
  bool of(std::string_view engine) const { return table.engines[at] == engine; }
  bool of(std::string_view engine, std::string_view version) const {
    return of(engine) && table.versions[at] == version;
  }
};

struct Rule {
  const char* family;
  const char* reason;
  bool (*applies)(const Row&);
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// One layer of vLLM 0.14.0's MLA collectors costs its host 100 us.
bool launched_by_host(const Row& r) { return r.of("vllm", "0.14.0") && r.word("scope") == "kernel"; }

// vLLM 0.24.0 multiplies 1 to 16 rows by the same kernel on Blackwell (scaled_mm_sm100_fp8_dispatch.cuh:272
// of vllm-project/vllm@ee0da84ab9), and its own quantisation of one row takes 3 us. On GB200 one row takes 13
// to 33 us more than two do, whatever n and k are; on H100 and H200, and with every other kernel, as much as
// two. That is what the ten operations of QuantFP8.forward_native take one by one: outside of a model each
// layer compiles them for itself (custom_op.py:263), and Dynamo makes no dynamic size of a 1. An engine
// compiles the model as a whole.
bool quantised_unfused(const Row& r) {
  return r.number("m") == 1 && r.word("kernel") == "CutlassFP8" && r.one_row > kApart;
}

// DeepSeek-V3's experts by kernels of SGLang 0.5.14 and vLLM 0.24.0, routed evenly. Its router (n_group 8,
// topk_group 4 of its config.json) lets a token choose among four of eight groups of experts; the collector's
// even scores tie in all of them, so that every token takes the same four: half of the experts do all of the
// work. On one rank such rows would read the weights of all at up to 1.65 times the memory's peak (H100; H200
// 1.52, GB200 1.40), and take 0.73 to 0.87 of the time of uneven routing, where no other model of 256 experts
// is below 0.92; of several ranks the first has up to twice its share. TensorRT-LLM's and Ampere's tables are
// routed without groups.
bool grouped_evenly(const Row& r) {
  const std::string_view kernel = r.word("kernel"), dtype = r.word("dtype");
  return r.word("routing") == "balanced" && (dtype == "fp8_block" || dtype == "nvfp4") &&
         !contains(kernel, "torch_flow") && kernel != "deepgemm" && !kernel.starts_with(kDeepEp) &&
         r.number("hidden") == 7168 && r.number("inter") == 2048 && r.number("topk") == 8 &&
         r.number("experts") == 256;
}

// SGLang's experts behind DeepEP's normal dispatch. Experts' rows stand in blocks of 128, each of one expert:
// the dispatcher counts them so. The collector does where it draws them (power law), but deals even ones out
// without: of 64 experts with 16 rows each a kernel sees 8 blocks, and reads 8 experts (H200, 4 ranks: 383
// us, where all 64 would need 587 us at the memory's peak).
bool blocks_of_several(const Row& r) {
  return r.word("kernel") == kDeepEp && r.word("routing") == "balanced" &&
         std::fmod(r.number("tokens") * r.number("topk"), kExpertBlock * r.number("experts")) != 0;
}

// SGLang's blocks of DSA and MSA in decode: 512 requests take what 1024 do, and 3 to 9 times what 256 do,
// whatever the heads (H200: 1.3 ms for 512 and 1024 requests of DeepSeek-V3.2 with 32, 64 and 128 heads, 0.16
// to 0.25 ms for 256). Beyond 256 requests the collector captures no graph. V4's rows grow evenly.
bool beyond_graphs(const Row& r) {
  constexpr double kMostInGraph = 256;
  const std::string_view layer = r.word("layer");
  return r.of("sglang") && r.number("batch") > kMostInGraph &&
         (layer == "indexer" || layer == "skip_indexer" || layer == "msa");
}

// MSA by TensorRT-LLM on Hopper has no sparse kernel: 10 to 50 times as long at long prompts.
bool dense_fallback(const Row& r) {
  return r.of("trtllm") && r.word("layer") == "msa" && r.word("kernel") == "default";
}

constexpr Rule kLeftOut[] = {
    {"sparse_decode", "SGLang's blocks beyond 256 requests, launched eagerly: host time", beyond_graphs},
    {"sparse_decode", "TensorRT-LLM's dense fallback of MSA", dense_fallback},
    {"sparse_prefill", "TensorRT-LLM's dense fallback of MSA", dense_fallback},
    {"sparse_prefill", "short prompts through dense attention, launched eagerly: host time",
     [](const Row& r) { return contains(r.word("kernel"), "dense_mha"); }},
    {"linear_attention", "TensorRT-LLM's convolution of the keys' channels alone",
     [](const Row& r) { return r.of("trtllm") && r.word("kernel").starts_with("causal_conv1d"); }},
    {"linear_attention", "vLLM's convolution of KDA's prompts, launched eagerly: 0.8 ms of host time",
     [](const Row& r) { return r.of("vllm") && r.word("kernel") == "causal_conv1d_fn_qkv3"; }},
    {"moe", "even rows in blocks of 128 that hold several experts, of which one is read", blocks_of_several},
    {"moe", "experts behind DeepEP's normal dispatch, as long as their launches take the host",
     [](const Row& r) { return r.word("kernel") == kDeepEp && r.seconds() < kAboveLaunches * r.launches; }},
    {"moe", "experts by the rows of one rank, which the form has no column for",
     [](const Row& r) { return r.number("rank0_tokens") > 0; }},
    {"moe", "even scores under DeepSeek-V3's group-limited routing: half of the experts do all of the work",
     grouped_evenly},
    {"gemm", "one row of vLLM's CutlassFP8 that waits for a quantisation in single operations",
     quantised_unfused},
    {"allreduce", "launched eagerly: host time",
     [](const Row& r) { return r.word("implementation").ends_with("_eager"); }},
    {"nccl", "an all-reduce of int8 on more than four GPUs: switches add no such numbers",
     [](const Row& r) {
       return r.word("op") == "all_reduce" && r.word("dtype") == "int8" && r.number("gpus") > 4;
     }},
    {"mla_prefill", "kernels of vLLM 0.14.0: 100 us of host time", launched_by_host},
    {"mla_decode", "kernels of vLLM 0.14.0: 100 us of host time", launched_by_host},
    {"mla_prefill", "a wide-EP module below three times its shortest row: host time",
     [](const Row& r) {
       return r.word("scope") == "module_wideep" && r.seconds() < kAboveHost * r.shortest;
     }},
    {"mla_prefill", "absorbed kernels of vLLM, which it takes for short prompts",
     [](const Row& r) { return r.of("vllm") && contains(r.word("kernel"), "MLA"); }},
    {"mla_prefill", "a cached prefix, which the form has no term for",
     [](const Row& r) { return r.number("kv_cached") > 0; }},
    {"attention_prefill", "a kernel for decode",
     [](const Row& r) { return r.word("kernel").ends_with("decode"); }},
    {"alltoall", "a congested network of 64 GPUs",
     [](const Row& r) { return r.word("implementation") == "deepep_v050_normal" && r.number("gpus") >= 64; }},
    {"quantize", "SGLang's static path of unfused operations, which its kernels do not run",
     [](const Row& r) { return r.of("sglang"); }},
};

// By row: the shortest time of those with the same engine and words.
std::vector<double> shortest_times(const MeasurementTable& t) {
  std::map<std::vector<std::string>, double> least;
  std::vector<const double*> of;  // by row, within `least`
  CancelCheck check;
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    std::vector<std::string> key{t.engines[row], t.versions[row]};
    for (const auto& column : t.words) {
      if (!column.empty()) key.push_back(column[row]);
    }
    const auto [at, fresh] = least.emplace(std::move(key), t.median[row].value);
    if (!fresh) at->second = std::min(at->second, t.median[row].value);
    of.push_back(&at->second);
  }
  std::vector<double> out;
  for (const double* shortest : of) out.push_back(*shortest);
  return out;
}

double median_of(std::vector<double>& v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// By row of experts: the median of the five shortest times of their kernel on as many ranks, whatever the
// routing. Each number of ranks was measured by a process of its own.
std::vector<double> launch_times(const MeasurementTable& t) {
  constexpr std::size_t kShortest = 5;
  std::vector<double> out(t.size(), 0);
  if (t.family->name != std::string_view("moe")) return out;
  const auto &kernel = t.word("kernel"), &dtype = t.word("dtype");
  const auto& ranks = t.number("ep");
  using Key = std::tuple<std::string, std::string, std::string, double>;
  const auto key = [&](std::size_t row) { return Key(t.engines[row], kernel[row], dtype[row], ranks[row]); };
  std::map<Key, std::vector<double>> times;
  CancelCheck check;
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    times[key(row)].push_back(t.median[row].value);
  }
  std::map<Key, double> typical;
  for (auto& [of, all] : times) {
    std::sort(all.begin(), all.end());
    all.resize(std::min(all.size(), kShortest));
    typical[of] = median_of(all);
  }
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    out[row] = typical.at(key(row));
  }
  return out;
}

// By row of products: the median over n and k of the time of one row over that of 2 to 16, of its type and
// kernel; 0 where no shape has both, and of other families.
std::vector<double> one_row_apart(const MeasurementTable& t) {
  std::vector<double> out(t.size(), 0);
  if (t.family->name != std::string_view("gemm")) return out;
  const auto &m = t.number("m"), &n = t.number("n"), &k = t.number("k");
  const auto &dtype = t.word("dtype"), &kernel = t.word("kernel");
  using Words = std::pair<std::string, std::string>;
  using Shape = std::pair<double, double>;
  struct Times {
    double one = 0;
    std::vector<double> few;
  };
  std::map<Words, std::map<Shape, Times>> times;
  CancelCheck check;
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    if (m[row] > kFewRows) continue;
    Times& at = times[{dtype[row], kernel[row]}][{n[row], k[row]}];
    if (m[row] == 1) at.one = t.median[row].value;
    if (m[row] > 1) at.few.push_back(t.median[row].value);
  }
  std::map<Words, double> apart;
  for (auto& [words, shapes] : times) {
    std::vector<double> ratios;
    for (auto& [shape, at] : shapes) {
      if (at.one > 0 && !at.few.empty()) ratios.push_back(at.one / median_of(at.few));
    }
    if (!ratios.empty()) apart[words] = median_of(ratios);
  }
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    if (const auto found = apart.find({dtype[row], kernel[row]}); found != apart.end())
      out[row] = found->second;
  }
  return out;
}

template <class T>
void keep(std::vector<T>& column, const std::vector<bool>& kept) {
  if (column.empty()) return;  // of the other kind
  std::size_t to = 0;
  for (std::size_t from = 0; from < kept.size(); ++from) {
    if (!kept[from]) continue;
    if (to != from) column[to] = std::move(column[from]);
    ++to;
  }
  column.erase(column.begin() + static_cast<std::ptrdiff_t>(to), column.end());
}

std::vector<std::string>& names_of(MeasurementTable& t, std::string_view column) {
  std::size_t i = 0;
  while (t.family->columns[i].name != column) ++i;
  return t.words[i];
}

// SGLang's rows of FlashAttention-3 for MLA's prompts are of the absorbed form, which it runs where
// context-parallel ranks share a prompt, and not elsewhere (hardware/kernels/sglang.yaml): a scope of its
// own.
void name_absorbed(MeasurementTable& t) {
  std::vector<std::string>& scopes = names_of(t, "scope");
  const std::vector<std::string>& kernels = names_of(t, "kernel");
  for (std::size_t row = 0; row < t.size(); ++row) {
    if (t.engines[row] == "sglang" && scopes[row] == "kernel" && kernels[row] == "flash_attention")
      scopes[row] = "absorbed";
  }
}

// One name for one kernel: of experts behind DeepEP that of decode steps is another than that of prompts, and
// its collector calls uniform what other tables call balanced: every expert has as many rows.
void rename_kernels(MeasurementTable& t) {
  if (t.family->name == std::string_view("linear_attention")) {
    // KDA's tables, of other versions of the engines, call their convolution as GDN's do.
    std::vector<std::string>& kernels = names_of(t, "kernel");
    const bool kda =
        std::any_of(kernels.begin(), kernels.end(), [](const std::string& k) { return contains(k, "kda"); });
    for (std::string& k : kernels) {
      if (kda && k == "causal_conv1d_update") k += "_kda";
    }
  }
  if (t.family->name == std::string_view("mla_prefill")) name_absorbed(t);
  if (t.family->name != std::string_view("moe")) return;
  std::vector<std::string>&kernels = names_of(t, "kernel"), &routings = names_of(t, "routing");
  const std::vector<std::string>& phases = names_of(t, "phase");
  for (std::size_t row = 0; row < t.size(); ++row) {
    if (kernels[row].starts_with("moe_torch_flow")) kernels[row].erase(0, kRenamed.size());
    if (kernels[row] != kDeepEp) continue;
    if (phases[row] == "decode") kernels[row] += "_masked";
    if (routings[row] == "uniform") routings[row] = "balanced";
  }
}

}  // namespace

void leave_out(MeasurementTable& t, const std::string& file) {
  rename_kernels(t);
  std::vector<const Rule*> rules;
  for (const Rule& r : kLeftOut) {
    if (t.family->name == std::string_view(r.family)) rules.push_back(&r);
  }
  if (rules.empty()) return;
  const std::vector<double> shortest = shortest_times(t), one_row = one_row_apart(t),
                            launches = launch_times(t);
  std::vector<bool> kept(t.size(), true);
  std::map<const Rule*, std::size_t> counts;
  CancelCheck check;
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    const auto applied = std::find_if(rules.begin(), rules.end(), [&](const Rule* r) {
      return r->applies({t, row, shortest[row], one_row[row], launches[row]});
    });
    if (applied == rules.end()) continue;
    kept[row] = false;
    ++counts[*applied];
  }
  if (counts.empty()) return;
  for (auto& column : t.numbers) keep(column, kept);
  for (auto& column : t.words) keep(column, kept);
  keep(t.engines, kept);
  keep(t.versions, kept);
  keep(t.median, kept);
  keep(t.low, kept);
  keep(t.high, kept);
  keep(t.samples, kept);
  keep(t.file_rows, kept);
  for (const Rule* r : rules) {
    if (const auto n = counts.find(r); n != counts.end())
      t.notes.push_back(
          fmt::format("{}: {} row{} left out: {}", file, n->second, n->second == 1 ? "" : "s", r->reason));
  }
}

}  // namespace shardline
