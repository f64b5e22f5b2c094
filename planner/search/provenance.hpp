// What a prediction rests on: parts of its time that are within measured shapes, fitted, extrapolated or
// assumed, how far these may be off, and where the costs of its system are from. planner/README.md [P9],
// [P12].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/search/step_power.hpp"

namespace shardline {

/// Parts of the time on the critical path; they add up to 1, or are all 0 where nothing takes time.
struct Shares {
  double measured = 0, fitted = 0, extrapolated = 0, assumed = 0;
  double unmeasured() const { return extrapolated + assumed; }
  Shares& operator+=(const Shares& other);
  Shares operator*(double weight) const;
};

Shares shares(const Breakdown& breakdown);

/// What a time rests on, by how much of it the prices may be off [P12], and what a board draws over it [P32].
struct Rating {
  Shares shares;
  ErrorTerms errors;
  BoardWatts watts;  // all 0: nothing is known of the system's boards
  Seconds time;      // of the step: a TTL or TTFT of bare steps, whatever a point's own time is of
  /// Of a time that consists of several, as Shares; `time` is then the mean of theirs.
  Rating& operator+=(const Rating& other);
  Rating operator*(double weight) const {
    return {shares * weight, errors * weight, watts * weight, time * weight};
  }
};
/// Of one plan that passes check.
Rating rating_of(Evaluator& evaluator, const Plan& plan);
/// Of plans that pass check, in their order. Results do not depend on `threads` (0: all cores).
std::vector<Rating> ratings_of(const Case& c, AllReduceRule rule, std::span<const Plan> plans, int threads);

/// What the times of these plans consist of, likewise.
std::vector<Breakdown> breakdowns_of(const Case& c, AllReduceRule rule, std::span<const Plan> plans,
                                     int threads);

/// Where the costs of a system are from, in a line: source, date and, for a borrowed
/// calibration, whose it is; or that they are assumptions.
std::string costs_text(const System& system);

/// The types that the model's checkpoint and the scenario give, class by class, in a line that ends with
/// a line's end; empty without a checkpoint.
std::string checkpoint_text(const Case& c);
/// Which types nobody has said, neither the scenario nor the model's checkpoint, in a line that ends with a
/// line's end: "  assumed: KV cache fp8 (...)". Empty where all are given.
std::string precision_text(const Case& c);

/// What the import of the case's model left out or took for granted (Model::notes), as warnings; nothing of
/// models of the catalogue, whose own file says it.
std::vector<Diagnostic> model_notes(const Case& c);

/// Of decode steps of a model with chunks: how much of its chunk a request reads at this context, and how
/// much at others, for their time goes up and down with the context. Empty for other steps and models.
std::string chunk_text(const Case& c);
/// A line on what drafts yield, of a case that has them; else empty.
std::string drafts_text(const Case& c);

}  // namespace shardline
