#include "planner/layers/stage_messages.hpp"

#include <algorithm>

#include "planner/engines/profile.hpp"
#include "planner/layers/step.hpp"
#include "planner/layers/streams.hpp"

namespace shardline {

namespace {

constexpr double kPosition = 4;  // bytes

PipelineStages messages_of(const Case& c) { return c.engine ? c.engine->stages : PipelineStages{}; }

// Positions that a row's index chose: of the kind of layer that makes the choice.
double choice_bytes(const Model& m) {
  double most = 0;
  for (const Attention& a : m.attentions)
    if (a.index && a.index->shared) most = std::max(most, kPosition * a.index->top_k);
  return most;
}

// f(names of the message and of what gathers it, bytes of a row).
template <class F>
void for_each_message(const Case& c, bool choice, F f) {
  const PipelineStages messages = messages_of(c);
  const double row = c.model.hidden * activation_size(c);
  f("hand-off", "gather hand-off", row * static_cast<double>(residual_rows(c.model)));
  if (messages.residual && c.model.residual.plain()) f("hand-off residual", "gather residual", row);
  if (choice && messages.choice) f("hand-off choice", "gather choice", choice_bytes(c.model));
}

// Of one rank, of `rows` of each attention group.
Bytes part_of(const Case& c, const Plan& p, Count rows, double row) {
  const double parts = messages_of(c).whole ? p.dp : stage_ranks(p);
  return Bytes(static_cast<double>(rows * p.dp) * row / parts);
}

}  // namespace

bool gathers_hand_off(const Case& c, const Plan& p) { return stage_ranks(p) > 1 && !messages_of(c).whole; }

void add_receive(ScheduleBuilder& b, const Case& c, const Plan& p, const RowOps& ops, bool choice) {
  b.begin_block("receive");
  for_each_message(c, choice, [&](const char*, const char* name, double row) {
    ops.exchange(name, Part::hop, OpKind::all_gather, {stage_ranks(p), 1},
                 [&](Count rows) { return ExchangeShape{part_of(c, p, rows, row)}; });
  });
  b.end_block();
}

void add_hand_off(ScheduleBuilder& b, const Case& c, const Plan& p, const RowOps& ops, bool choice) {
  b.begin_block("hand-off", true);  // a stage takes its next microbatch while it sends the one before
  for_each_message(c, choice, [&](const char* name, const char*, double row) {
    ops.exchange(name, Part::hop, OpKind::send_recv, {p.pp, p.ranks_per_stage()},
                 [&](Count rows) { return ExchangeShape{part_of(c, p, rows, row)}; });
  });
  b.end_block();
}

}  // namespace shardline
