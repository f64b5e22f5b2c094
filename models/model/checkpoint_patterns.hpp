// Internal to checkpoint.cpp: names of matrices that files of quantisation list, and what they match.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/model/checkpoint_names.hpp"
#include "models/model/expression.hpp"
#include "models/model/json_name.hpp"
#include "sim/base/hashed_places.hpp"
#include "sim/base/reader.hpp"

namespace shardline::checkpoint {

/// Length of the "[...]" of Python's fnmatch that `pattern` begins with, and whether `c` is in it: "[!...]"
/// negates, a "]" that comes first is one of the set. 0: no such set, '[' stands for itself.
std::size_t character_set(std::string_view pattern, char c, bool& in);

/// As Python's fnmatch, by which vLLM compares ModelOpt's lists (vllm-project/vllm modelopt.py,
/// is_layer_excluded, 68afd7889723); TensorRT-LLM takes them as such patterns, too (callers and tests of
/// QuantConfig.is_module_excluded_from_quantization). '*' is any text, '?' any character, "[...]" one of a
/// set.
bool glob(std::string_view pattern, std::string_view text);

/// How the tool that wrote a list has it read.
enum class Listed : std::uint8_t {
  names,  // as Pattern says
  parts   // any part of a name, as vLLM (is_layer_skipped with skip_with_substr) and SGLang read AWQ's
};

// A name or a run of its parts ("lm_head", "model.layers.3.mlp", "mlp.down_proj"), a glob, or "re:" and a
// regular expression that matches from the start. A module stands for all that it contains.
class Pattern {
 public:
  explicit Pattern(const Reader& at, Listed listed = Listed::names) : Pattern(at, json_name(at), listed) {}
  Pattern(const Reader& at, std::string text, Listed listed = Listed::names);

  /// Whether it stands for itself.
  bool plain() const { return kind_ == Kind::plain; }
  const std::string& text() const& { return text_; }
  std::string&& text() && { return std::move(text_); }
  /// Why an expression is not read: it is Python's alone ("(?<!" looks behind), or beyond what is matched in
  /// bounded time. Empty: it is.
  const std::string& unread() const { return unread_; }
  /// Of an expression's program; 0 for any other.
  std::size_t steps() const { return expression_ ? expression_->steps() : 0; }
  /// A run of parts that every name which it matches has: of a glob the whole parts before the first of its
  /// signs or behind the last, of a part of names those between its first and last dot. Empty: none is known.
  std::string_view run() const;
  bool matches(const std::string& name) const;

 private:
  enum class Kind : std::uint8_t { plain, glob, expression, part };
  Kind kind_ = Kind::plain;
  std::string text_;
  std::size_t literal_ = 0;  // so many characters of a glob come before the first that is none of a name
  std::unique_ptr<const Expression> expression_;
  std::string unread_;
};

/// `look` at every run of a name's parts: "mlp.gate_proj" of "model.layers.3.mlp.gate_proj".
template <class Look>
void each_run(std::string_view name, Look look) {
  for (std::size_t begin = 0; begin < name.size();) {
    for (std::size_t end = begin; end < name.size(); ++end) {
      end = std::min(name.find('.', end), name.size());
      look(name.substr(begin, end - begin));
    }
    begin = std::min(name.find('.', begin), name.size() - 1) + 1;
  }
}

/// Different texts in the order in which they came, and which of them are runs of a name's parts: in time
/// that grows with the name alone, whatever is kept.
class NameTable {
 public:
  std::size_t size() const { return ends_.size(); }
  std::string_view text(std::size_t place) const {
    const std::size_t begin = place == 0 ? 0 : ends_[place - 1];
    return std::string_view(texts_).substr(begin, ends_[place] - begin);
  }
  /// Room for as many texts.
  void reserve(std::size_t count);
  /// The text's place; it is a new one where that is the size before.
  std::size_t add(std::string_view text);

  /// `look` at the place of every text that is a run of the name's parts. Runs are looked up where some text
  /// begins with their first part and has as many.
  template <class Look>
  void each_in(std::string_view name, Look look) const {
    for (std::size_t begin = 0; begin < name.size() && size() > 0;) {
      std::size_t end = std::min(name.find('.', begin), name.size());
      const std::size_t next = end + 1;
      const auto counts = counts_.find(name.substr(begin, end - begin));
      std::uint64_t left = counts == counts_.end() ? 0 : counts->second;
      for (std::size_t parts = 1; left != 0; ++parts) {
        if ((left & 1) != 0) {
          const std::string_view run = name.substr(begin, end - begin);
          if (const auto place = find(run)) look(*place);
        }
        if (parts < kMostCounted) left >>= 1;
        if (end == name.size()) break;
        end = std::min(name.find('.', end + 1), name.size());
      }
      begin = next;
    }
  }

 private:
  static constexpr std::size_t kMostCounted = 64;  // the last bit is of texts with so many parts and more
  struct OfText {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::optional<std::size_t> find(std::string_view text) const {
    return places_.find(HashedPlaces::hash(text),
                        [&](std::size_t place) { return this->text(place) == text; });
  }

  std::string texts_;                // one behind the other
  std::vector<std::uint32_t> ends_;  // of each in texts_, whose files have 16 MiB at most
  HashedPlaces places_;
  // By first parts: bit n - 1 where a text that begins with it has n parts.
  std::unordered_map<std::string, std::uint64_t, OfText, std::equal_to<>> counts_;
};

// Patterns in their order, of which a file may have tens of thousands: those that stand for themselves are
// looked up by the runs of a name's parts, others by a run that a name has to have (Pattern::run), and tried
// where it has.
class Patterns {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// The most patterns that have to be tried on a name for one run in it, or for none; expressions, which
  /// have a limit of their own, apart.
  std::size_t most_alike() const { return most_alike_; }

  void reserve(std::size_t more) { plain_.reserve(plain_.size() + more); }
  void add(Pattern pattern);

  /// Place of the first one that matches one of the names; nothing if none does.
  std::optional<std::size_t> first(const std::vector<std::string>& names) const;

  /// Those that match no name of `matrices`, in their order, each once; parts of what the patterns hold.
  /// Numbers of experts do not count: one of a layer stands for all.
  std::vector<std::string_view> without_match(std::span<const Matrix> matrices) const;

 private:
  /// `look` at the place in others_ of each that `name` may match, until it says false.
  template <class Look>
  void each_candidate(std::string_view name, Look look) const;
  std::vector<bool> matched_names(std::span<const Matrix> matrices) const;
  std::vector<bool> matched_others(std::span<const Matrix> matrices) const;

  std::size_t size_ = 0;
  NameTable plain_;
  std::vector<std::size_t> orders_;  // of each text of plain_ the first
  std::vector<std::pair<std::size_t, Pattern>> others_;
  NameTable runs_;
  std::vector<std::vector<std::uint32_t>> by_run_;  // of each text of runs_, places in others_
  std::vector<std::uint32_t> by_none_;              // those that no run is known of
  std::size_t without_run_ = 0, most_alike_ = 0;
};

}  // namespace shardline::checkpoint
