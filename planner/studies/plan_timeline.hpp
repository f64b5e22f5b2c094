// When the ops of one plan run: what traces and pictures show.
#pragma once

#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/search/evaluate.hpp"
#include "sim/engine/background.hpp"

namespace shardline {

/// blocks: one run of each block, back to back, on a representative rank. ranks: one run of each block on one
/// rank of every class, or on every rank beside the traffic of others, so that lag and messages between them
/// show. chunks: every stage and chunk of a prefill, as they fill the pipeline.
enum class TimelineKind : std::uint8_t { blocks, ranks, chunks };

struct PlayedOp {
  int rank = 0;
  Op op;
  OpCost cost;  // points into the evaluator's system
  Seconds offset;
  Span span;  // after `offset`
  // Beyond data; false where nothing was measured at all.
  bool unmeasured = false;
  bool critical = false;   // on the critical path, of its block where blocks are played one by one
  const char* block = "";  // blocks: which, and how often a pass runs it
  double runs = 0;
};

/// An op that waited for another on another rank or lane, by their places in PlanTimeline::ops: for every
/// message that it needs, and for what ended last of all that it needs. Where all members of a collective
/// came at the same time, each waited for the one before it in its group, the first for the last.
struct PlayedWait {
  std::size_t from = 0, to = 0;
  bool operator==(const PlayedWait&) const = default;
};

/// A part of the critical path of chunks: the layers of one, or its way to the next stage.
struct PlayedChunk {
  RoundTime time;
  bool hand_off = false;
};

struct PlanTimeline {
  TimelineKind kind = TimelineKind::blocks;
  int ranks = 1;
  // ranks: the first rank whose work is equal to that of each, shape by shape. Empty where `ops` are of one
  // rank for each class or block.
  std::vector<int> as_rank;
  int stage_ranks = 1;      // that a stage has, played or not
  std::vector<Lane> lanes;  // that every rank has
  std::vector<PlayedOp> ops;
  std::vector<PlayedWait> waits;
  std::vector<RoundTime> chunks;
  // What is critical, from the beginning to the end: places in `ops`, one for each task; or parts of chunks.
  std::vector<std::size_t> path;
  std::vector<PlayedChunk> chunk_path;
  std::optional<Background> background;  // the traffic of others, where the study has noise
  Seconds makespan;
};

/// Simulates the plan, which must pass check. `evaluator` is of the study's case and must outlive the result.
PlanTimeline plan_timeline(const Study& study, Evaluator& evaluator, const Plan& plan);

/// The same with every rank of a stage played by itself, equal ones too, so that a trace shows whole groups:
/// of what plan_timeline plays block by block, one run of each block, in their order. As plan_timeline where
/// that already has all ranks, for chunks, and where it would be more than `most_ops` ops.
PlanTimeline group_timeline(const Study& study, Evaluator& evaluator, const Plan& plan, std::size_t most_ops);

}  // namespace shardline
