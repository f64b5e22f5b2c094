// Published tables of context parallelism beside what the simulator says, and how far apart the two are.
// Which values count, and the goals: README.md.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "calibrate/validate/context_truth.hpp"
#include "calibrate/validate/paper_report.hpp"
#include "calibrate/validate/work_steps.hpp"

namespace shardline {

/// What a report asks of a simulator. `system` is a catalogue name or file.
struct ContextTimes {
  std::function<Seconds(const std::string& system, const ContextPlan&, long long cached, long long fresh,
                        bool persistent)>
      ttft;
  /// With the cache kept between turns.
  std::function<RingParts(const std::string& system, const ContextPlan&, long long cached, long long fresh)>
      ring_parts;
  std::function<Seconds(const std::string& system, const ContextPlan&, long long context, int batch)> ttit;
  std::function<DecodeParts(const std::string& system, const ContextPlan&, long long context, int batch)>
      decode_parts;
  std::function<Flops(long long fresh)> prefill_flops;
};
/// ContextModel's answers; one model per system. `instead`: systems to take in place of others.
ContextTimes simulated_times(const Catalogs& catalogs,
                             const std::map<std::string, std::string>& instead = {});

/// Groups of values with a goal of their own; `none`: other systems than the paper's.
enum class GoalGroup : unsigned char { cp_ttft, tp_ttft, table4, table5, ttit, parts, whole, none };
inline constexpr std::size_t kGoals = static_cast<std::size_t>(GoalGroup::none);

struct ComparedValue {
  TruthTableId table = TruthTableId::headline;
  std::size_t row = 0;  // of the table
  TruthColumn column = TruthColumn::ttft;
  Seconds published, ours;
  Standing standing = Standing::held_out;
  GoalGroup group = GoalGroup::none;

  /// ours / published - 1; nothing where nothing was to be sent.
  std::optional<double> error() const;
};

/// Of the values that `counts` picks and that have an error.
ErrorSummary error_summary(std::span<const ComparedValue> values,
                           const std::function<bool(const ComparedValue&)>& counts);

struct GoalSpec {
  const char* name;
  double median, largest;
  const char* excluded;     // what is left out, or empty
  double excluded_largest;  // a goal for those values, or 0
  const char* why_excluded;
};
const GoalSpec& goal(GoalGroup group);

struct GoalResult {
  GoalGroup group = GoalGroup::none;
  ErrorSummary held_out, with_excluded, excluded, calibration;
  bool met() const;
};

/// A row of Table 4 with both variants.
struct WinnerRow {
  std::size_t row = 0;
  bool published_pass_kv = false, our_pass_kv = false;
  double regret = 0;  // published time of our winner over the published best, less 1
  bool calibration = false;
};

/// Where, at P + T = total, the faster variant changes as T grows (ascending in T).
struct Crossing {
  std::string system;
  ContextPlan plan;
  long long total = 0;
  std::vector<long long> tokens;
};
/// Changes of sign of `advantage` (positive: pass-KV is faster) between 1/256 of `total` and all of it: a
/// scan in eighths of an octave, then bisection to `step` tokens.
std::vector<long long> crossings(const std::function<double(long long)>& advantage, long long total,
                                 long long step);

struct ComparedFigure {
  TruthFigure published;
  double ours = 0;  // in the unit of the published one
};

/// TTFT of CPn at 128K tokens on both systems.
struct ScalingRow {
  int cp = 1;
  Seconds gtt, gti;
};

struct ContextReport {
  std::vector<ComparedValue> values;  // by table, row and column
  std::vector<ComparedFigure> figures;
  std::vector<WinnerRow> winners;
  std::vector<Crossing> crossings;
  std::vector<ScalingRow> scaling;  // empty unless claimed
};

/// Throws UserError with every row whose plan is impossible, or if `steps` do not go on.
ContextReport context_report(const ContextTruth& truth, const ContextTimes& times,
                             const WorkSteps& steps = {});
/// One result for every goal that has a value.
std::vector<GoalResult> goal_results(std::span<const ComparedValue> values);

}  // namespace shardline
