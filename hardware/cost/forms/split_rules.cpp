#include "hardware/cost/forms/split_rules.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "hardware/machine/system.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// trtllm-gen: FlashInfer fb28d7242, include/flashinfer/trtllm/fmha/fmhaKernels.cuh
// (computeCtaAndClusterConfig): no part below two steps, one wave of thread blocks. TensorRT-LLM's own copy
// (fmhaKernels.h at 52cd475a) has one step instead; with 256 keys rows of up to 32K tokens predict 128K three
// times worse than with 512. That a step is 256 keys is what useSwapsMmaAbMlaGenKernel of both assumes.
constexpr double kTrtllmKeys = 2 * 256;

// XQA: TensorRT-LLM 12453212b, decoderXQAImplCommon.h (computeMultiBlockCount) and decoderXQAConstants.h:
// p = floor(n / 128), at most sqrt(8 p) parts, eight waves, 6000 parts in all. Older releases have 512 keys
// (kMinHistoryTokensPerBlock), half as many parts. Rows of the current one fit with 512 as well as with 128
// and extrapolate better for 2 to 4 sequences (+2 against +12 %), as if two blocks shared a multiprocessor.
constexpr double kXqaKeys = 512, kXqaGrowth = 8, kXqaWaves = 8, kXqaMost = 6000;

// FlashAttention-3: Dao-AILab/flash-attention 13d0fd9cc, hopper/heuristics.h (num_splits_heuristic): one part
// from 0.8 of the multiprocessors on and for at most 4 blocks; else the smallest number of parts that fills
// waves to 0.85 of the best. Blocks of 128 keys (heads of 128), 64 for MLA (hopper/tile_size.h). At most 128
// parts; in vLLM's CUDA graphs 32 (AttentionConfig.flash_attn_max_num_splits_for_cuda_graph, vLLM 0.24.0).
// FlashAttention-2 (csrc/flash_attn/flash_api.cpp) has the same search over twice the multiprocessors,
// without the 4 blocks, and only where query heads of a group were swapped into rows ("only apply split-k for
// decoding"): one query head per KV head is never split. Its other condition, no two numbers of parts with
// parts of the same length, is left out here.
struct Search {
  double block, waves;
  std::size_t fewest, most;
};
constexpr double kFull = 0.8, kEfficient = 0.85;
constexpr Search kSearch2{128, 2, 0, 128}, kSearch3{128, 1, 4, 128}, kSearch3Graph{128, 1, 4, 32},
    kLatent3{64, 1, 4, 128}, kLatent3Graph{64, 1, 4, 32};

// FlashMLA: deepseek-ai/FlashMLA 9241ae3e, csrc/api/dense_decode.h and get_decoding_sched_meta.cu: all blocks
// of 64 keys, with 5 more per sequence, in equal shares to all thread blocks; the 5 are left out here.
constexpr double kFlashMlaKeys = 64;

// FlashInfer fb28d7242, include/flashinfer/attention/scheduler.cuh: two thread blocks per multiprocessor
// (PrefillPlan, which decode of groups goes through) and chunks of 128 keys or more. Rows fit better with 256
// (p90 15.9 against 17.3 %). MLAPlan: equal shares to all, in steps of 256 keys.
constexpr double kFlashInferKeys = 256, kFlashInferBlocks = 2;

// FlashAttention-4 on Hopper (heads wider than 256): vLLM gives it the 32 parts of its graphs as the number
// of parts, not as the most (vllm-project/vllm 697c34b97, v1/attention/backends/flash_attn.py:
// max_num_splits, for at most max_cudagraph_capture_size tokens, 512 by default), and all 32 thread blocks of
// a row are started (vllm-project/flash-attention 617264c1c, flash_attn/cute/tile_scheduler.py,
// SingleTileVarlenScheduler: grid y is num_splits). Blocks of 64 keys (interface.py, _tile_size_fwd_sm90).
// Above 512 tokens its own search gives one part to more rows than there are multiprocessors
// (num_splits_heuristic: num_SMs // total_mblocks).
constexpr double kFlash4Keys = 64, kFlash4Parts = 32, kGraphRequests = 512;

enum class Generation : std::uint8_t { ampere, hopper, blackwell };
Generation generation_of(const System& s) {
  const auto has = [&](Dtype t) { return s.device.peak[static_cast<std::size_t>(t)].value > 0; };
  return has(Dtype::fp4) ? Generation::blackwell : has(Dtype::fp8) ? Generation::hopper : Generation::ampere;
}

struct KernelRules {
  const char* family;
  const char* kernel;
  Generation device;
  SplitRules rules;
  const char* scope = "";     // of MLA; empty: any
  const char* dtype_kv = "";  // empty: any
};
using enum SplitRule;
constexpr SplitRules both(SplitRule r) { return {r, r}; }
constexpr SplitRules waiting(SplitRule r) { return {r, r, true}; }

// Every kernel of every decode table that calibrate reads. The first that fits counts. `saturating` are those
// whose rule is not known, or whose long rows the rule predicts worse than a chain that saturates; README.md
// [H47] has the numbers. `waiting`: SGLang's Triton has at most 8 parts (triton_attention_num_kv_splits;
// sgl-project/sglang 9a0bd24be, kernels/ops/attention/metadata.py, get_num_kv_splits_triton),
// FlashAttention-4
// 32. vLLM's Triton has 16 (v1/attention/backends/triton_attn.py, NUM_PAR_SOFTMAX_SEGMENTS), but rows left
// out are predicted no better with it.
constexpr KernelRules kKernels[] = {
    {"attention_decode", "torch_flow", Generation::blackwell, both(trtllm_gen)},
    {"attention_decode", "torch_flow_flashinfer", Generation::blackwell, both(flashinfer)},
    {"attention_decode", "trtllm_mha", Generation::blackwell, both(trtllm_gen)},
    {"attention_decode", "flashinfer_trtllmdecode", Generation::blackwell, both(trtllm_gen)},
    {"attention_decode", "flashinfer", Generation::blackwell, both(flashinfer)},
    {"attention_decode", "triton", Generation::blackwell, waiting(saturating)},
    {"attention_decode", "triton_attn", Generation::blackwell, both(saturating)},
    {"attention_decode", "torch_flow", Generation::hopper, {xqa, saturating}, "", "fp8"},
    {"attention_decode", "torch_flow", Generation::hopper, both(saturating), "", "bf16"},
    {"attention_decode", "fa3", Generation::hopper, both(flash_attention_3)},
    {"attention_decode", "triton", Generation::hopper, waiting(saturating)},
    {"attention_decode", "flash_attn_fa3", Generation::hopper, both(flash_attention_3_graph)},
    {"attention_decode", "flash_attn_fa4", Generation::hopper, waiting(flash_attention_4_graph)},
    {"attention_decode", "vllm_flash_attn", Generation::ampere, {flash_attention_2, whole}},
    {"attention_decode", "flash_attention", Generation::ampere, both(saturating)},
    {"mla_decode", "trtllm_mla", Generation::blackwell, both(saturating), "module_wideep"},
    {"mla_decode", "", Generation::blackwell, both(trtllm_gen)},
    {"mla_decode", "trtllm_mla", Generation::blackwell, both(trtllm_gen)},
    {"mla_decode", "FLASHINFER_MLA", Generation::blackwell, both(trtllm_gen)},
    {"mla_decode", "", Generation::hopper, both(flash_mla)},
    {"mla_decode", "flash_attention", Generation::hopper, both(flash_attention_3_latent)},
    {"mla_decode", "fa3", Generation::hopper, both(saturating), "module_wideep"},
    {"mla_decode", "flashinfer", Generation::hopper, both(flashinfer_latent), "module_wideep"},
    {"mla_decode", "FLASH_ATTN_MLA", Generation::hopper, both(flash_attention_3_latent_graph)},
    {"mla_decode", "FLASHMLA", Generation::hopper, both(flash_mla)},
    {"mla_decode", "", Generation::ampere, both(whole)},
};

// Kernels that attend to several new tokens of a sequence. FlashAttention-3, called with lengths that vary
// (Dao-AILab/flash-attention 0251105a2, hopper/flash_api.cpp and flash_prepare_scheduler.cu): the search
// above over one sequence's tiles is the most parts, and each gets at least its share of all blocks, 1.1
// times as many as multiprocessors would leave it. vLLM (425c4eafb, v1/attention/backends/flash_attn.py) sets
// the most to 32 instead for any step of no more tokens than its graphs have, also one that runs without: 512
// by default. SGLang leaves it to the search (8905cbd42, flashattention_backend.py: num_splits 0).
// FlashInfer's FA2 kernels cut tiles as its decode does (PrefillSplitQOKVIndptr of the file above). Whole:
// TensorRT-LLM's FMHA (f59aed070, fmhaDispatcher.cpp: mMultiCtasKvMode false with trtllm-gen; 00dbe288d,
// fmhaRunner.cpp: no number of parts), trtllm-gen in FlashInfer (trtllm_fmha_kernel_launcher.cu: the same),
// FlashAttention-2 of paged caches (vllm-project/flash-attention 617264c1c, flash_api.cpp: "num_splits > 1 is
// not supported"), FlashAttention-4 on Hopper (flash_attn/cute/interface.py: "SplitKV not supported on SM
// 9.0"), Triton's kernels of vLLM (triton_unified_attention.py: max_seqlen_q > 1 takes the 2D kernel) and
// SGLang (extend_attention.py has no parts).
struct TileRules {
  const char* kernel;
  Generation device;
  TileSplit split;
};
constexpr TileSplit kWholeTiles{};
constexpr TileRules kTileRules[] = {
    {"torch_flow", Generation::blackwell, kWholeTiles},
    {"torch_flow_flashinfer", Generation::blackwell, {flashinfer, flashinfer}},
    {"trtllm_mha", Generation::blackwell, kWholeTiles},
    {"flashinfer_trtllmprefill", Generation::blackwell, kWholeTiles},
    {"flashinfer_trtllmdecode", Generation::blackwell, kWholeTiles},
    {"flashinfer", Generation::blackwell, kWholeTiles},
    {"triton", Generation::blackwell, kWholeTiles},
    {"triton_attn", Generation::blackwell, kWholeTiles},
    {"torch_flow", Generation::hopper, kWholeTiles},
    {"fa3", Generation::hopper, {flash_attention_3, flash_attention_3}},
    {"flash_attn_fa3", Generation::hopper, {flash_attention_3_graph, flash_attention_3}},
    {"flash_attn_fa4", Generation::hopper, kWholeTiles},
    {"triton", Generation::hopper, kWholeTiles},
    {"vllm_flash_attn", Generation::ampere, kWholeTiles},
    {"flash_attention", Generation::ampere, {flash_attention_3, flash_attention_3}},
};
constexpr double kSlack = 1.1;

double between(double keys, double of_part, double most) {
  return std::min(std::max(1.0, keys / of_part), std::max(1.0, most));
}

const Search& search_of(SplitRule rule) {
  switch (rule) {
    case flash_attention_2:
      return kSearch2;
    case flash_attention_3:
      return kSearch3;
    case flash_attention_3_graph:
      return kSearch3Graph;
    case flash_attention_3_latent:
      return kLatent3;
    case flash_attention_3_latent_graph:
      return kLatent3Graph;
    case saturating:
    case whole:
    case trtllm_gen:
    case xqa:
    case flash_attention_4_graph:
    case flash_mla:
    case flashinfer:
    case flashinfer_latent:
      break;
  }
  SL_CHECK(false, "only FlashAttention searches for a number of parts");
}

bool searches(SplitRule r) {
  return r == flash_attention_2 || r == flash_attention_3 || r == flash_attention_3_graph ||
         r == flash_attention_3_latent || r == flash_attention_3_latent_graph;
}

std::size_t smallest_efficient(double rows, double slots, std::size_t most) {
  const auto efficiency = [&](std::size_t parts) {
    const double waves = rows * static_cast<double>(parts) / slots;
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (std::size_t s = 1; s <= most; ++s) best = std::max(best, efficiency(s));
  std::size_t s = 1;
  while (efficiency(s) < kEfficient * best) ++s;
  return s;
}

}  // namespace

std::optional<SplitRules> split_rules(std::string_view family, std::span<const std::string> words,
                                      const System& system) {
  const bool latent = family == "mla_decode";
  const std::string_view scope = latent ? std::string_view(words[0]) : "", dtype_kv = words[latent ? 2 : 1];
  const Generation device = generation_of(system);
  for (const KernelRules& k : kKernels) {
    const auto fits = [](std::string_view own, std::string_view asked) {
      return own.empty() || own == asked;
    };
    if (family == k.family && words.back() == k.kernel && device == k.device && fits(k.scope, scope) &&
        fits(k.dtype_kv, dtype_kv))
      return k.rules;
  }
  return std::nullopt;
}

std::optional<TileSplit> tile_split(std::span<const std::string> words, const System& system) {
  const Generation device = generation_of(system);
  for (const TileRules& k : kTileRules) {
    if (words.back() == k.kernel && device == k.device) return k.split;
  }
  return std::nullopt;
}

double started_parts(SplitRule rule, double batch) {
  return rule == flash_attention_4_graph && batch <= kGraphRequests ? kFlash4Parts : 1;
}

double tile_parts(SplitRule rule, double sms, double keys, double tiles, double own) {
  double most = 1;
  switch (rule) {
    case whole:
      return 1;
    case flashinfer:
      return key_split(rule, sms).parts(keys, tiles, 1);
    case flash_attention_3:
      most = key_split(rule, sms).parts(keys, own, 1);
      break;
    case flash_attention_3_graph:
      most = static_cast<double>(search_of(rule).most);
      break;
    default:
      SL_CHECK(false, "no prefill kernel cuts its tiles by this rule");
  }
  const double blocks = std::ceil(keys / search_of(rule).block);
  const double share = std::ceil(kSlack * tiles * blocks / sms);  // blocks of a part
  return std::max(1.0, std::min(most, blocks / share));
}

KeySplit::KeySplit(SplitRule rule, double sms) : rule_(rule), sms_(sms) {
  SL_CHECK(rule != saturating && sms >= 1, "a rule counts parts on a device with multiprocessors");
  if (!searches(rule)) return;
  const Search& s = search_of(rule);
  const double slots = s.waves * sms;
  most_ = std::min(s.most, static_cast<std::size_t>(slots));
  rows_ = static_cast<std::size_t>(std::ceil(kFull * slots)) - 1;
  taken_.resize(rows_ * most_);
  longest_.resize(rows_ * most_);
  for (std::size_t r = 0; r < rows_; ++r) {
    double longest = 0;
    for (std::size_t blocks = 1; blocks <= most_; ++blocks) {
      const std::size_t parts =
          blocks <= s.fewest ? 1 : smallest_efficient(static_cast<double>(r + 1), slots, blocks);
      longest = std::max(longest, static_cast<double>(blocks) / static_cast<double>(parts));
      taken_[r * most_ + blocks - 1] = static_cast<float>(parts);
      longest_[r * most_ + blocks - 1] = static_cast<float>(longest);
    }
  }
}

double KeySplit::filling(double keys, double rows) const {
  const auto row = static_cast<std::size_t>(std::ceil(rows));
  if (row > rows_ || row == 0) return 1;
  const double blocks = keys / search_of(rule_).block;
  const auto last = static_cast<double>(most_);
  const auto begun = static_cast<std::size_t>(std::min(last, std::ceil(blocks)));
  const auto done = static_cast<std::size_t>(std::min(last, std::floor(blocks)));
  if (done == 0) return 1;
  const std::size_t line = (row - 1) * most_;
  const double part = std::max(static_cast<double>(longest_[line + done - 1]),
                               blocks / static_cast<double>(taken_[line + begun - 1]));
  return std::max(1.0, blocks / part);
}

double KeySplit::parts(double keys, double rows, double batch) const {
  switch (rule_) {
    case whole:
      return 1;
    case trtllm_gen:
      return between(keys, kTrtllmKeys, std::floor(sms_ / rows));
    case xqa: {
      const double pieces = keys / kXqaKeys;
      const double alone = std::max(1.0, std::min(pieces, std::sqrt(kXqaGrowth * pieces)));
      return std::min(alone, std::max(1.0, std::min(std::floor(kXqaWaves * sms_ / rows),
                                                    std::floor(kXqaMost / std::max(1.0, batch)))));
    }
    case flash_attention_4_graph:
      return batch > kGraphRequests ? 1 : between(keys, kFlash4Keys, kFlash4Parts);
    case flash_mla:
      return between(keys, kFlashMlaKeys, sms_ / rows);
    case flashinfer:
      return between(keys, kFlashInferKeys, std::floor(kFlashInferBlocks * sms_ / rows));
    case flashinfer_latent:
      return between(keys, kFlashInferKeys, sms_ / rows);
    case flash_attention_2:
    case flash_attention_3:
    case flash_attention_3_graph:
    case flash_attention_3_latent:
    case flash_attention_3_latent_graph:
      return filling(keys, rows);
    case saturating:
      break;
  }
  SL_CHECK(false, "a chain that saturates has no number of parts");
}

// Prices ask for it each time: what was made once is found by its place in an array, without a lock.
const KeySplit& key_split(SplitRule rule, double sms) {
  constexpr std::size_t kMostSms = 512;
  static std::array<std::atomic<const KeySplit*>, kSplitRules * kMostSms> made;
  static std::mutex mutex;
  static std::map<std::pair<SplitRule, double>, std::unique_ptr<const KeySplit>> all;
  const auto whole_sms = static_cast<std::size_t>(std::max(sms, 0.0));
  const bool placed = whole_sms < kMostSms && static_cast<double>(whole_sms) == sms;
  auto& place = made[placed ? static_cast<std::size_t>(rule) * kMostSms + whole_sms : 0];
  if (const KeySplit* known = placed ? place.load(std::memory_order_acquire) : nullptr) return *known;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const KeySplit>& one = all[{rule, sms}];
  if (!one) one = std::make_unique<const KeySplit>(rule, sms);
  if (placed) place.store(one.get(), std::memory_order_release);
  return *one;
}

}  // namespace shardline
