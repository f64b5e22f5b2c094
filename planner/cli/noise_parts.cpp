#include "planner/cli/noise_parts.hpp"

#include <fmt/format.h>

#include "planner/cli/terminal_parts.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

constexpr int kLane = 7;  // below a rank's own lanes

std::string percent(double part) { return fmt::format("{:+.2f} %", 100 * part); }

}  // namespace

std::string noise_text(const NoiseSpec& n) {
  const char* links = n.links == NoiseLinks::nvlink    ? "NVLink"
                      : n.links == NoiseLinks::network ? "the network"
                                                       : "NVLink and network";
  const std::string pairs = n.pairs > 0 ? fmt::format("{} pairs of neighbours", n.pairs) : "neighbours";
  const std::string seeds =
      n.seeds > 1 ? fmt::format("seeds {} to {}", n.seed, n.seed + static_cast<std::uint64_t>(n.seeds) - 1)
                  : fmt::format("seed {}", n.seed);
  return fmt::format("{} flow{} each way between {} on {}, {:g} % of the time in bursts of {}; {}", n.flows,
                     n.flows > 1 ? "s" : "", pairs, links, 100 * n.load, to_string(n.burst), seeds);
}

void print_noise(const NoiseSpec& noise, const NoiseEffect& e) {
  Table t({"background traffic", "TTFT", "lost"});
  t.add({"none", to_string(e.quiet), ""});
  t.add({"mean", to_string(e.mean), percent(e.loss())});
  t.add({"standard deviation", to_string(e.deviation), percent(e.spread()).substr(1)});
  t.add({"least", to_string(e.least), percent(e.loss_of(e.least))});
  t.add({"most", to_string(e.most), percent(e.loss_of(e.most))});
  print_notes("{}  {}\n\n", fitted(t), noise_text(noise));
}

void print_noisy_plans(const NoiseSpec& noise, const std::vector<NoisyPlan>& plans) {
  Table t({"GPUs", "TTFT alone", "mean", "deviation", "least", "most", "lost", "plan"});
  for (const auto& [plan, e] : plans) {
    t.add({std::to_string(plan.gpus()), to_string(e.quiet), to_string(e.mean), to_string(e.deviation),
           to_string(e.least), to_string(e.most), percent(e.loss()), to_string(plan)});
  }
  print_notes("  Beside background traffic, each strategy's own frontier\n{}  {}\n\n", fitted(t),
              noise_text(noise));
}

std::string noise_csv(const NoiseSpec& noise, const std::vector<NoisyPlan>& plans) {
  std::string out = csv_line({"strategy", "plan", "gpus", "ttft_s", "mean_s", "deviation_s", "least_s",
                              "most_s", "lost", "load", "burst_s", "flows", "pairs", "seed", "seeds"});
  for (const auto& [plan, e] : plans) {
    out += csv_line({std::string(to_string(plan.strategy)), to_string(plan), std::to_string(plan.gpus()),
                     number_text(e.quiet.value), number_text(e.mean.value), number_text(e.deviation.value),
                     number_text(e.least.value), number_text(e.most.value), number_text(e.loss()),
                     number_text(noise.load), number_text(noise.burst.value), std::to_string(noise.flows),
                     noise.pairs > 0 ? std::to_string(noise.pairs) : "all", std::to_string(noise.seed),
                     std::to_string(noise.seeds)});
  }
  return out;
}

void add_bursts(const Background& background, Seconds end, int gpus, int pictured, TraceNames& names,
                std::vector<TraceEvent>& events, Gantt& gantt) {
  constexpr auto kResources = static_cast<ResourceId>(RankResource::count);
  // Bursts of one lane must not overlap, so each neighbour has a lane.
  for (int g = 0; g < gpus; ++g) {
    int lane = kLane;
    for (std::size_t i = 0; i < background.sources().size(); ++i) {
      const BurstSource& source = background.sources()[i];
      for (std::size_t at = 0; at < source.resources.size(); ++at) {
        if (source.resources[at] / kResources != static_cast<ResourceId>(g)) continue;
        const auto other = source.resources[1 - at] / kResources;
        const std::string name = fmt::format("traffic of others, ranks {} and {}", g, other);
        names.lanes.push_back({{g, lane}, name});
        for (const Span& s : background.bursts(i, end)) {
          const Seconds last = std::min(s.end, end);
          events.push_back({g,
                            lane,
                            name,
                            "background",
                            s.start,
                            last - s.start,
                            {{"flows", std::to_string(source.flows)}}});
          if (at == 0 && g < pictured)
            gantt.spans.push_back({fmt::format("others, {} and {}", g, other), s.start.value * 1e6,
                                   last.value * 1e6, "background", name, false});
        }
        ++lane;
      }
    }
  }
}

}  // namespace shardline::cli
