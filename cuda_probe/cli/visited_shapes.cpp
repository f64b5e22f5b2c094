#include "cuda_probe/cli/visited_shapes.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "models/model/catalog.hpp"
#include "planner/plan/timed.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/ring_timing.hpp"
#include "sim/base/folder.hpp"

namespace shardline::probe_cli {

namespace {

std::int64_t up(Count a, Count b) { return (a + b - 1) / b; }
std::int64_t padded(Count v) { return up(v, 16) * 16; }

std::int64_t rounded_rows(Count rows) {
  if (rows <= 8) return rows;
  std::int64_t power = 16;
  while (power < rows) power *= 2;
  return power;
}

class Collector {
 public:
  void add(const Case& c, const Plan& plan) {
    lower(schedule_, c, plan);
    for (OpIndex i = 0; i < schedule_.ops.size(); ++i) {
      const int classes = schedule_.ops[i].variants == kAlike ? 1 : schedule_.classes;
      for (int k = 0; k < classes; ++k) add(schedule_.op_of_class(i, k), c, plan);
    }
  }

  ShapeLists lists() const {
    ShapeLists out;
    out.gemm.assign(gemm_.begin(), gemm_.end());
    out.prefill.assign(prefill_.begin(), prefill_.end());
    out.decode.assign(decode_.begin(), decode_.end());
    out.mla.assign(mla_.begin(), mla_.end());
    out.merge.assign(merge_.begin(), merge_.end());
    return out;
  }

 private:
  void add(const Op& op, const Case& c, const Plan& plan) {
    if (op.kind == OpKind::gemm) {
      const auto& g = shape<GemmShape>(op);
      if (g.rows > 0) gemm_.insert({rounded_rows(g.rows), padded(g.n), padded(g.k)});
    } else if (op.kind == OpKind::attend_prefill) {
      add(shape<AttendPrefillShape>(op), c, plan);
    } else if (op.kind == OpKind::attend_decode) {
      add(shape<AttendDecodeShape>(op));
    } else if (op.kind == OpKind::merge) {
      const auto& m = shape<ElementwiseShape>(op);
      const int parts = std::max(plan.kvp, plan.cp);
      const int dim = value_width(c.model.attentions.front());
      for (const Attention& a : c.model.attentions) {
        if (value_width(a) != dim) return;  // which kind the merge is of, it does not say
      }
      if (parts > 1 && m.rows > 0 && m.width >= dim)
        merge_.insert({rounded_rows(m.rows), static_cast<int>(up(m.width, dim)), dim, parts});
    }
  }

  void add(const AttendPrefillShape& a, const Case& c, const Plan& plan) {
    if (a.q_rows < 1 || a.kv_rows < 1) return;
    if (a.family == AttentionFamily::mla || a.qk_dim != a.v_dim)
      return;  // no column says that keys are wider than values
    const auto requests = static_cast<std::int64_t>(std::max(1LL, requests_in(c.batch.prefill)));
    const std::int64_t batch = std::max<std::int64_t>(1, plan.batch * requests);
    const std::int64_t fresh = std::max<std::int64_t>(1, up(a.q_rows, batch));
    const std::int64_t cached = std::max<std::int64_t>(0, up(a.kv_rows, batch) - fresh);
    if (a.window > 0 && a.window < cached + fresh) return;  // nor that they are seen through a window
    prefill_.insert({batch, fresh, cached, static_cast<int>(a.q_heads), static_cast<int>(a.kv_heads),
                     static_cast<int>(a.qk_dim)});
  }

  void add(const AttendDecodeShape& a) {
    if (a.q_rows < 1 || a.kv_rows < 1) return;
    const auto heads = static_cast<int>(a.q_heads);
    const std::int64_t kv = std::max<std::int64_t>(1, up(a.kv_rows, a.q_rows));
    if (a.cache == CacheRows::latent) {
      mla_.insert({a.q_rows, kv, heads});
    } else {
      decode_.insert({a.q_rows, kv, heads, static_cast<int>(a.kv_heads), static_cast<int>(a.qk_dim)});
    }
  }

  Schedule schedule_;
  std::set<GemmCase> gemm_;
  std::set<PrefillCase> prefill_;
  std::set<DecodeCase> decode_;
  std::set<MlaCase> mla_;
  std::set<MergeCase> merge_;
};

void add_sweep(Collector& out, const Case& c, const SearchOptions& o) {
  std::vector<Plan> plans;
  SearchSpace space = o.space;
  std::erase_if(space.options, [](const OptionRange& range) { return range.option->of_batch; });
  // Pipeline stages repeat what one stage does, so plans that differ in them alone are one.
  std::set<std::string> seen;
  for (const StrategyId id : o.strategies) {
    for (const int gpus : o.gpus) {
      if (gpus > c.system.gpus()) continue;
      plans.clear();
      strategy(id).enumerate(c, gpus, space, plans);
      for (Plan plan : plans) {
        if (!within(plan, space) || (plan.cp > 1 && plan[kPrefillChunk] > 0)) continue;
        const int fit = largest_batch(c, plan, o.batches.back());
        for (const int batch : o.batches) {
          const bool power = (batch & (batch - 1)) == 0;
          if (batch > fit || !(power || batch == fit)) continue;
          plan.batch = batch;
          Plan stage = plan;
          stage.pp = stage.in_flight = 1;
          if (seen.insert(to_string(stage)).second) out.add(c, plan);
        }
      }
    }
  }
}

void add_prefill(Collector& out, Case c, int cp, int tpa, Segment request) {
  c.batch = prefill_batch({request});
  c.placement = nullptr;
  for (const StrategyId id : {strategy_id("ring_pass_kv"), strategy_id("ring_pass_q")}) {
    const Plan plan = ring_plan(id, cp, tpa);
    if (!check_plan(c, plan)) out.add(c, plan);
  }
}

void add_thresholds(Collector& out, const Study& study) {
  const ThresholdGrid& g = study.thresholds();
  for (const int cp : g.cp) {
    for (long long fresh = g.fresh_from; fresh <= g.fresh_to; fresh *= 4) {
      for (const double miss : {1.0, 0.3, 0.1, 0.03, 0.01}) {
        const auto cached = static_cast<long long>(static_cast<double>(fresh) * (1 / miss - 1));
        if (cached + fresh <= g.total_to) add_prefill(out, study.study, cp, g.tpa, {cached, fresh});
      }
    }
  }
}

void add_conversation(Collector& out, const Study& study) {
  const Conversation& talk = study.conversation();
  Case decode = study.study;
  long long cached = 0;
  for (const Turn& turn : talk.turns) {
    add_prefill(out, study.study, talk.cp, talk.tpa, {cached, turn.fresh});
    cached += turn.fresh + turn.output;
    decode.batch = decode_batch(cached);
    const Plan plan = ring_plan(strategy_id("ring_decode"), talk.cp, talk.tpa);
    if (turn.output > 0 && !check_plan(decode, plan)) out.add(decode, plan);
  }
}

std::vector<std::filesystem::path> scenario_files(const Catalogs& catalogs) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const std::filesystem::path& entry : folder_entries(catalogs.scenarios, error)) {
    if (entry.extension() == ".yaml") files.push_back(entry);
  }
  if (files.empty()) throw UserError("no scenarios in " + catalogs.scenarios.string());
  return files;
}

}  // namespace

ShapeLists visited_shapes(const Catalogs& catalogs) {
  Collector out;
  std::set<std::string> swept;
  std::vector<Study> decodes;
  for (const auto& file : scenario_files(catalogs)) {
    for (const Study& study : load_scenario(file, catalogs).studies) {
      if (std::holds_alternative<ThresholdGrid>(study.question)) {
        add_thresholds(out, study);
      } else if (std::holds_alternative<Conversation>(study.question)) {
        add_conversation(out, study);
      } else if (std::holds_alternative<Sweep>(study.question)) {
        add_sweep(out, study.study, study.sweep().search);
        swept.insert(study.study.model.name);
        if (study.study.batch.kind() == StepKind::decode) decodes.push_back(study);
      }
    }
  }
  if (decodes.empty()) return out.lists();
  const Study& first = decodes.front();
  for (const std::string& name : catalog_names(catalogs.models)) {
    if (swept.contains(name)) continue;
    Model model = load_model(name, catalogs.models);
    if (!untimed(model).empty()) continue;
    // A context that the model was made for.
    const long long context =
        model.max_context > 0 ? std::min(first.study.longest(), model.max_context) : first.study.longest();
    const Case c = make_case(std::move(model), first.study.system, first.study.precision, context,
                             first.study.kv_block, Routing{});
    add_sweep(out, c, first.sweep().search);
  }
  return out.lists();
}

ShapeLists chosen_shapes(ShapeLists v, const ShapeBudget& budget) {
  return {spread(std::move(v.gemm), budget.gemm), spread(std::move(v.prefill), budget.prefill),
          spread(std::move(v.decode), budget.decode), spread(std::move(v.mla), budget.mla),
          spread(std::move(v.merge), budget.merge)};
}

}  // namespace shardline::probe_cli
