#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/studies/searched_partition.hpp"
#include "reports/atomic_file.hpp"
#include "reports/partition_tables.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

struct PartitionOptions {
  std::string scenario, out;
  std::optional<std::string> spacing;  // "2Ki tokens"; the scenario's if none
  std::optional<double> max_loss;      // the scenario's if none
  std::optional<long long> granularity;
  int threads = 0;
};

constexpr int kShownRanks = 8;
constexpr long long kMostRows = 1024;

std::string percent(double v) { return fmt::format("{:.2f} %", 100 * v); }
// Events and the closed form add the same costs in another order.
std::string over(Seconds time, Seconds least) {
  const double more = time / least - 1;
  return percent(std::abs(more) < 1e-9 ? 0 : more);
}

// The first ranks of long chains; files hold all.
std::string shortened(std::string text, int ranks) {
  if (ranks <= kShownRanks) return text;
  std::size_t at = 0;
  for (int i = 0; i < kShownRanks; ++i) at = text.find('/', at) + 1;
  return text.substr(0, at) + "...";
}

/// How far the time of the partition that was found may be off, for contexts that were asked for, and whether
/// it is ahead of equal parts by more than that.
struct FoundErrors {
  ErrorTerms best;
  bool ahead_of_even = true;
};
using ErrorsByContext = std::map<long long, FoundErrors>;

ErrorsByContext errors_of(const Study& study, const PartitionStudy& s) {
  ErrorsByContext out;
  if (study.study.system.calibration.empty()) return out;
  const PartitionGrid& grid = study.partition();
  for (const PartitionCell& c : s.cells) {
    if (!c.asked) continue;
    const std::vector<long long> even = even_partition({c.context, s.table.ranks(), grid.granularity});
    FoundErrors& e = out[c.context];
    e.best = errors_of_chain(study.study, grid.tpa, c.searched.best.tokens);
    if (even == c.searched.best.tokens) continue;
    const ErrorBand band = ratio_band(e.best, errors_of_chain(study.study, grid.tpa, even));
    e.ahead_of_even = told_apart(c.searched.best.ttft / c.even, band);
  }
  return out;
}

void print(const Study& study, const PartitionStudy& s, const ErrorsByContext& errors) {
  const int p = s.table.ranks();
  const System& system = study.study.system;
  const std::optional<double> max_loss = study.partition().max_loss;
  fmt::print("  {} ranks\n", p);
  Table t(joined_cells({{"context", "TTFT"},
                        interval_header(system),
                        {"speedup", "even", "loss", "interpolated: loss", "grid search: loss", "over bound",
                         "chains priced", "by grid", "published", "best", "partition", "ratios"}}));
  std::vector<long long> open;
  for (const PartitionCell& c : s.cells) {
    if (!c.asked) continue;
    const PartitionResult& best = c.searched.best;
    if (!errors.empty() && !errors.at(c.context).ahead_of_even) open.push_back(c.context);
    t.add(joined_cells(
        {{std::to_string(c.context), to_string(best.ttft)},
         errors.empty() ? std::vector<std::string>() : time_cells(system, errors.at(c.context).best),
         {fmt::format("{:.2f}x", c.searched.bound.alone / best.ttft), to_string(c.even),
          over(c.even, best.ttft), c.in_table ? "a row" : over(c.interpolated_ttft, best.ttft),
          over(c.grid->ttft, best.ttft), over(best.ttft, c.searched.bound.ttft), count(best.evaluations),
          count(c.grid->evaluations),
          count(static_cast<std::uint64_t>(published_search_cost({c.context, p, 1}))),
          best.proven ? "proven" : "found", shortened(partition_text(best.tokens), p),
          shortened(ratios_text(best.tokens), p)}}));
  }
  fmt::print("{}{}", t.text(), interval_note(system));
  if (!open.empty())
    fmt::print("  equal parts may be as fast, as prices may be off: {} tokens\n", fmt::join(open, ", "));
  const PartitionStudy::Loss loss = s.loss();
  if (loss.lengths > 0)
    fmt::print(
        "  interpolated between {} rows, {} lengths: slower than searched by {} on average, by {} at most "
        "({} tokens){}\n",
        s.table.rows().size(), loss.lengths, percent(loss.mean), percent(loss.worst), loss.worst_at,
        max_loss && loss.worst > *max_loss
            ? fmt::format("; above {}, with rows at every multiple of the granularity there",
                          percent(*max_loss))
            : "");
  fmt::print("\n");
}

void add_rows(const PartitionStudy& s, const ErrorsByContext& errors, std::vector<PartitionRow>& rows) {
  for (const PartitionCell& c : s.cells) {
    PartitionRow r;
    r.ranks = s.table.ranks();
    r.context = c.context;
    r.in_table = c.in_table;
    r.tokens = c.searched.best.tokens;
    r.interpolated = c.interpolated;
    r.ttft = c.searched.best.ttft;
    r.even = c.even;
    r.interpolated_ttft = c.interpolated_ttft;
    r.bound = c.searched.bound.ttft;
    r.ideal = c.searched.bound.ideal;
    r.alone = c.searched.bound.alone;
    r.proven = c.searched.best.proven;
    r.evaluations = c.searched.best.evaluations;
    if (c.grid) {
      r.grid_search = c.grid->ttft;
      r.grid_evaluations = c.grid->evaluations;
    }
    if (const auto known = errors.find(c.context); known != errors.end()) {
      const ErrorRange off = time_error(known->second.best);
      r.ttft_low = r.ttft * (1 + off.low);
      r.ttft_high = r.ttft * (1 + off.high);
    }
    rows.push_back(std::move(r));
  }
}

Plot plot_of(const Study& study, const std::vector<PartitionStudy>& all, const Provenance& made_by) {
  Plot plot;
  plot.title = study.title + ": TTFT of a KV-Runahead chain";
  plot.x_label = "context (tokens)";
  plot.y_label = "TTFT (s)";
  plot.log_y = true;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  for (const PartitionStudy& s : all) {
    const int p = s.table.ranks();
    PlotSeries even{fmt::format("{} ranks, even", p), PlotStyle::open_points, {}};
    PlotSeries searched{fmt::format("{} ranks, searched", p), PlotStyle::line_points, {}};
    PlotSeries share{fmt::format("1 rank, over {}", p), PlotStyle::line, {}};
    for (const PartitionCell& c : s.cells) {
      const auto x = static_cast<double>(c.context);
      even.points.emplace_back(x, c.even.value);
      searched.points.emplace_back(x, c.searched.best.ttft.value);
      share.points.emplace_back(x, c.searched.bound.alone.value / p);
    }
    plot.series.insert(plot.series.end(), {searched, even, share});
  }
  return plot;
}

void write(const Study& study, const std::vector<PartitionStudy>& all,
           const std::vector<ErrorsByContext>& errors, const std::string& out, const Provenance& made_by) {
  OutputFolder files(folder_of(study, out));
  const Precision& p = study.study.precision;
  const PartitionProvenance provenance{
      study.study.model.name,
      study.study.system.name,
      made_by.version,
      made_by.command,
      fmt::format("weights {}, KV cache {}, activations {}", to_string(p.weights), to_string(p.kv),
                  to_string(p.activations)),
      study.partition().tpa,
      study.partition().granularity,
      study.partition().spacing};
  std::vector<PartitionRow> rows;
  for (std::size_t i = 0; i < all.size(); ++i) add_rows(all[i], errors[i], rows);
  files.write("partition.csv", partition_csv(provenance, rows));
  files.write("partition.json", partition_json(provenance, rows));
  files.draw(plot_of(study, all, made_by), "ttft");
  fmt::print("{}\n", files.summary());
}

long long spacing_of(const std::string& text, const PartitionGrid& grid) {
  const auto parsed = parse_tokens(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError("--spacing " + text + ": " + *fault);
  const long long spacing = std::get<long long>(parsed);
  const long long least = (grid.contexts.back() - grid.contexts.front()) / kMostRows + 1;
  if (spacing < least)
    throw UserError(
        fmt::format("--spacing {}: expected at least {} tokens, so that the table has no more than {} rows",
                    text, least, kMostRows));
  return spacing;
}

void declare(Arguments& a, PartitionOptions& o) {
  a.add("scenario", o.scenario, "Scenario file with a partition, or the name of a shipped one").required();
  a.add("-o,--out", o.out, "Folder for the lookup table (JSON), all lengths (CSV) and the plot");
  a.add("--spacing", o.spacing,
        "Between the rows of the lookup table, for instance \"2Ki tokens\" (default: the scenario's)");
  a.add("--max-loss", o.max_loss,
        "Add rows until interpolation loses at most this: 0.013 is 1.3 % (default: the scenario's)")
      .real_range(0, 1);
  a.add("--granularity", o.granularity,
        "Boundaries are multiples of so many tokens (default: the scenario's)")
      .range(1, 1'000'000);
  add_threads(a, o.threads);
}

int run(const PartitionOptions& o, const Provenance& made_by) {
  Scenario scenario = scenario_named(o.scenario);
  if (!o.out.empty()) make_output_folder(o.out);
  for (Study& study : scenario.studies) {
    require_question<PartitionGrid>(study, o.scenario);
    if (has_experts(study.study.model))
      throw UserError(study.study.model.name +
                      " has experts, and partition gives every rank all of them: sweep kv_runahead, whose "
                      "plans say who holds which (ep), and searches their parts too");
    if (!one_attention(study.study.model) || has_local_attention(study.study.model))
      throw UserError(study.study.model.name +
                      " has layers with other attention than one full kind, which partition does not price");
    PartitionGrid& grid = std::get<PartitionGrid>(study.question);
    if (o.granularity) grid.granularity = *o.granularity;
    if (o.spacing) grid.spacing = spacing_of(*o.spacing, grid);
    if (o.max_loss) grid.max_loss = o.max_loss;
    require_room(grid, grid.processes.back());
    fmt::print(
        "{}: partitions of a KV-Runahead chain, ranks of {} GPU{}, boundaries at multiples of {} tokens\n\n",
        study.title, grid.tpa, grid.tpa == 1 ? "" : "s", grid.granularity);
    const EvaluatorFactory events = simulated_chains(study.study, grid.tpa);
    std::vector<PartitionStudy> all;
    std::vector<ErrorsByContext> errors;
    Progress progress(study.study.model.name, Progress::terminal());
    for (const int ranks : grid.processes) {
      if (interrupted()) throw UserError("interrupted; nothing was written");
      progress.show(all.size(), grid.processes.size());
      all.push_back(study_partitions(study.study, grid, ranks, o.threads, events));
      errors.push_back(errors_of(study, all.back()));
      print(study, all.back(), errors.back());
    }
    if (!o.out.empty()) write(study, all, errors, o.out, made_by);
  }
  return 0;
}

}  // namespace

const Command kPartitionCommand{"partition", "How many tokens each rank of a KV-Runahead chain takes",
                                "shardline partition partition_llama7b_a100 -o out/partition",
                                prepare<PartitionOptions, declare, run>};

}  // namespace shardline::cli
