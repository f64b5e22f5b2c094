// Options: what a plan says beyond its degrees. A strategy lists those that it reads in its row
// (planner/strategies); text, checks, CSV columns and tables of all plans derive from the declarations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/ir/batch.hpp"

namespace shardline {

/// A key of a plan's text that only some strategies read. A number from `least` to `most`, or one of `words`
/// (its value is the word's index), or beside them, where it `lists`, numbers as 3584/2611/2150.
struct Option {
  const char* key;
  const char* help;  // what it sets and in which unit, for a reader of `shardline list options`
  int least = 1, most = 1'000'000;
  int absent = 0;  // what a plan has that does not set it
  std::span<const char* const> words = {};
  bool lists = false;       // at most one option of a strategy
  bool tokens = false;      // a number of tokens
  bool of_batch = false;    // cuts a batch: a plan that differs in it alone shards in the same way
  bool of_mla = false;      // has no meaning without MLA's latents
  bool decodes = true;      // has a meaning in decoding
  bool prefills = true;     // has a meaning in prefill
  bool mixes = true;        // has a meaning where a step has both
  bool for_others = false;  // has a meaning in prefill of a server that hands its prompts over

  constexpr bool means(StepKind kind) const {
    return kind == StepKind::decode ? decodes : kind == StepKind::prefill ? prefills : mixes;
  }
};

/// An option whose value is a T: an int, or an enum whose values are the indices of the words.
template <class T>
struct OptionOf : Option {
  explicit constexpr OptionOf(const Option& o) : Option(o) {}
};

inline constexpr std::size_t kMostOptions = 6;  // of one strategy

/// The options that a plan sets; one that has its `absent` value is not set.
class OptionValues {
 public:
  struct Value {
    const Option* option = nullptr;
    int value = 0;
    bool operator==(const Value&) const = default;
  };

  int of(const Option& option) const {
    for (const Value& v : std::span(set_).first(size_)) {
      if (v.option == &option) return v.value;
    }
    return option.absent;
  }
  /// Unsets what has the absent value.
  void set(const Option& option, int value);
  /// Of an option that lists; empty: not given as a list.
  const std::vector<long long>& list(const Option& option) const;
  /// Its value is then the number of its words. An empty list unsets the option.
  void set_list(const Option& option, std::vector<long long> list);

  /// In the order of the keys, whatever the order of setting was.
  std::span<const Value> all() const { return std::span(set_).first(size_); }
  bool operator==(const OptionValues&) const = default;

 private:
  std::array<Value, kMostOptions> set_{};
  std::size_t size_ = 0;
  std::vector<long long> list_;
};

/// "1 to 1000000", "before or after".
std::string values_text(const Option& option);
/// As in a plan's text: 4, after, 3584/2611/2150.
std::string value_text(const Option& option, const OptionValues& values);
std::string value_text(const Option& option, int value);  // of one that is not listed
/// Reads a value of a plan's text; false: it is none of the option's, and nothing is set.
bool read_value(const Option& option, std::string_view text, OptionValues& values);

/// Tokens of a sequence per context-parallel rank. searched: whoever compares plans looks for the best ones;
/// a schedule takes equal parts.
enum class Parts : signed char { searched = -1, even, listed };

// An option of one strategy stands in its file. These are of several, or of the layers of all.
inline constexpr OptionOf<int> kPrefillChunk({
    .key = "prefill_chunk",
    .help = "tokens of a request that pass the layers at a time; without it all of them",
    .tokens = true,
    .decodes = false,
    .mixes = false,
});

/// Whether layers with experts run two halves of a batch, one's messages beside the other's kernels.
enum class Overlap : signed char { none = -1, two_batch };
inline constexpr const char* kOverlapWords[]{"two_batch"};
inline constexpr OptionOf<Overlap> kOverlap({
    .key = "overlap",
    .help = "two halves of the batch, whose tokens travel to experts while the other half computes",
    .absent = static_cast<int>(Overlap::none),
    .words = kOverlapWords,
    .of_batch = true,
});

/// How the tokens of several attention groups reach experts. kernels: dispatch and combine, kernels made for
/// it, which send a token to the ranks of its experts. gather: every rank gets all tokens by an all-gather
/// and sums partial outputs in a reduce-scatter.
enum class ExpertTokens : signed char { kernels = -1, gather };
inline constexpr const char* kExpertTokensWords[]{"gather"};
inline constexpr OptionOf<ExpertTokens> kExpertTokens({
    .key = "moe_a2a",
    .help = "gather: all-gather and reduce-scatter carry tokens to experts of other groups and back; without "
            "it dispatch and combine do",
    .absent = static_cast<int>(ExpertTokens::kernels),
    .words = kExpertTokensWords,
});

/// [P29] Drafts that a step verifies, of every request that decodes: it then has 1 + drafts new tokens.
/// Prompts pass once, the module included: those beside them, and those of a server that hands its caches
/// over to one that drafts.
inline constexpr OptionOf<int> kDrafts({
    .key = "drafts",
    .help = "tokens that multi-token prediction drafts and a step verifies, of every request",
    .most = 64,
    .prefills = false,
    .for_others = true,
});

}  // namespace shardline
