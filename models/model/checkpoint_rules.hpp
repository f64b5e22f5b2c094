// Internal to checkpoint.cpp: what a file of quantisation says of each matrix, whatever tool wrote it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/model/checkpoint_patterns.hpp"
#include "models/model/checkpoint_types.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::checkpoint {

/// Exclusions go before lists of types: vLLM 68afd7889723 asks should_ignore_layer (compressed_tensors.py,
/// get_scheme_dict) and is_layer_excluded (modelopt.py, ModelOptMixedPrecisionConfig.get_quant_method) first.
struct TypeRules {
  std::optional<MatrixType> all;  // of linear layers that no rule names
  Patterns excluded;              // stay as they are
  Patterns only;                  // unless empty: what none of these matches stays as it is
  Patterns listed;                // have a type of their own, in
  std::vector<MatrixType> listed_types;
  MatrixType unquantised;    // what stays as it is
  bool head = false;         // the LM head is a linear layer like others
  bool only_routed = false;  // no linear layer at all, but routed experts
  bool zero_points = false;  // of integers
  std::optional<Dtype> kv;
  std::string why;                 // it is not read
  std::vector<std::string> notes;  // what was read leaves out

  MatrixType of(const std::vector<std::string>& names) const {
    if (excluded.first(names) || (!only.empty() && !only.first(names))) return unquantised;
    if (const auto at = listed.first(names)) return listed_types[*at];
    return all.value_or(unquantised);
  }

  void list(Pattern pattern, MatrixType type) {
    if (!reads(pattern)) return;
    add(std::move(pattern), listed);
    listed_types.push_back(type);
  }
  void exclude(Pattern pattern) {
    if (reads(pattern)) add(std::move(pattern), excluded);
  }
  void keep(Pattern pattern) { add(std::move(pattern), only); }

  /// The type that was found; without one `why` says so.
  std::optional<MatrixType> take(const TypeFound& found);

 private:
  // So many steps of all expressions take a few megabytes, and some minutes for a model of a thousand layers;
  // a file that gives every matrix of one an expression of its own has some tens of thousands.
  static constexpr std::size_t kMostStepsOfAll = 200'000;
  // Patterns that are tried on every name for want of a whole part that would tell them apart: so many take a
  // second for a model of a hundred layers, and files have some tens.
  static constexpr std::size_t kMostAlike = 2000;

  void add(Pattern pattern, Patterns& to) {
    if (to.most_alike() < kMostAlike || pattern.plain() || pattern.steps() > 0)
      return to.add(std::move(pattern));
    if (why.empty())
      why = fmt::format("more than {} patterns that no whole part of a name tells apart", kMostAlike);
  }

  // False: the pattern is one too many, and is not kept.
  bool reads(const Pattern& pattern) {
    check_();
    if (why.empty()) why = pattern.unread();
    steps_ += pattern.steps();
    if (steps_ <= kMostStepsOfAll) return true;
    if (why.empty()) why = fmt::format("expressions of more than {} steps", kMostStepsOfAll);
    return false;
  }

  std::size_t steps_ = 0;
  CancelCheck check_;
};

/// The tool that wrote the description, as in Checkpoint::method. ModelOpt's own file has its algorithm and
/// no method. Empty: it does not say.
std::string method_of(const Reader& quantisation);

/// Of `quantization_config` or what is under `quantization` of a hf_quant_config.json. False: it is not read,
/// and TypeRules::why says what.
bool read_rules(const Reader& quantisation, TypeRules& rules);

}  // namespace shardline::checkpoint
