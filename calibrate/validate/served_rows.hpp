// Measured serving as tables hold it: one row per engine, model, layout, lengths and number of users.
// calibrate/README.md [F10].
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

/// A closed loop that was measured. Times in seconds; 0 where they are not used.
struct ServedRow {
  std::string system;     // of the catalogue
  std::string model;      // of the catalogue
  std::string label;      // "llama-3.1-70b fp8"
  std::string precision;  // the value of a scenario's `precision`
  std::string engine, version, date, source;
  std::string plan;  // of batch 1
  double input = 0, output = 0, users = 0;
  int gpus = 0;
  bool equal_lengths = false;  // else drawn from 80 to 100 % of the nominal ones
  bool mixes_prompts = false;  // ran with prompts on the steps of others, whatever the profile does
  bool whole_prompts =
      false;           // its engine cuts no prompt: one that is longer than what a step has left waits
  double rounds = 10;  // requests of a user, who all send the first one at once
  // Budget of a step and part of memory that it was started with; 0: not known, the profile's.
  long long step_tokens = 0;
  double memory = 0;
  double tpot = 0, ttft = 0;
  int line = 0;
};

struct LeftOutRows {
  std::string reason;
  std::string engine;  // as the table names it
  int rows = 0;
  bool ttft_alone = false;
};

struct ServedTable {
  std::vector<ServedRow> rows;
  std::vector<LeftOutRows> left_out;  // with what is wrong with them
  std::vector<ServedRow> priced;      // of these the ones whose prediction says something all the same
};

/// Reads a table with the columns of AIConfigurator's silicon_sample.csv (commit 095f58a51): system, model,
/// precision, backend, backend_version, isl_tokens, osl_tokens, concurrency, gpus, tp, pp, attn_dp, moe_tp,
/// moe_ep, ttft_ms, tpot_ms, measured, source. Throws UserError with every fault.
ServedTable load_served_rows(const std::filesystem::path& file);
ServedTable parse_served_rows(const std::string& name, const std::string& text);

}  // namespace shardline
