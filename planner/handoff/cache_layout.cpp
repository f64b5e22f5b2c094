#include "planner/handoff/cache_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "models/model/cache.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/head_exchange.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/stages.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(CachePart part) {
  switch (part) {
    case CachePart::heads:
      return "keys and values";
    case CachePart::latent:
      return "latents";
    case CachePart::index_key:
      return "index keys";
    case CachePart::compressed:
      return "compressed rows";
    case CachePart::uncompressed:
      return "values and gates of rows to come";
    case CachePart::state:
      return "states";
    case CachePart::conv_keys:
      return "convolution, keys";
    case CachePart::conv_values:
      return "convolution, values";
  }
  return "";
}

int CacheLayout::layers(int kind, Span32 among) const {
  int n = 0;
  for (int i = among.first; i < among.end; ++i) n += kind_of[static_cast<std::size_t>(i)] == kind ? 1 : 0;
  return n;
}

namespace {

constexpr double kConvBytes = 2;  // BF16, whatever the state's type [M14]

// With those of the modules that draft, behind the model's own.
std::vector<int> kinds_of_layers(const Model& m, bool drafts) {
  std::vector<int> kinds;
  for (const LayerRun& run : m.runs)
    kinds.insert(kinds.end(), static_cast<std::size_t>(run.count), static_cast<int>(run.attention));
  if (drafts) kinds.insert(kinds.end(), static_cast<std::size_t>(m.drafts->count), draft_layer(m)->attention);
  return kinds;
}

// Of the stage, as memory_use() has them: modules are on the last one.
Span32 layers_on_stage(const CacheLayout& layout, const Case& c, const Plan& plan, int stage) {
  const auto [first, end] = layers_of_stage(c, plan.pp, stage);
  return {first, stage + 1 < plan.pp ? end : static_cast<int>(layout.kind_of.size())};
}

void add_state_parts(const Attention& a, int kind, std::vector<PartShape>& out) {
  const DeltaRule d = state_rule(a);
  const double taps = d.conv - 1;
  out.push_back(
      {CachePart::state, kind, d.value_heads, 1.0 * d.key_dim * d.value_dim * bytes_per_element(d.state), 1});
  out.push_back({CachePart::conv_keys, kind, d.key_heads, 2.0 * d.key_dim * taps * kConvBytes, 1});
  out.push_back({CachePart::conv_values, kind, d.value_heads, 1.0 * d.value_dim * taps * kConvBytes, 1});
}

void add_compressed_parts(const Attention& a, int kind, Dtype kv, std::vector<PartShape>& out) {
  const double row = row_bytes(a, kv), key = index_row_bytes(a, kv);
  const int ratio = a.compression->ratio;
  out.push_back({CachePart::latent, kind, 1, row, 1, 1, kWindowPage});
  if (ratio == 0) return;
  if (key > 0) out.push_back({CachePart::index_key, kind, 1, key, 1, ratio});
  out.push_back({CachePart::compressed, kind, 1, row, 1, ratio});
  // Those of an index's rows lie apart.
  const double tokens = 1.0 * rows_of_token(a) * ratio;
  out.push_back({CachePart::uncompressed, kind, 1, compressor_bytes(a).value / tokens, a.index ? 2 : 1, 1,
                 uncompressed_page(a)});
}

// What each rank of a stage has of a request's tokens, as its strategy deals them out; of one attention
// group.
struct RankTokens {
  HeldList own, received;
};

ContextLayout last_chunk(const Case& prompt, const Plan& p) {
  ContextLayout last;
  ChunkLayouts chunks(prompt, p);
  while (std::optional<PrefillLayout> round = chunks.next()) last = std::move(round->dealt);
  return last;
}

// As the last round of a prefill leaves them.
std::vector<RankTokens> context_tokens(const Case& c, Plan p, long long tokens) {
  Case prompt = c;
  prompt.batch = prefill_batch({{0, tokens}});
  prompt.placement = nullptr;
  p.batch = 1;
  const bool chunks = strategy(p.strategy).prefills && p[kPrefillChunk] > 0;
  const ContextLayout dealt = chunks ? last_chunk(prompt, p) : step_layout(prompt, p).dealt;
  const auto of_heads = strategy(p.strategy).head_ranks;
  const int size = of_heads != nullptr && !has_latents(c.model) ? of_heads(p) : 1;
  const ContextLayout held = size > 1 ? grouped_layout(dealt, size) : dealt;
  std::vector<RankTokens> out;
  for (std::size_t k = 0; k < held.keys.size(); ++k) {
    Tokens own;
    for (const Interval& i : held.keys[k]) {
      if (i.request != kPadding) own.push_back({0, i.begin, i.end, i.stride});
    }
    RankTokens rank;
    rank.own = held_list(std::move(own));
    // A chain sends every rank what all before it computed.
    const long long before = dealt.first_key.empty() ? 0 : dealt.first_key[k];
    if (before > 0) rank.received.push_back({0, before});
    for (HeldTokens& h : rank.own) h.row += before;
    out.push_back(std::move(rank));
  }
  return out;
}

// Boxes of one attention kind on the ranks of one stage.
class KindBoxes {
 public:
  KindBoxes(const Case& c, const Plan& p, int kind, CacheSide side, long long tokens, int group)
      : c_(c),
        p_(p),
        a_(c.model.attentions[static_cast<std::size_t>(kind)]),
        kind_(kind),
        group_(group),
        side_(side),
        tokens_(tokens) {}

  void add(const PartShape& part, const std::vector<RankTokens>& dealt, std::vector<CacheBox>& out) const {
    if (!of_tokens(part.part)) return add_states(part, out);
    p_.cp > 1 ? add_dealt(part, dealt, out) : add_shared(part, out);
  }

 private:
  CacheBox box(int rank, const PartShape& part, Span32 units) const {
    return {rank, part.part, kind_, {}, units, {}, {}};
  }
  // KV heads of a rank whose first query head is this; one unit of what heads share.
  Span32 units(const PartShape& part, int first_kv, int count) const {
    if (part.part != CachePart::heads) return {0, 1};
    return {first_kv, std::min(a_.kv_heads, first_kv + count)};
  }

  // Those that a member of the sharers has.
  HeldTokens held_by(const PartShape& part, const CacheShare& share, int member) const {
    const auto [first, end] = part_rows(a_, part.part, side_, tokens_);
    if (part.part == CachePart::uncompressed) return HeldTokens{0, end}.from(first);  // all keep all of them
    return sharer_tokens(part.ratio > 1 ? row_share(a_, share) : share, member, first, end);
  }

  // Caches under TP, or shared by sequence: as CacheFlow binds them.
  void add_shared(const PartShape& part, std::vector<CacheBox>& out) const {
    const CacheShare share = cache_share(c_, a_, p_);
    for (int member = 0; member < share.sharers.size; ++member) {
      for (int lane = 0; lane < share_lanes(share, p_); ++lane) {
        const int first = kv_head_of(a_, std::int64_t{lane} * share.attended);
        CacheBox b = box(sharer_rank(share, p_, group_, member, lane), part,
                         units(part, first, local_kv_heads(a_, p_)));
        if (b.units.size() == 0) continue;  // more ranks than query heads
        const HeldTokens held = held_by(part, share, member);
        if (held.size() > 0) b.tokens.push_back(held);
        out.push_back(std::move(b));
      }
    }
  }

  // Tokens dealt out to context-parallel ranks: as ContextStep and HeadExchange bind them.
  void add_dealt(const PartShape& part, const std::vector<RankTokens>& dealt,
                 std::vector<CacheBox>& out) const {
    const auto of_heads = strategy(p_.strategy).head_ranks;
    const int size = of_heads != nullptr ? of_heads(p_) : 1;
    const LocalHeads tp = prefill_heads(a_, p_);
    for (int k = 0; k < p_.cp; ++k) {
      for (int t = 0; t < p_.tpa; ++t) {
        int first = kv_head_of(a_, std::int64_t{t} * tp.q), count = tp.kv;
        if (size > 1) {
          first += first_split_kv(tp, size, k);
          count = split_heads(tp, size).kv;
        }
        CacheBox b = box(k * p_.tpa + t, part, units(part, first, count));
        if (dealt.empty()) {  // every rank keeps all tokens, and the first alone hands them over
          const HeldTokens all = held_by(part, CacheShare{}, 0);
          if (all.size() > 0) (k == 0 ? b.tokens : b.received) = {all};
        } else {
          const std::int64_t begin = part_rows(a_, part.part, side_, tokens_).first;
          b.tokens = from(dealt[static_cast<std::size_t>(k)].own, begin);
          b.received = from(dealt[static_cast<std::size_t>(k)].received, begin);
        }
        out.push_back(std::move(b));
      }
    }
  }

  // As RecurrentFlow binds them.
  void add_states(const PartShape& part, std::vector<CacheBox>& out) const {
    for (int r = 0; r < p_.group(); ++r) {
      const auto values = state_heads(a_, p_, r);
      const auto own = part.part == CachePart::conv_keys ? key_heads_of(state_rule(a_), values) : values;
      if (own.first < own.second)
        out.push_back(
            box(group_ * p_.group() + r, part, {static_cast<int>(own.first), static_cast<int>(own.second)}));
    }
  }

  const Case& c_;
  const Plan& p_;
  const Attention& a_;
  const int kind_, group_;
  const CacheSide side_;
  const std::int64_t tokens_;
};

}  // namespace

std::vector<PartShape> part_shapes(const Case& c) {
  std::vector<PartShape> out;
  for (std::size_t i = 0; i < c.model.attentions.size(); ++i) {
    const Attention& a = c.model.attentions[i];
    const auto kind = static_cast<int>(i);
    if (a.none()) continue;
    if (a.recurrent()) {
      add_state_parts(a, kind, out);
      continue;
    }
    if (a.compression) {
      add_compressed_parts(a, kind, c.precision.kv, out);
      continue;
    }
    const double key = index_row_bytes(a, c.precision.kv), row = kv_bytes_per_token(c, a, Plan{}) - key;
    if (has_latents(a))
      out.push_back({CachePart::latent, kind, 1, row, 1});
    else
      out.push_back({CachePart::heads, kind, a.kv_heads, row / a.kv_heads, 2});
    if (key > 0) out.push_back({CachePart::index_key, kind, 1, key, 1});
  }
  return out;
}

std::pair<std::int64_t, std::int64_t> part_rows(const Attention& a, CachePart part, CacheSide side,
                                                long long tokens) {
  if (!of_tokens(part)) return {0, 1};
  if (a.compression && (part == CachePart::compressed || part == CachePart::index_key))
    return {0, rows_of_tokens(a, tokens)};
  if (part == CachePart::uncompressed) {
    // The next row, and of rows that overlap those tokens of the last one that it is made of as well.
    const std::int64_t rows = rows_of_tokens(a, tokens) - (rows_of_token(a) - 1);
    return {std::max<std::int64_t>(0, rows * a.compression->ratio), tokens};
  }
  // The query behind the prompt sees less of a window than its last token did.
  return {a.reach.first(side == CacheSide::prefilled ? tokens - 1 : tokens), tokens};
}

CacheLayout cache_layout(const Case& c, const Plan& plan, CacheSide side, long long tokens, int group) {
  SL_CHECK(group >= 0 && group < plan.dp && tokens > 0, "a request of some tokens in a group of the plan");
  CacheLayout out;
  out.ranks = plan.gpus();
  out.parts = part_shapes(c);
  out.kind_of = kinds_of_layers(c.model, plan[kDrafts] > 0);
  // A row is made of tokens of several ranks: under compressed attention all of them make all rows [C24].
  const bool dealt_out = plan.cp > 1 && !keeps_whole_caches(c, plan) && !has_compression(c.model);
  const std::vector<RankTokens> dealt =
      dealt_out ? context_tokens(c, plan, tokens) : std::vector<RankTokens>{};
  for (const PartShape& part : out.parts) {
    const KindBoxes kind(c, plan, part.kind, side, tokens, group);
    std::vector<CacheBox> of_stage;
    kind.add(part, dealt, of_stage);
    for (int s = 0; s < plan.pp; ++s) {
      const Span32 layers = layers_on_stage(out, c, plan, s);
      if (out.layers(part.kind, layers) == 0) continue;
      for (CacheBox b : of_stage) {
        b.rank += s * plan.ranks_per_stage();
        b.layers = layers;
        out.boxes.push_back(std::move(b));
      }
    }
  }
  std::stable_sort(out.boxes.begin(), out.boxes.end(), [](const CacheBox& a, const CacheBox& b) {
    return std::tuple(a.kind, a.part, a.rank) < std::tuple(b.kind, b.part, b.rank);
  });
  return out;
}

std::optional<std::string> no_handoff(const Plan& plan, CacheSide side) {
  const Strategy& s = strategy(plan.strategy);
  const std::string name(to_string(plan.strategy));
  if (!s.exact)
    return name + " is approximate: its cache is not the one that a server for answers would have built";
  if (side == CacheSide::prefilled && !s.prefills && !s.mixes)
    return name + " has no steps with prompts: a server for prompts runs another strategy";
  if (side == CacheSide::to_decode && !s.decodes)
    return name + " has no steps that decode: a server for answers runs another strategy";
  return std::nullopt;
}

const PartShape& shape_of(const CacheLayout& layout, const CacheBox& box) {
  for (const PartShape& p : layout.parts) {
    if (p.part == box.part && p.kind == box.kind) return p;
  }
  SL_CHECK(false, "a box is of a part of the model");
  return layout.parts.front();
}

Bytes box_bytes(const CacheLayout& layout, const CacheBox& box) {
  const double rows = of_tokens(box.part) ? static_cast<double>(size(box.tokens) + size(box.received)) : 1;
  return Bytes(rows * box.units.size() * layout.layers(box.kind, box.layers) *
               shape_of(layout, box).row_bytes);
}

}  // namespace shardline
