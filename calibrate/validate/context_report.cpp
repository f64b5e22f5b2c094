#include "calibrate/validate/context_report.hpp"
#include "sim/base/cancel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

namespace shardline {

namespace {

using Id = TruthTableId;
using Column = TruthColumn;
using Figure = TruthFigure::Kind;

constexpr const char* kGtt = "h100-gtt";
constexpr const char* kGti = "h100-gti";
constexpr long long k128K = 131072;

constexpr const char* kBatch4 = "slower in the paper than batch 1 with as many bytes";

// README.md, "Goals".
constexpr std::array<GoalSpec, kGoals> kGoalSpecs{
    {{"TTFT, context parallelism and one node", 0.01, 0.025, "", 0, ""},
     {"TTFT, tensor parallelism over nodes", 0.04, 0.08, "", 0, ""},
     {"Table 4", 0.012, 0.06, "T = 6400", 0.11, "faster in the paper than any term explains"},
     {"Table 5", 0.015, 0.04, "", 0, ""},
     {"TTIT", 0.01, 0.04, "Table 6 with context parallelism", 0.13, "contradicts the paper's own Table 7"},
     {"Table 8, parts", 0.02, 0.10, "batch 4 on TP8", 0, kBatch4},
     {"Table 8, whole", 0.03, 0.10, "batch 4 on TP8", 0, kBatch4}}};

GoalGroup group_of(Id table, const TruthRow& row, Column column) {
  if (row.system != kGtt) return GoalGroup::none;
  if (table == Id::table4) return GoalGroup::table4;
  if (table == Id::table5) return GoalGroup::table5;
  if (table == Id::table8) return column == Column::whole_pass_q ? GoalGroup::whole : GoalGroup::parts;
  if (column == Column::ttit) return GoalGroup::ttit;
  return row.plan.cp == 1 && row.plan.tpa > 8 ? GoalGroup::tp_ttft : GoalGroup::cp_ttft;
}

bool left_out(Id table, const TruthRow& row, Column column) {
  if (row.system != kGtt) return false;
  switch (table) {
    case Id::table4:
      return row.tokens == 6400 && row.cached + row.tokens == 128000;
    case Id::table6:
      return column == Column::ttit && row.plan.cp > 1;
    case Id::table8:
      return row.batch == 4 && row.plan.cp == 1 && row.plan.tpa == 8;
    default:
      return false;
  }
}

using Times = std::array<std::optional<Seconds>, static_cast<std::size_t>(Column::count)>;

// The times of one row; only what it publishes is simulated.
Times predict(Id table, const TruthRow& row, const ContextTimes& times) {
  Times out;
  const auto set = [&](Column c, Seconds t) { out[static_cast<std::size_t>(c)] = t; };
  const auto wanted = [&](Column c) { return row.time(c).has_value(); };
  switch (table) {
    case Id::table4:
      for (const Column c : {Column::pass_kv, Column::pass_q}) {
        ContextPlan plan = row.plan;
        plan.pass_q = c == Column::pass_q;
        if (wanted(c)) set(c, times.ttft(row.system, plan, row.cached, row.tokens, true));
      }
      break;
    case Id::table5: {
      const RingParts p = times.ring_parts(row.system, row.plan, row.cached, row.tokens);
      set(Column::send_recv, p.send_recv);
      set(Column::attn, p.attend);
      set(Column::all2all, p.all_to_all);
      break;
    }
    case Id::table8: {
      const DecodeParts p = times.decode_parts(row.system, row.plan, row.tokens, row.batch);
      set(Column::attn_op, p.attend);
      set(Column::attn_loop, p.loop);
      set(Column::send_recv, p.send_recv);
      set(Column::all2all, p.all_to_all);
      set(Column::whole_pass_q, p.whole);
      break;
    }
    default:
      if (wanted(Column::ttft))
        set(Column::ttft, times.ttft(row.system, row.plan, row.cached, row.tokens, false));
      if (wanted(Column::ttit)) set(Column::ttit, times.ttit(row.system, row.plan, row.tokens, row.batch));
  }
  return out;
}

// The faults of rows, each at its place.
class RowFaults {
 public:
  template <class Run>
  void guard(const Location& where, Run run) {
    try {
      run();
    } catch (const UserError& e) {
      Diagnostic d{where, e.diagnostics().front().what, e.diagnostics().front().details};
      const bool known = std::any_of(faults_.begin(), faults_.end(), [&](const Diagnostic& f) {
        return f.where.line == d.where.line && f.what == d.what;
      });
      if (!known) faults_.push_back(std::move(d));
    }
  }
  void finish() const {
    if (!faults_.empty()) throw UserError(faults_);
  }

 private:
  std::vector<Diagnostic> faults_;
};

std::vector<WinnerRow> winners(const ContextTruth& truth, std::span<const ComparedValue> values) {
  const TruthTable* table = truth.find(Id::table4);
  std::vector<WinnerRow> out;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const ComparedValue &kv = values[i], &q = values[i + 1];
    if (kv.table != Id::table4 || kv.row != q.row || kv.column != Column::pass_kv) continue;
    const TruthRow& row = table->rows[kv.row];
    WinnerRow w;
    w.row = kv.row;
    w.published_pass_kv = kv.published <= q.published;
    w.our_pass_kv = kv.ours <= q.ours;
    w.calibration = row.fitted(Column::pass_kv) && row.fitted(Column::pass_q);
    w.regret = (w.our_pass_kv ? kv : q).published / std::min(kv.published, q.published) - 1;
    out.push_back(w);
  }
  return out;
}

std::vector<Crossing> table4_crossings(const TruthTable& table, const ContextTimes& times,
                                       const std::function<void()>& pause) {
  std::vector<Crossing> out;
  for (const TruthRow& row : table.rows) {
    const long long total = row.cached + row.tokens, step = 2LL * row.plan.cp;
    const bool known = std::any_of(out.begin(), out.end(), [&](const Crossing& c) {
      return c.total == total && c.system == row.system && to_string(c.plan) == to_string(row.plan);
    });
    if (known) continue;
    const auto advantage = [&](long long fresh) {
      pause();
      ContextPlan kv = row.plan, q = row.plan;
      q.pass_q = true;
      return (times.ttft(row.system, q, total - fresh, fresh, true) -
              times.ttft(row.system, kv, total - fresh, fresh, true))
          .value;
    };
    out.push_back({row.system, row.plan, total, crossings(advantage, total, step)});
  }
  return out;
}

// Figures of Appendix A use T = 10^6; the time is that of the headline's row, as in the paper.
double achieved_rate(const ContextTruth& truth, const std::string& system, const ContextTimes& times) {
  ContextPlan plan{16, 8};
  long long tokens = 1048576;
  if (const TruthTable* headline = truth.find(Id::headline)) {
    for (const TruthRow& row : headline->rows) {
      if (row.label != "cp16_1m") continue;
      plan = row.plan;
      tokens = row.tokens;
    }
  }
  const Seconds ttft = times.ttft(system, plan, 0, tokens, false);
  return times.prefill_flops(1'000'000).value / (ttft.value * plan.cp * plan.tpa) / 1e12;
}

double figure(const ContextTruth& truth, const TruthFigure& f, const ContextTimes& times) {
  constexpr double kPeak = 800;  // TFLOP/s in BF16 at 500 W, Appendix A
  double standalone = 540;
  for (const TruthFigure& other : truth.figures) {
    if (other.kind == Figure::standalone_rate) standalone = other.value;
  }
  const auto slower = [&](const ContextPlan& a, const ContextPlan& b) {
    return times.ttft(f.system, a, 0, k128K, false) / times.ttft(f.system, b, 0, k128K, false) - 1;
  };
  switch (f.kind) {
    case Figure::achieved_rate:
      return achieved_rate(truth, f.system, times);
    case Figure::parallel_efficiency:
      return achieved_rate(truth, f.system, times) / standalone;
    case Figure::mfu:
      return achieved_rate(truth, f.system, times) / kPeak;
    case Figure::prefill_flops:
      return times.prefill_flops(1'000'000).value;
    case Figure::tp16_over_cp2:
      return slower({1, 16}, {2, 8});
    case Figure::tp64_over_cp8:
      return slower({1, 64}, {8, 8});
    case Figure::standalone_rate:
      break;
  }
  return f.value;
}

}  // namespace

const GoalSpec& goal(GoalGroup group) { return kGoalSpecs.at(static_cast<std::size_t>(group)); }

std::optional<double> ComparedValue::error() const {
  if (published <= Seconds(0)) return std::nullopt;
  return ours / published - 1;
}

ErrorSummary error_summary(std::span<const ComparedValue> values,
                           const std::function<bool(const ComparedValue&)>& counts) {
  std::vector<double> errors;
  for (const ComparedValue& v : values) {
    if (const auto e = v.error(); e && counts(v)) errors.push_back(*e);
  }
  return error_summary(std::move(errors));
}

bool GoalResult::met() const {
  const GoalSpec& g = goal(group);
  return held_out.count > 0 && held_out.median <= g.median && held_out.largest <= g.largest;
}

std::vector<GoalResult> goal_results(std::span<const ComparedValue> values) {
  std::vector<GoalResult> out;
  for (std::size_t i = 0; i < kGoals; ++i) {
    GoalResult r;
    r.group = static_cast<GoalGroup>(i);
    const auto of = [&](std::initializer_list<Standing> standings) {
      return error_summary(values, [&](const ComparedValue& v) {
        return v.group == r.group &&
               std::find(standings.begin(), standings.end(), v.standing) != standings.end();
      });
    };
    r.held_out = of({Standing::held_out});
    r.excluded = of({Standing::excluded});
    r.with_excluded = of({Standing::held_out, Standing::excluded});
    r.calibration = of({Standing::calibration});
    if (r.with_excluded.count + r.calibration.count > 0) out.push_back(r);
  }
  return out;
}

std::vector<long long> crossings(const std::function<double(long long)>& advantage, long long total,
                                 long long step) {
  std::vector<long long> out;
  const long long last = total / step;
  long long low = std::max(1LL, last / 256);
  if (last < 1) return out;
  bool low_wins = advantage(low * step) > 0;
  while (low < last) {
    const auto next = static_cast<long long>(std::llround(static_cast<double>(low) * 1.0905077326652577));
    const long long high = std::clamp(next, low + 1, last);
    const bool high_wins = advantage(high * step) > 0;
    if (high_wins != low_wins) {
      long long a = low, b = high;
      while (b - a > 1) {
        const long long middle = a + (b - a) / 2;
        ((advantage(middle * step) > 0) == low_wins ? a : b) = middle;
      }
      out.push_back(b * step);
    }
    low = high;
    low_wins = high_wins;
  }
  return out;
}

ContextReport context_report(const ContextTruth& truth, const ContextTimes& times, const WorkSteps& steps) {
  const auto pause = [&] {
    if (!steps.go_on()) throw Cancelled{};
  };
  ContextReport report;
  RowFaults faults;
  std::set<std::pair<std::string, double>> seen;
  for (const TruthTable& table : truth.tables) steps.expect(table.rows.size());
  steps.expect(truth.figures.size());
  for (const TruthTable& table : truth.tables) {
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      pause();
      const TruthRow& row = table.rows[i];
      if (std::none_of(row.times.begin(), row.times.end(), [](const auto& t) { return t.has_value(); }))
        continue;
      Times ours;
      faults.guard(row.where, [&] { ours = predict(table.id, row, times); });
      for (const Column c : table.columns) {
        const auto& predicted = ours[static_cast<std::size_t>(c)];
        if (!row.time(c) || !predicted) continue;
        ComparedValue v{
            table.id, i, c, *row.time(c), *predicted, Standing::held_out, group_of(table.id, row, c)};
        const bool out = left_out(table.id, row, c);
        // A value that counts is not a repetition of one that does not.
        const std::string key = measurement(table.id, row, c) + (out ? " left out" : "");
        const bool first = seen.emplace(key, v.published.value).second;
        if (row.fitted(c))
          v.standing = Standing::calibration;
        else if (!first)
          v.standing = Standing::repeated;
        else if (out)
          v.standing = Standing::excluded;
        report.values.push_back(v);
      }
    }
  }
  for (const TruthFigure& f : truth.figures) {
    pause();
    if (f.kind == Figure::standalone_rate) continue;
    faults.guard(f.where, [&] { report.figures.push_back({f, figure(truth, f, times)}); });
  }
  faults.finish();
  report.winners = winners(truth, report.values);
  if (const TruthTable* table = truth.find(Id::table4))
    report.crossings = table4_crossings(*table, times, [&] {
      steps.expect(1);  // how many a bisection takes is not known before
      pause();
    });
  for (const int cp : {1, 2, 4, 8}) {
    if (!truth.gti_claim) break;
    const ContextPlan plan{cp, 8};
    report.scaling.push_back(
        {cp, times.ttft(kGtt, plan, 0, k128K, false), times.ttft(kGti, plan, 0, k128K, false)});
  }
  return report;
}

ContextTimes simulated_times(const Catalogs& catalogs, const std::map<std::string, std::string>& instead) {
  const auto models = std::make_shared<std::map<std::string, ContextModel>>();
  const auto of = [models, catalogs, instead](const std::string& system) -> const ContextModel& {
    const auto other = instead.find(system);
    const std::string& name = other == instead.end() ? system : other->second;
    return models->try_emplace(name, name, catalogs).first->second;
  };
  ContextTimes t;
  t.ttft = [of](const std::string& system, const ContextPlan& p, long long cached, long long fresh,
                bool persistent) { return of(system).ttft(p, cached, fresh, persistent); };
  t.ring_parts = [of](const std::string& system, const ContextPlan& p, long long cached, long long fresh) {
    return of(system).ring_parts(p, cached, fresh, true);
  };
  t.ttit = [of](const std::string& system, const ContextPlan& p, long long context, int batch) {
    return of(system).ttit(p, context, batch);
  };
  t.decode_parts = [of](const std::string& system, const ContextPlan& p, long long context, int batch) {
    return of(system).decode_parts(p, context, batch);
  };
  t.prefill_flops = [of](long long fresh) { return of(kGtt).appendix_a_flops(fresh); };
  return t;
}

}  // namespace shardline
