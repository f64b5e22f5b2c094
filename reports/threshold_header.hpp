// The rules "pass KV or pass Q" as a C++17 header without dependencies, for serving engines. The structs here
// repeat what planner/studies/thresholds.hpp decided; the header decides the same on every request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

/// Where the rules come from; goes into every output.
struct ThresholdProvenance {
  std::string model, system, version, command;
  std::string ranges;     // of T, m and T+P, in words
  std::string precision;  // of weights and KV cache, in words
  std::string engine;     // whose steps the times are of, or that there is none
  std::string interval;   // what the intervals of crossings are, or why there are none
  std::string context;    // the recorded requests that `in_context` is fitted to; empty: none
};

/// pass-KV if alpha ln T + beta ln m + gamma > 0; the integers decide (EmpiricalRule::Fixed).
struct ThresholdLine {
  double alpha = 0, beta = 0, gamma = 0;
  std::int64_t fresh = 0, miss = 0, constant = 0;
};

/// Where both variants take as long, of requests of one length, and from which miss rate to which either may
/// be the faster as prices may be off (nominal 90 %).
struct ThresholdCrossing {
  long long total = 0;  // tokens, new and cached
  double miss = 0, lowest = 0, most = 0;
};

/// One size of the ring: its fitted rule and its lookup table (LookupTable).
struct ThresholdRing {
  int ranks = 0;
  ThresholdLine empirical;
  int miss_per_octave = 0, miss_nodes = 0;
  std::vector<std::int64_t> fresh;  // T of each line
  std::vector<std::int32_t> lines;  // 2^24 log2 T of each line
  double step = 0;                  // ln(pass_q / pass_kv) of one count
  std::vector<std::int8_t> values;  // T outer
  std::optional<ThresholdCrossing> crossing{};
  std::optional<ThresholdLine> in_context{};  // of all rings or of none
};

struct ThresholdRules {
  ThresholdProvenance provenance;
  double kv_hidden_tokens = 0;       // per rank, Eq. 2
  double message_ratio = 0;          // 2 N_KV/N_H, Eq. 1
  double all_to_all_tokens = 0;      // per rank, Eq. 5
  ThresholdLine appendix_d;          // as printed
  std::vector<ThresholdRing> rings;  // ascending in ranks, one at least
};

/// namespace shardline_thresholds: constexpr select(), algorithm_1(), algorithm_5(), empirical() and
/// appendix_d(), each (cp, new tokens, cached tokens) -> RingVariant; in_context() where the rings have it,
/// and kCrossings where some have one.
std::string threshold_header(const ThresholdRules& rules);

}  // namespace shardline
