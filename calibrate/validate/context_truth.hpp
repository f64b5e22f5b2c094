// Published tables of context parallelism in plain structs: the layout of arXiv 2411.01783's tables, which
// users may fill with measurements of their own. Layout and calibration marks: README.md.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/validate/context_model.hpp"

namespace shardline {

enum class TruthTableId : unsigned char { headline, table4, table5, table6, table7, table8 };

/// What a column of a table times. Table 4 has one column per variant.
enum class TruthColumn : unsigned char {
  ttft,
  ttit,
  pass_kv,
  pass_q,
  send_recv,
  attn,
  all2all,
  attn_op,
  attn_loop,
  whole_pass_q,
  count
};
/// The key of a column in the file.
const char* to_string(TruthColumn column);
const char* to_string(TruthTableId table);

/// One configuration and the times published for it; a column that is not published has none.
struct TruthRow {
  std::string system;  // catalogue name or file
  ContextPlan plan;
  long long cached = 0;
  long long tokens = 0;  // new tokens of a prefill; context of a decode step
  int batch = 1;
  std::string label;  // an id or label of the file, or empty
  Location where;
  std::array<std::optional<Seconds>, static_cast<std::size_t>(TruthColumn::count)> times;
  /// A parameter was fitted to this time: no prediction. Also for times that are not given.
  std::array<bool, static_cast<std::size_t>(TruthColumn::count)> calibration{};

  const std::optional<Seconds>& time(TruthColumn c) const { return times[static_cast<std::size_t>(c)]; }
  bool fitted(TruthColumn c) const { return calibration[static_cast<std::size_t>(c)]; }
};

struct TruthTable {
  TruthTableId id = TruthTableId::headline;
  std::string unit = "s";  // s, ms or us: in which the file gives its times
  std::vector<TruthColumn> columns;
  std::vector<TruthRow> rows;
};

/// Figures that are no times. A system is a catalogue name or file.
struct TruthFigure {
  enum class Kind : unsigned char {
    achieved_rate,
    standalone_rate,
    parallel_efficiency,
    mfu,
    prefill_flops,
    tp16_over_cp2,
    tp64_over_cp8
  };
  Kind kind = Kind::achieved_rate;
  std::string id, unit;
  double value = 0;
  std::string system;
  Location where;
};

struct ContextTruth {
  std::string file;
  std::vector<TruthTable> tables;  // ascending in id, none without rows
  std::vector<TruthFigure> figures;
  bool gti_claim = false;                   // the claim that GTI scales as GTT does
  std::optional<long long> tipping_tokens;  // Table 4: new tokens at which the variants meet
  std::vector<std::string> not_compared;    // parts of the file that were read past

  const TruthTable* find(TruthTableId id) const;
};

/// "TP8" or "CP4xTP8"; nothing for any other text.
std::optional<ContextPlan> parse_parallelism(const std::string& text);
std::string to_string(const ContextPlan& plan);

/// Names a measurement apart from the table that prints it: the same time of the same configuration has one
/// key. In Table 8 a plan without context parallelism has one attention time under three headings.
std::string measurement(TruthTableId table, const TruthRow& row, TruthColumn column);

/// Throws UserError with every fault.
ContextTruth parse_context_truth(const std::string& name, const std::string& text, const Catalogs& catalogs);
ContextTruth load_context_truth(const std::filesystem::path& file, const Catalogs& catalogs);

/// Marks each time of `truth` whose measurement is marked as calibration in `fitted`, whatever value it has.
void mark_calibration(ContextTruth& truth, const ContextTruth& fitted);

/// Seconds per unit: "s", "ms" or "us".
double unit_seconds(const std::string& unit);

}  // namespace shardline
