#include "calibrate/validate/kv_runahead_noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "planner/search/noise.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::array<const char*, 3> kMethods{"TSP", "KVR-E", "KVR-S"};
constexpr const char* kTsp = "Noise: what TSP loses";
constexpr const char* kChains = "Noise: what KVR loses";
constexpr const char* kLosses = "Noise: largest losses";

std::string percent(double part) { return fmt::format("{:.2f} %", 100 * part); }

class Noise {
 public:
  Noise(const ChainNoise& noise, ChainModel& model, const WorkSteps& steps, PaperReport& paper)
      : noise_(noise), model_(model), steps_(steps), paper_(paper) {}

  void add() {
    PaperSection section{"Noise (Figure 11): TTFT beside other traffic", {}};
    const NoiseSpec& t = noise_.traffic;
    section.items.emplace_back(
        fmt::format("{} of other traffic in each direction between neighbouring GPUs, {:g} % of the time in "
                    "bursts of {}; "
                    "{} seeds.",
                    t.flows == 1 ? "one flow" : fmt::format("{} flows", t.flows), 100 * t.load,
                    to_string(t.burst), t.seeds));
    section.items.emplace_back(losses());
    section.items.emplace_back("spread: standard deviation over the seeds, as a part of the quiet time");
    section.items.emplace_back(speedups());
    section.items.emplace_back(
        "The load was chosen for TSP's average; the losses of KVR-E and KVR-S follow. KVR-S keeps the "
        "partition\nfound without noise. Other strengths:");
    section.items.emplace_back(strengths());
    paper_.sections.push_back(std::move(section));
    judge();
  }

 private:
  struct Case3 {
    std::array<NoiseEffect, 3> of;  // by method
  };

  Case3 play(long long context, int gpus, const NoiseSpec& traffic) {
    if (!steps_.go_on()) throw Cancelled{};
    const Case c = model_.study(noise_.model, context, 0);
    Evaluator e(c);
    Plan plan;
    plan.cp = gpus;
    plan.strategy = strategy_id("tsp");
    if (const auto reason = check_plan(c, plan))
      throw UserError(to_string(plan) + " is impossible: " + *reason);
    Case3 out;
    out.of[0] = noise_effect(e, plan, traffic);
    plan.strategy = strategy_id("kv_runahead");
    out.of[1] = noise_effect(e, plan, traffic);
    list_parts(plan, model_.searched(noise_.model, context, gpus, 0).tokens);
    out.of[2] = noise_effect(e, plan, traffic);
    return out;
  }

  std::vector<int> sizes() const {
    std::vector<int> out;
    for (const ChainNoise::Speedup& s : noise_.speedups) out.push_back(s.gpus);
    if (std::find(out.begin(), out.end(), noise_.gpus) == out.end()) out.push_back(noise_.gpus);
    return out;
  }

  Rows losses() {
    steps_.expect(sizes().size() * noise_.contexts.size());
    Rows rows{{"tokens", "GPUs", "what", "quiet (s)", "mean (s)", "spread", "least", "most", "lost"}};
    for (const int gpus : sizes()) {
      for (const long long context : noise_.contexts) {
        const Case3 played = play(context, gpus, noise_.traffic);
        for (std::size_t m = 0; m < kMethods.size(); ++m) {
          const NoiseEffect& e = played.of[m];
          rows.push_back({std::to_string(context), std::to_string(gpus), kMethods[m],
                          fmt::format("{:.3f}", e.quiet.value), fmt::format("{:.3f}", e.mean.value),
                          percent(e.spread()), percent(e.loss_of(e.least)), percent(e.loss_of(e.most)),
                          percent(e.loss())});
          if (gpus == noise_.gpus) lost_[m].push_back(e.loss());
        }
        Best& best = best_[gpus];
        best.quiet = std::max(best.quiet, played.of[0].quiet / played.of[2].quiet - 1);
        best.noisy = std::max(best.noisy, played.of[0].mean / played.of[2].mean - 1);
      }
    }
    return rows;
  }

  Rows speedups() {
    Rows rows{{"KVR-S over TSP, best context", "published quiet", "ours", "published noisy", "ours"}};
    for (const ChainNoise::Speedup& s : noise_.speedups) {
      const Best& best = best_[s.gpus];
      rows.push_back({fmt::format("{} GPUs", s.gpus), fmt::format("{:.1f} %", 100 * s.quiet),
                      fmt::format("{:.1f} %", 100 * best.quiet), fmt::format("{:.1f} %", 100 * s.noisy),
                      fmt::format("{:.1f} %", 100 * best.noisy)});
    }
    return rows;
  }

  // At the context in the middle.
  Rows strengths() {
    const long long context = noise_.contexts[(noise_.contexts.size() - 1) / 2];
    Rows rows{{fmt::format("{} tokens, {} GPUs", context, noise_.gpus), "flows", "mean burst", "TSP", "KVR-E",
               "KVR-S"}};
    const auto row = [&](double load, int flows, Seconds burst) {
      NoiseSpec traffic = noise_.traffic;
      traffic.load = load;
      traffic.flows = flows;
      traffic.burst = burst;
      const Case3 played = play(context, noise_.gpus, traffic);
      rows.push_back({fmt::format("load {:g} %", 100 * load), std::to_string(flows), to_string(burst),
                      percent(played.of[0].loss()), percent(played.of[1].loss()),
                      percent(played.of[2].loss())});
    };
    const Seconds burst = noise_.traffic.burst;
    const std::vector<std::tuple<double, int, Seconds>> loads{
        {0.25, 1, burst},
        {0.5, 1, burst},
        {0.9, 1, burst},
        {0.25, 3, burst},
        {0.5, 2, burst},
        {noise_.traffic.load, noise_.traffic.flows, burst * 0.1},
        {noise_.traffic.load, noise_.traffic.flows, burst * 10}};
    steps_.expect(loads.size());
    for (const auto& [load, flows, mean] : loads) row(load, flows, mean);
    return rows;
  }

  static double most(const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()); }
  static double average(const std::vector<double>& of) {
    double sum = 0;
    for (const double x : of) sum += x;
    return sum / static_cast<double>(of.size());
  }

  void judge() {
    const std::array<double, 3> published{noise_.tsp_most, noise_.even_most, noise_.searched_most};
    for (std::size_t m = 0; m < kMethods.size(); ++m)
      paper_.points.push_back(
          {kLosses, "noise", fmt::format("{} {} GPUs, largest loss", kMethods[m], noise_.gpus), "1",
           published[m], most(lost_[m]), m == 0 ? Standing::calibration : Standing::excluded});
    PaperGroup tsp{kTsp};
    tsp.finding =
        fmt::format("{} on average, {} at most", percent(average(lost_[0])), percent(most(lost_[0])));
    tsp.goal = fmt::format("> {:g} % on average", 100 * noise_.tsp_average);
    tsp.verdict = average(lost_[0]) > noise_.tsp_average ? Verdict::explained : Verdict::missed;
    tsp.reason =
        "reached by choice: the traffic's strength is not published, and its load was chosen for this";
    paper_.groups.push_back(std::move(tsp));
    PaperGroup chains{kChains};
    chains.finding =
        fmt::format("KVR-E {}, KVR-S {} at most", percent(most(lost_[1])), percent(most(lost_[2])));
    chains.goal = fmt::format("KVR-E <= {:g} %, KVR-S <= {:g} %, less than TSP", 100 * noise_.even_most,
                              100 * noise_.searched_most);
    bool less = most(lost_[1]) <= noise_.even_most && most(lost_[2]) <= noise_.searched_most;
    for (std::size_t i = 0; i < lost_[0].size(); ++i)
      less = less && lost_[1][i] < lost_[0][i] && lost_[2][i] < lost_[0][i];
    chains.verdict = less ? Verdict::met : Verdict::missed;
    paper_.groups.push_back(std::move(chains));
    PaperGroup values{kLosses, Standing::excluded, errors_of(paper_, kLosses, Standing::excluded), 1};
    values.verdict = Verdict::explained;
    values.reason = "published as bounds, of traffic whose strength is not published";
    paper_.groups.push_back(std::move(values));
  }

  struct Best {
    double quiet = 0, noisy = 0;
  };

  const ChainNoise& noise_;
  ChainModel& model_;
  const WorkSteps& steps_;
  PaperReport& paper_;
  std::array<std::vector<double>, 3> lost_;  // by method, of contexts on noise_.gpus
  std::map<int, Best> best_;                 // by GPUs
};

}  // namespace

void add_chain_noise(const ChainNoise& noise, ChainModel& model, const WorkSteps& steps, PaperReport& paper) {
  Noise(noise, model, steps, paper).add();
}

}  // namespace shardline
