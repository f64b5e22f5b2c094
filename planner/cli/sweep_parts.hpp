// What sweeps of decode steps and of prefills have in common.
#pragma once

#include <filesystem>
#include <string>

#include "planner/cli/commands.hpp"
#include "planner/search.hpp"
#include "reports/plot.hpp"

namespace shardline::cli {

/// "1 392 155"
std::string count(std::uint64_t n);
/// A positive time given as `flag text`. Throws UserError.
Seconds time_target(const std::string& flag, const std::string& text);
/// Throws UserError, naming the right command, unless the study asks `wanted`.
void require_question(const Study& study, const std::string& scenario, Question wanted);
/// Whether one of the strategies is not exact: tables and files then have a column for it.
bool any_approximate(const Study& study);
/// "apb (approximate)"; of an exact strategy, its name.
std::string label(StrategyId id);
/// "28.9 %" of the exact attention's pairs.
std::string computed_text(const Study& study, const Plan& plan);
void print_counts(const SearchResult& r);
/// Each strategy's own frontier.
Plot frontier_plot(const Study& study, const SearchResult& r, const Provenance& made_by);
/// `stem`.svg and `stem`.png, or a line that says why there is none.
void write_picture(const Plot& plot, const std::filesystem::path& stem);

/// The answer and the files of one prefill study. False if no plan fits or meets the target.
bool report_prefill(const Study& study, const SearchResult& r, const SweepOptions& o,
                    const Provenance& made_by);

}  // namespace shardline::cli
