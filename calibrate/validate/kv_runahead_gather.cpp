#include "calibrate/validate/kv_runahead_gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kGroup = "Figure 9: speedup of KVR-S over TSP";

Shape times_bytes(const Shape& shape, double factor) {
  Shape out = shape;
  if (auto* e = std::get_if<ExchangeShape>(&out)) e->bytes = e->bytes * factor;
  if (auto* e = std::get_if<ElementwiseShape>(&out)) e->bytes = e->bytes * factor;
  return out;
}

/// What a layer of TSP would take longer if keys and values were gathered, and put together, once per query
/// head: as a model does that repeats them before attention, not in it.
Seconds repeated_heads(const Case& c, int gpus) {
  Plan plan;
  plan.strategy = strategy_id("tsp");
  plan.cp = gpus;
  Evaluator e(c);
  e.simulate(plan);
  const Attention& a = c.model.attentions.front();
  const double repeat = static_cast<double>(a.q_heads) / a.kv_heads;
  Seconds more(0);
  for (const Op& op : e.schedule().ops) {
    if (op.name != std::string_view("gather KV") && op.name != std::string_view("concatenate KV")) continue;
    Op repeated = op;
    repeated.shape = times_bytes(op.shape, repeat);
    more += e.cost().time(repeated) - e.cost().time(op);
  }
  return more;
}

double per_token_and_layer(double seconds, long long context, const Case& c) {
  return seconds / static_cast<double>(context) / c.model.layers();
}

/// The same of the models whose times are in the file, where GPUs do not wait for their hosts.
std::string other_models(const ChainTruth& truth, std::span<const double> ours, const ChainModel& model) {
  double least = 0, most = 0;
  int count = 0;
  for (std::size_t i = 0; i < truth.values.size(); ++i) {
    const ChainValue& v = truth.values[i];
    if (v.method != ChainMethod::tsp || v.model == truth.figure->model || v.network > 0 || v.context < 8192)
      continue;
    const double missing =
        per_token_and_layer(v.time.value - ours[i], v.context, model.study(v.model, v.context, 0));
    least = count == 0 ? missing : std::min(least, missing);
    most = count == 0 ? missing : std::max(most, missing);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("TSP of the other models, 8K and longer: {:.2f} to {:.2f} us missing ({} times)",
                     1e6 * least, 1e6 * most, count);
}

}  // namespace

void add_chain_figure(const ChainTruth& truth, std::span<const double> ours, ChainModel& model,
                      PaperReport& report) {
  if (!truth.figure) return;
  const std::string& name = truth.figure->model;
  Rows rows{{"tokens", "GPUs", "speedup", "ours", "TSP it leaves (s)", "ours (s)", "missing (us)",
             "heads repeated (us)"}};
  double least = 0, most = 0, repeated_most = 0;
  for (const ChainFigure::Row& r : truth.figure->rows) {
    const Seconds tsp = model.ttft(name, r.context, r.gpus, 0, ChainMethod::tsp);
    const Seconds searched = model.ttft(name, r.context, r.gpus, 0, ChainMethod::kvr_searched);
    const Case c = model.study(name, r.context, 0);
    const Seconds left = searched * r.speedup;
    const double missing = per_token_and_layer((left - tsp).value, r.context, c);
    const double repeated = repeated_heads(c, r.gpus).value / static_cast<double>(r.context);
    least = rows.size() == 1 ? missing : std::min(least, missing);
    most = rows.size() == 1 ? missing : std::max(most, missing);
    repeated_most = std::max(repeated_most, repeated);
    rows.push_back({std::to_string(r.context), std::to_string(r.gpus), fmt::format("{:.2f}", r.speedup),
                    fmt::format("{:.2f}", tsp / searched), fmt::format("{:.3f}", left.value),
                    fmt::format("{:.3f}", tsp.value), fmt::format("{:.2f}", 1e6 * missing),
                    fmt::format("{:.2f}", 1e6 * repeated)});
    report.points.push_back({kGroup, "Figure 9",
                             fmt::format("{} {} tokens, {} GPUs", name, r.context, r.gpus), "1", r.speedup,
                             tsp / searched, Standing::held_out});
  }
  PaperSection s{fmt::format("Speedups that Figure 9 states, {}", name), {PaperItem(std::move(rows))}};
  s.items.emplace_back(
      "missing: what TSP would take longer than ours if our KVR-S were right, per token and layer; heads "
      "repeated: what "
      "gathering keys and values once per query head would add, in place of once per KV head");
  if (std::string others = other_models(truth, ours, model); !others.empty())
    s.items.emplace_back(std::move(others));
  report.sections.push_back(std::move(s));
  PaperGroup g{kGroup, Standing::held_out, errors_of(report, kGroup, Standing::held_out)};
  g.verdict = Verdict::open;
  g.reason = fmt::format(
      "TSP misses {:.2f} to {:.2f} us per token and layer on any number of GPUs, so in what every GPU does "
      "for all "
      "tokens; K and V gathered once per query head would be at most {:.2f} us",
      1e6 * least, 1e6 * most, 1e6 * repeated_most);
  report.groups.push_back(std::move(g));
}

}  // namespace shardline
