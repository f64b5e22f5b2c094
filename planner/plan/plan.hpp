// A plan: one way to shard one step. Its canonical text ("helix:kvp=8,tpa=8,tpf=64,batch=4") parses
// back.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "planner/plan/options.hpp"
#include "sim/base/error.hpp"
#include "sim/base/index.hpp"

namespace shardline {

/// Row of the table of strategies (planner/strategies/table.cpp).
using StrategyId = Index<struct StrategyTag>;

/// One way to share a step out over GPUs: degrees, and what its strategy reads beside them.
struct Plan {
  StrategyId strategy;
  int pp = 1;   // pipeline stages
  int dp = 1;   // attention data-parallel groups
  int kvp = 1;  // KV (sequence) shards
  int cp = 1;   // context-parallel ranks: each holds part of the tokens, and all weights of its TP rank
  int tpa = 1;  // tensor parallelism of attention
  int ep = 1;   // expert-parallel groups
  int tpf = 1;  // tensor parallelism inside a dense FFN or an expert
  int dense_tp =
      0;  // ranks that share a dense FFN; 0: of an attention group (its TP ranks if they hold copies)
  int in_flight = 1;  // microbatches circulating through the stages
  int batch = 1;      // requests per attention group and microbatch
  OptionValues options;

  template <class T>
  T operator[](const OptionOf<T>& option) const {
    return static_cast<T>(options.of(option));
  }
  template <class T>
  void set(const OptionOf<T>& option, std::type_identity_t<T> value) {
    options.set(option, static_cast<int>(value));
  }

  int ranks_per_stage() const { return dp * kvp * cp * tpa; }
  int group() const { return kvp * cp * tpa; }  // ranks that serve one request's attention
  int gpus() const { return pp * ranks_per_stage(); }
  long long users() const { return static_cast<long long>(in_flight) * dp * batch; }

  bool operator==(const Plan&) const = default;
};

/// Of any degree, and of the GPUs of a plan, at most.
inline constexpr int kMostDegree = 1'000'000;

/// The degrees, and the microbatches in flight; in the order of a plan's text.
enum class Degree : std::uint8_t { pp, dp, kvp, cp, tpa, ep, tpf, dense_tp, in_flight };
struct DegreeField {
  const char* key;
  int Plan::*member;
  const char* help;
};
inline constexpr std::array<DegreeField, 9> kDegrees{{
    {"pp", &Plan::pp, "pipeline stages"},
    {"dp", &Plan::dp, "attention data-parallel groups"},
    {"kvp", &Plan::kvp, "shards of the KV cache by sequence"},
    {"cp", &Plan::cp, "context-parallel ranks"},
    {"tpa", &Plan::tpa, "tensor parallelism of attention"},
    {"ep", &Plan::ep, "expert-parallel groups"},
    {"tpf", &Plan::tpf, "tensor parallelism inside a dense FFN or an expert"},
    {"dense_tp", &Plan::dense_tp, "ranks that share a dense FFN, beside experts"},
    {"in_flight", &Plan::in_flight, "microbatches that circulate through the stages"},
}};

/// A set of degrees.
class Degrees {
 public:
  constexpr Degrees(std::initializer_list<Degree> list) {
    for (const Degree d : list) bits_ |= 1u << static_cast<unsigned>(d);
  }
  constexpr bool has(Degree d) const { return (bits_ >> static_cast<unsigned>(d) & 1u) != 0; }

 private:
  unsigned bits_ = 0;
};

/// Of the context-parallel strategies, and of TP.
inline constexpr Degrees kContextDegrees{Degree::pp, Degree::cp,  Degree::tpa,
                                         Degree::ep, Degree::tpf, Degree::in_flight};
inline constexpr Degrees kTensorDegrees{Degree::tpa, Degree::ep, Degree::tpf};

/// What a plan's text leaves out: 1, dense_tp 0, and a microbatch in flight per stage, or one in chunks.
int absent_value(const Plan& plan, Degree degree);

std::string_view to_string(StrategyId id);

/// Canonical text: every degree that is not absent, then batch, then the options, in a fixed order.
std::string to_string(const Plan& plan);
/// The same without its batch, where that is of no meaning: it parses to a batch of 1.
std::string sharding_text(const Plan& plan);

/// Parses canonical text. Throws UserError naming the bad key or value, the expected form and the nearest
/// name.
Plan parse_plan(std::string_view text);

}  // namespace shardline
