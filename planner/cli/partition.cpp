#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/api/convert_studies.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/studies/partition_errors.hpp"
#include "planner/studies/searched_partition.hpp"
#include "planner/studies/study_memory.hpp"
#include "reports/atomic_file.hpp"
#include "reports/partition_tables.hpp"
#include "reports/table.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct PartitionOptions {
  std::string scenario, out;
  std::optional<std::string> spacing;  // "2Ki tokens"; the scenario's if none
  std::optional<double> max_loss;      // the scenario's if none
  std::optional<long long> granularity;
  int threads = 0;
  std::vector<std::string> settings;
};

constexpr int kShownRanks = 8;

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

void print(const Study& study, const PartitionStudy& s, const ErrorsByContext& errors) {
  const int p = s.table.ranks();
  const System& system = study.study.system;
  const std::optional<double> max_loss = study.partition().max_loss;
  print_notes("  {} ranks\n", p);
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
  print_notes("{}{}", fitted(t), interval_note(study.study));
  if (!open.empty())
    print_notes("  equal parts may be as fast, as prices may be off: {} tokens\n", fmt::join(open, ", "));
  const PartitionStudy::Loss loss = s.loss();
  if (loss.lengths > 0)
    print_notes(
        "  interpolated between {} rows, {} lengths: slower than searched by {} on average, by {} at most "
        "({} tokens){}\n",
        s.table.rows().size(), loss.lengths, percent(loss.mean), percent(loss.worst), loss.worst_at,
        max_loss && loss.worst > *max_loss
            ? fmt::format("; above {}, with rows at every multiple of the granularity there",
                          percent(*max_loss))
            : "");
  print_notes("\n");
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
           const std::vector<ErrorsByContext>& errors, const std::string& out, const Provenance& made_by,
           const std::string& answer) {
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
  files.write("run.json", answer);
  print_notes("{}\n", files.publish());
}

long long spacing_of(const std::string& text, const PartitionGrid& grid) {
  const auto parsed = parse_tokens(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError("--spacing " + text + ": " + *fault);
  const long long spacing = std::get<long long>(parsed), least = least_spacing(grid);
  if (spacing < least)
    throw UserError(
        fmt::format("--spacing {}: expected at least {} tokens, so that the table has no more than {} rows",
                    text, least, kMostPartitionRows));
  return spacing;
}

void declare(Arguments& a, PartitionOptions& o) {
  a.add("scenario", o.scenario, "Scenario file with a partition, or the name of a shipped one")
      .required()
      .offers(offered_partitions)
      .files();
  a.add("-o,--out", o.out, "Folder for the lookup table (JSON), all lengths (CSV) and the plot")
      .output_folder();
  a.add("--spacing", o.spacing,
        "Between the rows of the lookup table, for instance \"2Ki tokens\" (default: the scenario's)");
  a.add("--max-loss", o.max_loss,
        "Add rows until interpolation loses at most this: 0.013 is 1.3 % (default: the scenario's)")
      .real_range(0, 1);
  a.add("--granularity", o.granularity,
        "Boundaries are multiples of so many tokens (default: the scenario's)")
      .range(1, 1'000'000);
  add_threads(a, o.threads);
  add_settings(a, o.settings);
}

// With what the command line says of the study's grid.
api::PartitionQuestion question_of(Study& study, const PartitionOptions& o) {
  require_question<PartitionGrid>(study, o.scenario);
  api::PartitionQuestion q{o.scenario, "", {}, o.max_loss, o.granularity};
  require_partitions(study.study.model);
  if (o.spacing) q.spacing_tokens = spacing_of(*o.spacing, study.partition());
  api::ask_partitions(study, q);
  return q;
}

// Every partition with its time, to the last digit.
std::string times_text(const PartitionStudy& s) {
  std::string out;
  for (const PartitionCell& c : s.cells)
    out += fmt::format("{} {} {}\n", s.table.ranks(), c.searched.best.ttft.value,
                       fmt::join(c.searched.best.tokens, " "));
  return out;
}

void warn_of_idle(const Study& study, const PartitionOptions& o, const std::vector<PartitionStudy>& all) {
  std::string own;
  for (const PartitionStudy& s : all) own += times_text(s);
  warn_of_idle_settings(o.scenario, "", o.settings, study, own, [&](Study other) {
    question_of(other, o);
    std::string out;
    for (const int ranks : other.partition().processes)
      out += times_text(study_partitions(other.study, other.partition(), ranks, o.threads,
                                         simulated_chains(other.study, other.partition().tpa)));
    return out;
  });
}

void answer(const Study& study, const PartitionOptions& o, const Provenance& made_by,
            api::PartitionResult& result) {
  const PartitionGrid& grid = study.partition();
  print_notes(
      "{}: partitions of a KV-Runahead chain, ranks of {} GPU{}, boundaries at multiples of {} tokens\n{}\n",
      study.title, grid.tpa, grid.tpa == 1 ? "" : "s", grid.granularity, engine_text(study.study));
  const EvaluatorFactory events = simulated_chains(study.study, grid.tpa);
  std::vector<PartitionStudy> all;
  std::vector<ErrorsByContext> errors;
  std::vector<api::ChainPartitions> chains;
  for (const int ranks : grid.processes) {
    if (interrupted()) throw Cancelled{};
    {
      // Of each number of ranks anew: a length on twice the ranks takes about seven times as long.
      Progress progress(fmt::format("{}, {} ranks", study.study.model.name, ranks), Progress::terminal(),
                        "lengths");
      all.push_back(study_partitions(
          study.study, grid, ranks, o.threads, events,
          [&progress](std::uint64_t done, std::uint64_t total) { progress.show(done, total); }));
    }
    errors.push_back(errors_of_partitions(study, all.back()));
    print(study, all.back(), errors.back());
    chains.push_back(api::chain_partitions(all.back(), errors.back()));
  }
  warn_of_idle(study, o, all);
  result.models.push_back(api::model_partitions(study, std::move(chains)));
  if (o.out.empty()) return;
  api::PartitionResult of_model = result;
  of_model.models = {result.models.back()};
  write(study, all, errors, o.out, made_by, api::to_json(of_model));
}

int run(const PartitionOptions& o, const Provenance& made_by) {
  Scenario scenario = scenario_named(o.scenario, overrides_of("", o.settings));
  const std::vector<FolderClaim> claims = claim_folders(scenario, o.out);
  api::PartitionResult result{made_by.version, made_by.command, scenario.name, {}, {}};
  for (Study& study : scenario.studies) {
    result.question = question_of(study, o);
    require_memory(need_of_partitions(study.partition(), o.threads));
    answer(study, o, made_by, result);
  }
  if (made_by.document != nullptr) made_by.document->set(api::to_json(result));
  return 0;
}

}  // namespace

const Command kPartitionCommand{"partition", "How many tokens each rank of a KV-Runahead chain takes",
                                "shardline partition partition_llama7b_a100 -o out/partition",
                                prepare<PartitionOptions, declare, run>};

}  // namespace shardline::cli
