// What is shown of one published paper: its values beside ours, groups of them with a goal, and tables. The
// terminal and the Markdown document print the same structs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardline {

/// Whether a value tests the model. `excluded`: held out, but left out of a stated goal. `repeated`: has the
/// value of the same measurement in an earlier table. `calibration`: a parameter was fitted to it. `derived`:
/// follows from values that are compared already.
enum class Standing : unsigned char { held_out, excluded, repeated, calibration, derived };
const char* to_string(Standing standing);

/// Absolute relative errors.
struct ErrorSummary {
  std::size_t count = 0;
  double median = 0, largest = 0;
};
/// Of signed relative errors; the median of an even count is the mean of the middle two.
ErrorSummary error_summary(std::vector<double> errors);

/// One published value beside ours, both in `unit`.
struct PaperPoint {
  std::string group;   // name of its PaperGroup
  std::string series;  // one mark in the plot: "Table 4"
  std::string label, unit;
  double published = 0, ours = 0;  // published is not 0
  Standing standing = Standing::held_out;
  std::optional<double> assumed{};  // ours with assumed parameters, where the system also has measured costs

  /// ours / published - 1
  double error() const { return ours / published - 1; }
};

/// `explained`: left out of a goal for a stated reason. `open`: far off, no goal, and no full explanation.
/// `none`: no goal.
enum class Verdict : unsigned char { met, missed, explained, open, none };
const char* to_string(Verdict verdict);

/// Values that are judged together.
struct PaperGroup {
  std::string name;
  Standing counted = Standing::held_out;  // of the points that `errors` are about
  ErrorSummary errors{};
  std::size_t fitted = 0;  // values of the group that a parameter was fitted to; in no error
  std::string finding{};   // shown in place of the errors, where they are not relative errors of values
  std::string goal{};      // empty: none
  Verdict verdict = Verdict::none;
  std::string reason{};  // why values lie outside
};

/// A line or a table. "\n" in a text is where the terminal breaks the line, "\t" parts two remarks.
struct PaperItem {
  PaperItem(std::string line, std::size_t columns = 2) : text(std::move(line)), indent(columns) {}
  explicit PaperItem(std::vector<std::vector<std::string>> table) : rows(std::move(table)) {}

  std::string text;
  std::size_t indent = 2;                      // in the terminal
  std::vector<std::vector<std::string>> rows;  // of a table, its header first
};

struct PaperSection {
  std::string title;
  std::vector<PaperItem> items;
};

struct PaperReport {
  std::string id;  // its name on the command line
  std::string title, source;
  std::string remark;  // how to read its numbers; in the document only
  std::vector<PaperItem> intro;
  std::vector<PaperGroup> groups;
  std::vector<PaperPoint> points;
  std::vector<PaperSection> sections;
};

/// Errors of the points of a group with one standing.
ErrorSummary errors_of(const PaperReport& report, const std::string& group, Standing standing);

/// "1.06 %"
std::string percent_text(double part);

/// One row per group, the header first; `reasons`: with a last column that says why values lie outside.
std::vector<std::vector<std::string>> summary_rows(std::span<const PaperReport> reports, bool reasons);
/// "Goals: 7 met, 3 MISSED (context_parallel: TTIT; ...); 2 explained, 1 open, 0 without a goal"
std::string goals_line(std::span<const PaperReport> reports);

/// Every row of the result has the header's number of cells; what Markdown would read as mark-up is escaped.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows);
/// The document: how to read it, the summary, then each paper. A paper's picture is
/// `pictures`/ID.png where `drawn` names its id.
std::string validation_markdown(std::span<const PaperReport> reports, const std::string& version,
                                const std::string& pictures, const std::vector<std::string>& drawn);

}  // namespace shardline
