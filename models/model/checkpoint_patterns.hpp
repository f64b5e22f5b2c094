// Internal to checkpoint.cpp: names of matrices that files of quantisation list, and what they match.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/model/expression.hpp"
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
  explicit Pattern(const Reader& at, Listed listed = Listed::names) : Pattern(at, at.text(), listed) {}
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
  bool matches(const std::string& name) const;

 private:
  enum class Kind : std::uint8_t { plain, glob, expression, part };
  Kind kind_ = Kind::plain;
  std::string text_;
  std::size_t literal_ = 0;  // so many characters of a glob come before the first that is none of a name
  std::optional<Expression> expression_;
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

// Patterns in their order, of which a file may have tens of thousands: those that stand for themselves are
// looked up by the runs of a name's parts, the others are tried one by one.
class Patterns {
 public:
  Patterns() = default;
  Patterns(Patterns&&) = default;
  Patterns& operator=(Patterns&&) = default;
  Patterns(const Patterns&) = delete;  // places_ looks into plain_
  Patterns& operator=(const Patterns&) = delete;
  ~Patterns() = default;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  void reserve(std::size_t more) { places_.reserve(places_.size() + more); }

  void add(Pattern pattern) {
    if (pattern.plain()) {
      plain_.emplace_back(size_, std::move(pattern).text());
      places_.emplace(plain_.back().second, size_);
    } else {
      others_.emplace_back(size_, std::move(pattern));
    }
    ++size_;
  }

  /// Place of the first one that matches one of the names; nothing if none does.
  std::optional<std::size_t> first(const std::vector<std::string>& names) const;

  /// Those that match none of `names`, in their order, each once; parts of what the patterns hold. Numbers of
  /// experts do not count: one of a layer stands for all.
  std::vector<std::string_view> without_match(const std::vector<std::vector<std::string>>& names) const;

 private:
  std::size_t size_ = 0;
  std::deque<std::pair<std::size_t, std::string>> plain_;     // a deque leaves texts where they are
  std::unordered_map<std::string_view, std::size_t> places_;  // the first of each text
  std::vector<std::pair<std::size_t, Pattern>> others_;
};

}  // namespace shardline::checkpoint
