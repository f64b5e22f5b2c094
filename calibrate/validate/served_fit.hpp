// The numbers of an engine profile from measured serving, always leaving one model out.
// calibrate/README.md [F10].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/validate/served_rows.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

/// Seconds of the request path that a fit begins with: where no row of few users has a TTFT, nothing moves
/// it.
inline constexpr double kAssumedPath = 2e-2;

/// A row with the times of its steps by kernels alone.
struct TimedRow {
  ServedRow row;
  ServedLoad load;
  ServedTimes kernels;
  bool preempts = false;  // memory does not hold its users with whole answers: preempts()
  std::shared_ptr<const EngineProfile> engine;  // as it was started, without a host
  ErrorTerms prices = {};                       // of the step that decodes between prompts, its host left out
};

/// Of predicted / measured.
ServedError served_error(std::string of, const std::vector<double>& ratios);

struct LeftOutModel {
  std::string label;
  HostTimes host;                  // fitted to the others
  std::vector<double> tpot, ttft;  // predicted / measured of its rows; 0 where no TTFT was measured
  std::vector<const TimedRow*> rows;
};

/// Part of rows of models left out inside the band of TPOT or TTFT that the other models make.
struct ServedCoverage {
  std::string of;  // "TTFT (drawn lengths) of 5 to 16 users"
  int rows = 0;
  int models = 0;      // that the rows are of
  double covered = 0;  // 0 to 1; negative: no others make a band
  int counted = 0;     // of the rows: those of which other models have kFewestOfBand rows or more
};
inline constexpr std::size_t kFewestOfBand = 5;  // two points say nothing of how far apart points lie

/// Rows of a version of an engine; "" where the table names none.
struct MeasuredVersion {
  std::string version;
  int rows = 0;
};
std::vector<MeasuredVersion> versions_of(const std::vector<TimedRow>& rows);

struct ServedFit {
  HostTimes host;  // fitted to all rows
  std::vector<LeftOutModel> models;
  ServedBands bands;  // of the rows of models left out, with tables by model, by users and of all
  /// Of TPOT of models left out, had every row the other kind of host than its engine's source says. Shown,
  /// not chosen by.
  ServedError other_host;
  std::vector<ServedCoverage> tpot_covered, ttft_covered;
};

/// The scenario of a row's server, for plans of any strategy that rows have.
std::string served_scenario(const ServedRow& row, const Catalogs& catalogs);

/// Times of the rows of an engine by its kernels, its host times left out; of those that its profile has room
/// for.
std::vector<TimedRow> time_rows(const std::vector<ServedRow>& rows, const EngineProfile& engine,
                                const Catalogs& catalogs);

/// What the engine's host adds to times by kernels: as lowering a step with it does, but that chunks of a
/// prompt are taken to be equally long. `engine` is the row's.
ServedTimes with_host(const TimedRow& row, const EngineProfile& engine);
/// A profile as a row's engine was started.
EngineProfile as_started(EngineProfile engine, const ServedRow& row);

/// What a row's engine serves with such a host.
Served served_by(const HostTimes& host, const TimedRow& row);

/// [F10] Least robust relative error of TPOT, and of TTFT of at most four users; a model counts as the root
/// of its rows. The form is given by the engines' sources, not by rows: each row has the kind of host that
/// its engine's version has, and none a host time of prompts' tokens, which engines move in bulk
/// (numpy in vLLM's v1/worker/gpu_model_runner.py, _prepare_inputs; torch in SGLang's
/// managers/schedule_batch.py, prepare_for_extend; pinned tensors in TensorRT-LLM's
/// _torch/pyexecutor/model_engine.py, _prepare_tp_inputs): what they loop over are requests.
HostTimes fit_host(const std::vector<const TimedRow*>& rows);
/// With every model left out in turn.
ServedFit fit_engine(const std::vector<TimedRow>& rows);

/// Errors of TPOT by model and system and by users, of TTFT by lengths and users.
std::vector<ServedError> served_errors(const std::vector<LeftOutModel>& models);

inline constexpr double kFewUsers = 4;  // whose TTFT is that of a prompt, not of a queue

}  // namespace shardline
