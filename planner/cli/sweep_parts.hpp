// What sweeps of decode steps and of prefills have in common.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "planner/api/sweep.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/studies/sweep.hpp"
#include "reports/output_folder.hpp"
#include "reports/plot.hpp"
#include "reports/staged_folder.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

struct SweepOptions {
  std::string scenario;
  std::string costs;                // calibrated or parameters; empty: as the scenario says
  std::string out;                  // empty: no files
  std::optional<std::string> ttl;   // "20 ms"
  std::optional<std::string> ttft;  // "80 s", prefill
  std::optional<double> tokens_per_user;
  std::optional<long long> users;
  EngineOptions engine;
  bool all = false;      // write all.csv (no pruning)
  bool verbose = false;  // also statistics of the search
  bool exhaustive = false;
  int threads = 0;
};

/// "1,392,155"
std::string count(std::uint64_t n);
/// Throws UserError that names the command for what the study asks.
[[noreturn]] void another_question(const Study& study, const std::string& scenario);
/// Does so unless it asks for an `Asked`.
template <class Asked>
void require_question(const Study& study, const std::string& scenario) {
  if (!std::holds_alternative<Asked>(study.question)) another_question(study, scenario);
}
/// "apb (approximate, engines: none)", "ring_pass_kv (engines: none)"; of an exact strategy that engines run,
/// its name.
std::string label(StrategyId id);
/// The same, and whether a chain that could be shared out by search has equal parts.
std::string label(const Plan& plan);
/// "28.9 %" of the exact attention's pairs.
std::string computed_text(const Study& study, const Plan& plan);
/// Statistics of the search where they are asked for or nothing fits, and what it left out.
void print_counts(const SearchResult& r, bool statistics);
/// The best pairs of a prefill and a decode pool, of studies with a workload.
void print_pools(const Study& study, const SweepAnswer& answer);
std::string pools_csv(const Study& study, const SweepAnswer& answer);

/// Plans that the case's engine does not start, where asked for by rule.
/// Those plans by rule, most first: the rule, its source, and what the first plan breaks. Empty: none.
std::string not_started_text(const Case& c, const SearchResult& r);
void print_not_started(const Case& c, const SearchResult& r, bool by_rule);

/// ", of those that vLLM 0.24.0 starts"; nothing without an engine.
std::string of_engine(const Case& c);

/// Columns of a table that say which part of the time of each row was not measured: none where costs are not
/// calibrated, one more where some are assumed.
class ShareColumns {
 public:
  template <class Rows, class SharesOf>
  ShareColumns(const System& system, const Rows& rows, SharesOf shares_of)
      : calibrated_(!system.calibration.empty()) {
    constexpr double kShown = 0.005;  // less is 0 %
    for (const auto& row : rows) assumed_ = assumed_ || (calibrated_ && shares_of(row).assumed >= kShown);
  }
  std::vector<std::string> header(std::vector<std::string> names) const;
  std::vector<std::string> cells(std::vector<std::string> row, const Shares& shares) const;

 private:
  bool calibrated_, assumed_ = false;
};

/// That no plan meets a target of time, and which is the nearest: the fastest, for the search left out what
/// misses other targets.
std::string missed_text(const Study& study, const SweepAnswer& answer, const std::string& time_name,
                        const SweepQuestion& asked);

/// A table of plans. Where costs are calibrated, columns say which part of each plan's time is not; where
/// some are of strategies that no engine runs, a column names the engines, and a line below says what it is.
class PlanTable {
 public:
  /// `header` without the plan, which is the last column. `kept` as of fitted().
  PlanTable(const Study& study, const RatedPoints& rated, std::vector<std::string> header,
            std::string_view kept = {})
      : study_(study), rated_(rated), header_(std::move(header)), kept_(kept) {}
  /// The text of its plan has the users who wait, as simulate takes it (Point::asked).
  void add(std::vector<std::string> cells, const Point& point);
  std::string text() const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Plan plan;   // that was rated
    Plan asked;  // Point::asked
  };
  const Study& study_;
  const RatedPoints& rated_;
  std::vector<std::string> header_;
  std::string_view kept_;
  std::vector<Row> rows_;
};

/// On standard error, one after the other.
void print_warnings(const std::vector<Diagnostic>& warnings);

/// Columns of a CSV file, and their cells. engine_columns(): who runs the plans, "ideal" and no version for
/// bare kernels.
const std::vector<std::string>& engine_columns();
std::vector<std::string> engine_cells(const Case& c);
const std::vector<std::string>& share_columns();
std::vector<std::string> share_cells(const Shares& shares);
/// The command that simulates a plan.
std::string simulate_command(const Study& study, const SweepOptions& o, const Plan& plan);
/// The question as the library asks it. Throws UserError of a time that is none.
api::SweepQuestion asked_of(const SweepOptions& o, const Provenance& made_by);
/// run.json of a model's folder, which names the other files there.
std::string run_json(const Study& study, const SweepQuestion& asked, const SweepAnswer& answer,
                     const SweepOptions& o, const Provenance& made_by, const std::vector<std::string>& files);
/// Each strategy's own frontier. Open marks: most of the time is extrapolated or assumed.
Plot frontier_plot(const Study& study, const SearchResult& r, const RatedPoints& rated,
                   const Provenance& made_by);
/// Where the files of a study go: a folder of the model's name, in `out` whatever that name is.
std::filesystem::path folder_of(const Study& study, const std::string& out);
/// Those of all models, held against other runs: one into such a folder does not hold `out`. None where `out`
/// is empty. Throws UserError as FolderClaim does.
std::vector<FolderClaim> claim_folders(const Scenario& scenario, const std::string& out);

/// Prints the answer of one study and writes its files.
void report_decode(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                   const SweepOptions& o, const Provenance& made_by);
void report_prefill(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                    const SweepOptions& o, const Provenance& made_by);

}  // namespace shardline::cli
