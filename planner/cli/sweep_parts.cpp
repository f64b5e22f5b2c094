#include "planner/cli/sweep_parts.hpp"

#include <fmt/format.h>

#include "reports/atomic_file.hpp"

namespace shardline::cli {

std::string count(std::uint64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > 0; i -= 3)
    s.insert(static_cast<std::size_t>(i), 1, ' ');
  return s;
}

Seconds time_target(const std::string& flag, const std::string& text) {
  const auto parsed = parse_quantity<Seconds>(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError(flag + " " + text + ": " + *fault);
  const Seconds time = std::get<Seconds>(parsed);
  if (time <= Seconds(0)) throw UserError(flag + " " + text + ": expected a positive time");
  return time;
}

void require_question(const Study& study, const std::string& scenario, Question wanted) {
  if (study.question == wanted) return;
  const auto command = [](Question q) {
    return q == Question::sweep        ? "sweep"
           : q == Question::thresholds ? "thresholds"
           : q == Question::partition  ? "partition"
                                       : "conversation";
  };
  throw UserError(
      fmt::format("{} asks for another answer: run shardline {}", scenario, command(study.question)));
}

void print_counts(const SearchResult& r) {
  const SearchCounts& c = r.counts;
  const std::uint64_t covered = c.configurations - c.infeasible;
  fmt::print("  {} configurations ({} plans x batches): {} do not fit", count(c.configurations),
             count(c.plans), count(c.infeasible));
  std::string separator = " (";
  for (const auto& [reason, n] : r.rejected) {
    fmt::print("{}{}: {}", separator, reason, count(n));
    separator = ", ";
  }
  fmt::print(
      "{}\n  {} evaluated: {} simulated by events, {} ruled out by {} bounds; {:.2f} s, {:.0f} "
      "configurations/s\n",
      r.rejected.empty() ? "" : ")", count(covered), count(c.simulated), count(c.pruned), count(c.bounds),
      c.seconds, static_cast<double>(covered) / c.seconds);
  if (c.simulations_per_second > 0 && c.bounds_per_second > 0) {
    fmt::print("  per core: {:.0f} event simulations/s, {:.0f} bounds/s\n", c.simulations_per_second,
               c.bounds_per_second);
  }
  fmt::print("\n");
}

namespace {

std::string axis_label(Metric m, Phase phase) {
  switch (m) {
    case Metric::tokens_per_s_user:
      return "tokens/s/user";
    case Metric::tokens_per_s_gpu:
      return phase == Phase::decode ? "tokens/s/GPU" : "requests/s/GPU";
    case Metric::ttl:
      return phase == Phase::decode ? "TTL (s)" : "TTFT (s)";
    case Metric::users:
      return phase == Phase::decode ? "users" : "requests at once";
    case Metric::gpus:
      return "GPUs";
    case Metric::memory:
      return "memory per GPU (B)";
  }
  return "";
}

}  // namespace

Plot frontier_plot(const Study& study, const SearchResult& r, const Provenance& made_by) {
  Plot plot;
  plot.title = study.title;
  plot.x_label = axis_label(r.x, study.study.phase);
  plot.y_label = axis_label(r.y, study.study.phase);
  plot.log_y = true;
  plot.log_x = r.x == Metric::gpus;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  for (const StrategyId id : study.search.strategies) {
    // Along GPU counts a curve; along other metrics any point stands for all that it beats.
    PlotSeries s{
        std::string(to_string(id)), r.x == Metric::gpus ? PlotStyle::line_points : PlotStyle::steps, {}};
    for (const Point& p : r.frontiers.at(id).points()) s.points.emplace_back(value(r.x, p), value(r.y, p));
    if (s.points.empty()) continue;
    plot.series.push_back(s);
    if (r.x == Metric::gpus) continue;
    s.style = PlotStyle::points;  // same name, same colour
    plot.series.push_back(std::move(s));
  }
  return plot;
}

void write_picture(const Plot& plot, const std::filesystem::path& stem) {
  for (const char* kind : {"svg", "png"}) {
    std::filesystem::path file = stem;
    file += std::string(".") + kind;
    const Rendered picture = render(plot, kind);
    if (picture.error.empty())
      write_file(file, picture.bytes);
    else
      fmt::print("  no {}: {}\n", file.string(), picture.error);
  }
}

}  // namespace shardline::cli
