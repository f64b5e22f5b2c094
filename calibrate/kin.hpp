// Which kernels are fitted together. calibrate/README.md [F13].
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "calibrate/rows.hpp"

namespace shardline {

// [F13] Kernels that are the same but for what is around it, by family: rows of the second are fitted
// together with those of the first where they are of the same type and routing.
struct Kin {
  std::string_view family, kernel, kin;
};
// vLLM runs FlashInfer's fp8_block experts with the routing inside (mono), or after its own (mod: models
// whose routing the kernel does not know).
inline constexpr Kin kKin[] = {{"moe", "fp8moe_trtllm_trtllmfp8_mod", "fp8moe_trtllm_trtllmfp8_mono"}};

/// Gives the rows of a variant their kin's, and says so. `all`: by family and words, each with words and
/// rows.
template <class AllWork>
void add_kin(AllWork& all, std::vector<std::string>& notes) {
  for (auto& [key, w] : all) {
    for (const Kin& k : kKin) {
      if (key.first != k.family || w.words[0] != k.kernel) continue;
      std::vector<std::string> words = w.words;
      words[0] = k.kin;
      const auto found = all.find({key.first, words});
      if (found == all.end()) continue;
      w.rows.kin_numbers = found->second.rows.numbers;
      w.rows.kin_seconds = found->second.rows.seconds;
      notes.push_back(fmt::format("{} {}: fitted together with {} rows of {}", key.first,
                                  variant_name(w.words), w.rows.kin_seconds.size(), k.kin));
    }
  }
}

}  // namespace shardline
