// What a layer reads of the layers before it, and what becomes of its output, where that is not one residual
// stream: manifold-constrained hyper-connections (DeepSeek-V4) and attention residuals (Kimi-K3). Both are of
// tokens one by one: every rank has all of them whole, whatever else it shares. planner/README.md [P33].
#pragma once

#include "planner/layers/row_ops.hpp"

namespace shardline {

/// Rows of the model's width that a token takes from layer to layer, at most: its streams; or the sums of
/// blocks of layers, the embedding and the block that it is in.
Count residual_rows(const Model& model);

/// What a rank has beside the weights of one attention, or of one feed-forward network: the matrix of the
/// mixtures in float32, or a norm and a query.
Bytes residual_weights(const Case& c);

/// Before the sublayer: what it reads. Nothing where there is one stream.
void add_residual_in(ScheduleBuilder& b, const Case& c, const RowOps& ops, Part part);
/// Behind it: its output joins. Whether it did: of one stream the caller adds it.
bool add_residual_out(ScheduleBuilder& b, const Case& c, const RowOps& ops, Part part);
/// Behind the last layer, of these rows.
void add_residual_end(ScheduleBuilder& b, const Case& c, Count rows);

}  // namespace shardline
