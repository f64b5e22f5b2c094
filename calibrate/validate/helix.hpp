// The Helix paper's figures recomputed (arXiv 2507.07120v1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/compare.hpp"

namespace shardline {

/// Figure 1 (Appendix A): reads of one layer of a dense GQA model on one GPU, KV in full, weights by TPA and
/// TPF.
struct Figure1 {
  double batch = 8, q_heads = 128, kv_heads = 8, head_dim = 128, hidden = 16384, ffn = 65536;
  double bytes_per_value = 0.5;
  BytesPerSecond bandwidth{8e12};
  Seconds kv_read(double tpa, double kvp, double context) const;
  Seconds weight_read(double tpa, double tpf) const;
  /// Context at which both reads take equally long.
  double crossover(double tpa, double tpf, double kvp) const;
};

/// Figure 3: `requests` requests of which each attends for `attend` and exchanges for `exchange` units.
double lockstep_time(double requests, double attend, double exchange);
/// a + c + (n-1) max(a, c), played by the engine.
double hopb_time(int requests, double attend, double exchange);

/// One row of "published beside ours".
struct PublishedRow {
  std::string what, provenance;
  double published = 0, ours = 0;
  std::string verdict;  // exact, inside 5 %, or the reason for the difference
};

std::vector<PublishedRow> figure1_rows();
std::vector<PublishedRow> figure3_rows();

/// The frontier ratios of one model under one setting.
struct FrontierRatios {
  double interactivity = 0;  // max tokens/s/user over the baseline's: its fastest point over theirs
  std::optional<ErrorBand>
      interactivity_band;  // by measured costs: nominal 90 % of ln(true / it), by the prices' errors [H65]
  double equal_users = 0;  // the other reading of "up to": largest ratio of speeds that serve as many users
  long long at_users = 0;  // how many
  std::optional<ErrorBand> equal_users_band;  // likewise
  double throughput = 0;                      // tokens/s/GPU at the baseline's lowest TTL
  double users = 0;           // users on 64 GPUs within the TTL of TP64 at batch 1, over its one
  double geometric_mean = 0;  // tokens/s/GPU over budgets of 1 to 2 x the baseline's lowest TTL
  double hopb_off = 0;        // largest loss of tokens/s/user at equal tokens/s/GPU without HOP-B
  double hopb_ideal = 0;      // the same against a perfect overlap of attention and exchange
  Seconds baseline_ttl, candidate_ttl;
  std::string baseline_plan, candidate_plan;
};
FrontierRatios frontier_ratios(const Study& study);

/// Costs as the system's calibration measured them, or as its parameters assume, one of them changed.
struct Setting {
  std::string name;
  bool measured = false;
  double latency_factor = 1;  // NVLink step latency
  double memory_factor = 1;   // achieved HBM bandwidth
  double kernel_factor = 1;   // kernel cost
  AllReduceRule all_reduce = AllReduceRule::fastest;
};
/// Measured costs, assumed parameters, then each of those varied.
std::vector<Setting> sensitivity_settings();
Study with_setting(Study study, const Setting& setting);

}  // namespace shardline
