#include "planner/handoff/handoff_flow.hpp"

#include <algorithm>

#include "models/model/cache.hpp"
#include "planner/layers/recurrent.hpp"

namespace shardline {

namespace {

// Columns of a whole matrix that a unit of a part has: the same number in each of some groups of columns.
struct UnitColumns {
  Whole whole = Whole::kv;
  std::vector<std::int64_t> first{0};  // of unit 0, group by group
  std::int64_t width = 0;
};

// Values and gates, of an index's rows too.
std::vector<UnitColumns> columns_of_uncompressed(const Attention& a) {
  const std::int64_t parts = rows_of_token(a), width = parts * a.head_dim;
  std::vector<UnitColumns> out{{Whole::row_value, {0}, width}, {Whole::row_gate, {0}, width}};
  if (a.index) {
    out.push_back({Whole::index_row_value, {0}, parts * a.index->dim});
    out.push_back({Whole::index_row_gate, {0}, parts * a.index->dim});
  }
  return out;
}

// Of every matrix that a part is of.
std::vector<UnitColumns> columns_of(const Attention& a, CachePart part) {
  switch (part) {
    case CachePart::heads:
      return {{Whole::kv, {0}, key_width(a) + value_width(a)}};
    case CachePart::latent:
      return {{Whole::latent, {0}, a.compression ? key_width(a) : a.kv_lora_rank + a.rope_dim}};
    case CachePart::index_key:
      return {{Whole::index_key, {0}, a.index->dim}};
    case CachePart::compressed:
      return {{Whole::row, {0}, key_width(a)}};
    case CachePart::uncompressed:
      return columns_of_uncompressed(a);
    case CachePart::state:
    case CachePart::conv_keys:
    case CachePart::conv_values:
      break;
  }
  const DeltaRule d = state_rule(a);
  const std::int64_t keys = std::int64_t{d.key_heads} * d.key_dim;
  if (part == CachePart::state) return {{Whole::state, {0}, std::int64_t{d.key_dim} * d.value_dim}};
  if (part == CachePart::conv_keys) return {{Whole::channels, {0, keys}, d.key_dim}};
  return {{Whole::channels, {2 * keys}, d.value_dim}};
}

// One matrix of one part of one kind of attention.
class PartFlow {
 public:
  PartFlow(Dataflow& flow, const Attention& a, const Handoff& h, const PartShape& part, UnitColumns columns,
           int layer, long long tokens)
      : flow_(flow), h_(h), part_(part), columns_(std::move(columns)), layer_(layer) {
    // States are those behind the last token; of a convolution its last rows are kept.
    if (part.part == CachePart::state)
      rest_ = {{0, tokens - 1, tokens}};
    else if (!of_tokens(part.part))
      rest_ = {{0, std::max(0LL, tokens - (state_rule(a).conv - 1)), tokens}};
    from_ = flow.slot("cache of prefill", 2);
    to_ = flow.slot("cache to decode", 2);
    declare(h.source, from_, 0, flow.inputs);
    declare(h.target, to_, h.source.ranks, flow.outputs);
  }

  void move(OpIndex op) const {
    for (const CachePiece& p : h_.pieces) {
      if (p.part != part_.part || p.kind != part_.kind || !p.layers.has(layer_)) continue;
      const CacheBox &source = h_.source.boxes[p.source], &target = h_.target.boxes[p.target];
      if (!of_tokens(p.part)) {
        move_rows(op, p, 0, 0, shardline::rows(rest_));
        continue;
      }
      for (const PageRun& r : list_runs(source.tokens, target.tokens, part_.page(h_.pages.source.block),
                                        part_.page(h_.pages.target.block)))
        move_rows(op, p, r.source_row - source.tokens.front().row, r.target_row - target.tokens.front().row,
                  r.rows);
    }
  }

 private:
  bool of_this(const CacheBox& b) const {
    return b.part == part_.part && b.kind == part_.kind && b.layers.has(layer_);
  }
  Tokens rows_of(const CacheBox& b) const {
    if (!of_tokens(b.part)) return rest_;
    Tokens list;
    for (const HeldTokens& held : b.tokens) append_tokens(list, 0, held);
    return list;
  }

  void declare(const CacheLayout& layout, SlotId slot, int first_rank, std::vector<Binding>& out) {
    for (const CacheBox& b : layout.boxes) {
      if (!of_this(b)) continue;
      const Tokens list = rows_of(b);
      Tokens columns;
      for (const std::int64_t first : columns_.first)
        columns.push_back({0, first + b.units.first * columns_.width, first + b.units.end * columns_.width});
      flow_.size(slot, first_rank + b.rank, shardline::rows(list), shardline::rows(columns));
      out.push_back(
          {slot, first_rank + b.rank, columns_.whole, flow_.tokens(list), flow_.tokens(columns), b.kind});
    }
  }

  void move_rows(OpIndex op, const CachePiece& p, std::int64_t source_row, std::int64_t target_row,
                 std::int64_t count) const {
    const CacheBox &source = h_.source.boxes[p.source], &target = h_.target.boxes[p.target];
    const std::int64_t width = columns_.width, n = p.units.size() * width;
    for (std::size_t g = 0; g < columns_.first.size(); ++g) {
      const auto column = [&](const CacheBox& b) {
        return (static_cast<std::int64_t>(g) * b.units.size() + p.units.first - b.units.first) * width;
      };
      flow_.move(op, {p.from,
                      h_.source.ranks + p.to,
                      {from_, source_row, count, column(source), n},
                      {to_, target_row, count, column(target), n}});
    }
  }

  Dataflow& flow_;
  const Handoff& h_;
  const PartShape& part_;
  const UnitColumns columns_;
  const int layer_;
  Tokens rest_;
  SlotId from_ = 0, to_ = 0;
};

}  // namespace

void lower_handoff(Schedule& s, const Case& c, const Handoff& h, int layer, long long tokens) {
  s.flow = std::make_shared<Dataflow>();
  ScheduleBuilder b(s);
  const int ranks = h.source.ranks + h.target.ranks;
  s.ranks_per_stage = ranks;
  b.begin_block("hand-off");
  const OpIndex op =
      b.exchange("hand over", Part::exchange, OpKind::all_to_all, {ranks, 1}, h.bytes() / ranks);
  for (const PartShape& part : h.source.parts) {
    if (h.source.kind_of[static_cast<std::size_t>(layer)] != part.kind) continue;
    const Attention& a = c.model.attentions[static_cast<std::size_t>(part.kind)];
    for (UnitColumns& columns : columns_of(a, part.part))
      PartFlow(*s.flow, a, h, part, std::move(columns), layer, tokens).move(op);
  }
  const BlockIndex block = b.end_block();
  b.run({block});
  b.end_stage();
}

}  // namespace shardline
