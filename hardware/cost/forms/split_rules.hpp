// Into how many parts a decode kernel cuts the keys of one sequence: each library's own rule, by the name of
// the kernel. README.md [H47].
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct System;

/// Rules of libraries; split_rules.cpp says where each is from.
enum class SplitRule : std::uint8_t {
  saturating,               // none is known, or none does better: `chunk` of [H23] and [H25]
  whole,                    // one part, however long
  trtllm_gen,               // TensorRT-LLM and FlashInfer on Blackwell
  xqa,                      // TensorRT-LLM on Hopper
  flash_attention_2,        // with few query heads per KV head swapped into rows
  flash_attention_3,        // what fills the device
  flash_attention_3_graph,  // the same inside vLLM's CUDA graphs
  flash_attention_3_latent,
  flash_attention_3_latent_graph,
  flash_attention_4_graph,  // 32 inside vLLM's CUDA graphs, whatever the keys
  flash_mla,
  flashinfer,  // FlashInfer's own decode kernels
  flashinfer_latent,
};
inline constexpr std::size_t kSplitRules = static_cast<std::size_t>(SplitRule::flashinfer_latent) + 1;

/// Of one kernel: where several query heads share a key/value head, and where each has its own, which is
/// another kernel in some libraries. Both are the same for MLA.
struct SplitRules {
  SplitRule groups = SplitRule::saturating, single = SplitRule::saturating;
  /// Whether a thread block waits for each of its tokens, longer for those in memory than for those in L2: so
  /// few parts that one sequence leaves most of the device idle, however long it is.
  bool waits = false;
};

/// Of the kernel that the words of a variant name (in the order of Form::words), on a device as `system` has:
/// with arithmetic in FP4 (Blackwell), in FP8 but not in FP4 (Hopper), or in neither (Ampere). Nothing: no
/// table has such a kernel, which then saturates; calibrate() says so.
std::optional<SplitRules> split_rules(std::string_view family, std::span<const std::string> words,
                                      const System& system);

/// [H48] Of one kernel that attends to several new tokens of a sequence: in a step of so few that an engine
/// has CUDA graphs for it, and of more. `whole`: never cut.
struct TileSplit {
  SplitRule few = SplitRule::whole, many = SplitRule::whole;
};
/// As split_rules(), of family attention_prefill. Nothing: no table has such a kernel, whose tiles are then
/// taken to stay whole; calibrate() says so.
std::optional<TileSplit> tile_split(std::span<const std::string> words, const System& system);
/// Parts of one tile of a kernel that goes through `keys` keys: one of `tiles`, of which `own` are its
/// sequence's. At least 1; keys / parts never falls as blocks of 128 keys are added.
double tile_parts(SplitRule rule, double sms, double keys, double tiles, double own);

/// Thread blocks that are started for each row, with keys or without; 1 where a rule starts as many as find
/// keys.
double started_parts(SplitRule rule, double batch);

/// What merging grows with: 0 of one part. The exponent is set, not fitted: 0.5 and 1 predict long rows
/// worse.
inline double merging(double parts) { return std::sqrt(parts * std::sqrt(parts)) - 1; }

/// A rule on a device. Immutable.
class KeySplit {
 public:
  /// Throws std::logic_error for `saturating`, which counts no parts, and for less than one multiprocessor.
  KeySplit(SplitRule rule, double sms);

  /// Parts of each sequence of `keys` (more than 0), of `rows` thread-block rows (sequences times key/value
  /// heads) in `batch` sequences. At least 1, never more than the rule's whole number. Where that rises with
  /// the keys it is taken in between, so that neither it nor the keys of a part fall as keys are added.
  double parts(double keys, double rows, double batch) const;

 private:
  double filling(double keys, double rows) const;

  SplitRule rule_;
  double sms_;
  // FlashAttention's search: for 1, 2, ... rows and at most 1, 2, ... parts, what it takes; and the blocks of
  // the longest part of a sequence of no more blocks than that.
  std::size_t most_ = 0, rows_ = 0;
  std::vector<float> taken_, longest_;
};

/// The one of its kind, which lives as long as the program. Safe to call from several threads. Throws as
/// KeySplit does.
const KeySplit& key_split(SplitRule rule, double sms);

}  // namespace shardline
