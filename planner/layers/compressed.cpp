#include "planner/layers/compressed.hpp"

#include <algorithm>
#include <cmath>

#include "models/model/cache.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/sparse_attention.hpp"

namespace shardline {

namespace {

const CacheShare kWholeRows{1, 1, {1, 1}, 1, ValueUp::before};

// Rows of CSA overlap: each is made of twice as many tokens, whose projections have a part for both rows.
int row_parts(const Attention& a) { return a.index ? 2 : 1; }
// As engines count: 1 is a window alone (vllm models/deepseek_v4/attention.py, compress_ratio).
Count ratio_of(const Attention& a) { return std::max(1, a.compression->ratio); }

template <class F>
Count over_segments(std::span<const Segment> segments, F f) {
  Count sum = 0;
  for (const Segment& s : segments) sum += s.count * f(s);
  return sum;
}

// Sum over the first `tokens` tokens of a request of f(rows that each sees), where sums(n) is that of f over
// the row counts 1 to n: tokens of as many rows as one stands for see the same ones.
template <class F, class Sums>
Count over_tokens(const Attention& a, long long tokens, F f, Sums sums) {
  const Count ratio = ratio_of(a), rows = tokens / ratio;
  if (rows == 0) return 0;
  return ratio * sums(rows - 1) + (tokens % ratio + 1) * f(rows);
}

// Numbers that a token's values, or its gates, have for rows.
Count row_columns(const Attention& a) {
  return Count{row_parts(a)} * (a.head_dim + (a.index ? a.index->dim : 0));
}

Dtype projections_of(const Case& c) { return c.precision.of(Module::attention).weights; }

}  // namespace

long long rows_of_tokens(const Attention& a, long long tokens) {
  return a.compression->ratio > 0 ? tokens / a.compression->ratio : 0;
}

CacheShare row_share(const Attention& a, const CacheShare& tokens) {
  CacheShare rows = tokens;
  rows.block = std::max(1, tokens.block / static_cast<int>(ratio_of(a)));
  return rows;
}

Count row_pairs(const Attention& a, const CacheShare& rows, int member, const Segment& s) {
  if (a.compression->ratio == 0) return 0;
  const auto upto = [&](long long tokens) {
    return over_tokens(
        a, tokens, [&](long long n) { return Count{tokens_on_member(rows, member, 0, n)}; },
        [&](long long n) {
          return n > 0 ? pairs_on_member(rows, member, Reach{}, {0, n}) : 0;
        });
  };
  return upto(s.length()) - upto(s.cached);
}

Count chosen_row_pairs(const Attention& a, const Segment& s) {
  if (!a.index) return row_pairs(a, kWholeRows, 0, s);
  const Count most = a.index->top_k;
  const auto upto = [&](long long tokens) {
    return over_tokens(
        a, tokens, [&](long long n) { return std::min<Count>(n, most); },
        [&](long long n) {
          const Count growing = std::min<Count>(n, most);
          return growing * (growing + 1) / 2 + (n - growing) * most;
        });
  };
  return upto(s.length()) - upto(s.cached);
}

Count longest_rows(const Attention& a, const CacheShare& share, std::span<const Segment> segments) {
  const CacheShare rows = row_share(a, share);
  Count most = 0;
  for (const Segment& s : segments)
    most = std::max<Count>(most, tokens_on_fullest(rows, rows_of_tokens(a, s.length())));
  return most;
}

Bytes compressed_cache_bytes(const Case& c, const Attention& a, const Plan& p) {
  const CacheShare rows = row_share(a, cache_share(c, a, p));
  const double row = row_bytes(a, c.precision.kv), key = index_row_bytes(a, c.precision.kv);
  double bytes = cached_rows(c, a, p) * row;
  for (const Asked asked : {Asked::decode, Asked::prefill}) {
    for (const Segment& s : asked_segments(c, p, asked)) {
      const auto held = static_cast<double>(tokens_on_fullest(rows, rows_of_tokens(a, s.length())));
      bytes += s.count * (held * (row + key) + compressor_bytes(a).value);
    }
  }
  return Bytes(bytes * p.in_flight);
}

OutputGroups output_groups(const Attention& a, const Plan& p) {
  const Count width = out_proj_width(a, p), all = a.compression->o_groups,
              group = Count{a.q_heads} * a.head_dim / all;
  // A slice that divides no group, and is no multiple of one, may touch one more at each end.
  Count groups = 1;
  if (width % group == 0)
    groups = width / group;
  else if (group % width != 0)
    groups = std::min(all, width / group + 2);
  return {groups, (width + groups - 1) / groups};
}

AttentionWeights compressed_weights(const Case& c, const Attention& a, const Plan& p) {
  const double h = c.model.hidden, rank = a.q_lora_rank;
  const OutputGroups out = output_groups(a, p);
  const auto outputs = static_cast<double>(out.groups * a.compression->o_rank);
  AttentionWeights w;
  w.projections =
      h * (rank + a.head_dim) + rank * static_cast<double>(cache_share(c, a, p).projected) * a.head_dim;
  if (a.index) w.index = a.index->heads * (rank * a.index->dim + h);
  w.out_proj = static_cast<double>(out.width) * outputs + outputs * h;
  if (a.compression->ratio > 0) w.compressors = 2 * h * static_cast<double>(row_columns(a));
  return w;
}

// Values and gates stay in the activations' type where all else is quantised (vllm
// models/deepseek_v4/compressor.py, fused_wkv_wgate).
void add_compressed_projections(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                                const RowOps& ops) {
  const Count h = c.model.hidden, q = cache_share(c, a, p).projected;
  ops.gemm("q and kv down", Part::qkv, Module::attention, h, a.q_lora_rank + a.head_dim);
  ops.gemm("q up", Part::qkv, Module::attention, a.q_lora_rank, q * a.head_dim);
  if (a.compression->ratio > 0) {
    const Dtype act = c.precision.activations;
    ops.each(
        [&](Count rows) {
          return GemmShape{rows, h, 2 * row_columns(a)};
        },
        [&](const GemmShape& s) { return b.gemm("values and gates of rows", Part::qkv, act, act, s); });
  }
  if (!a.index) return;
  ops.gemm("index queries", Part::qkv, Module::index, a.q_lora_rank, Count{a.index->heads} * a.index->dim);
  ops.gemm("index weights", Part::qkv, Module::index, h, a.index->heads);
}

// The first product is of blocks on a diagonal: as many weights and operations as one matrix of a block's
// width by all groups' outputs.
void add_grouped_outputs(const Case& c, const Attention& a, const Plan& p, const RowOps& ops) {
  const OutputGroups out = output_groups(a, p);
  const Count outputs = out.groups * a.compression->o_rank;
  ops.gemm("group outputs", Part::out_proj, Module::out_proj, out.width, outputs);
  ops.gemm("out projection", Part::out_proj, Module::out_proj, outputs, c.model.hidden);
}

namespace {

// Pairs of the rank with most of them, where ranks share caches. What an index chose lies on them as the rows
// do: evenly.
Count shared_pairs(const Attention& a, const CacheShare& share, std::span<const Segment> segments) {
  const CacheShare rows = row_share(a, share);
  const auto chosen = [&](const Segment& s, int member) {
    const Count own = row_pairs(a, rows, member, s);
    if (!a.index || own == 0) return own;
    const double part = static_cast<double>(own) / static_cast<double>(row_pairs(a, kWholeRows, 0, s));
    return static_cast<Count>(std::ceil(static_cast<double>(chosen_row_pairs(a, s)) * part - 1e-6));
  };
  return on_fullest(share, a.reach, [&](int member) {
    return over_segments(segments, [&](const Segment& s) {
      return pairs_on_member(share, member, a.reach, s) + chosen(s, member);
    });
  });
}

}  // namespace

AttendSparseShape compressed_attend_shape(const Case& c, const Attention& a, const Plan& p,
                                          const CacheShare& share, std::span<const Segment> segments,
                                          Asked asked) {
  const LocalHeads h = decode_heads(a, p);
  const CacheShare rows = row_share(a, share);
  AttendSparseShape s;
  s.q_heads = share.attended;
  s.qk_dim = h.qk;
  s.v_dim = h.v;
  s.row_bytes = count_of(row_bytes(a, c.precision.kv));
  s.q_rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.kept = a.reach.tokens + (a.index ? Count{a.index->top_k} : longest_rows(a, share, segments));
  s.index_heads = a.index ? a.index->heads : 0;
  s.ratio = ratio_of(a);
  s.hidden = c.model.hidden;
  s.projections = projections_of(c);
  s.prompts = asked == Asked::prefill;
  s.candidates = over_segments(segments, [](const Segment& r) { return pairs_of(Reach{}, r); });
  s.spread = share.sharers.size > 1 && a.index;
  s.pairs = share.sharers.size > 1 ? shared_pairs(a, share, segments)
                                   : over_segments(segments, [&](const Segment& r) {
                                       return pairs_of(a.reach, r) + chosen_row_pairs(a, r);
                                     });
  const Count held = on_fullest(share, a.reach, [&](int member) {
    return over_segments(segments, [&](const Segment& r) {
      return Count{tokens_on_member(share, member, first_seen(a.reach, r), r.length()) +
                   tokens_on_member(rows, member, 0, rows_of_tokens(a, r.length()))};
    });
  });
  s.kv_rows = asked == Asked::decode ? s.pairs : std::min(s.pairs, held);
  return s;
}

IndexLogitsShape row_logits_shape(const Case& c, const Attention& a, const CacheShare& share,
                                  std::span<const Segment> segments, Asked asked) {
  const CacheShare rows = row_share(a, share);
  IndexLogitsShape s;
  s.q_heads = share.attended;
  s.heads = a.index->heads;
  s.dim = a.index->dim;
  s.projections = projections_of(c);
  s.prompts = asked == Asked::prefill;
  s.pairs = over_segments(segments, [&](const Segment& r) { return row_pairs(a, rows, 0, r); });
  s.keys = over_segments(segments, [&](const Segment& r) {
    return Count{tokens_on_fullest(rows, rows_of_tokens(a, r.length()))};
  });
  s.key_bytes = count_of(index_row_bytes(a, c.precision.kv));
  s.q_rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.longest = longest_rows(a, share, segments);
  s.ratio = ratio_of(a);
  s.hidden = c.model.hidden;
  return s;
}

TopKShape row_choice_shape(const Case& c, const Attention& a, const CacheShare& share,
                           std::span<const Segment> segments, Asked asked) {
  const CacheShare rows = row_share(a, share);
  // The tokens of a request that see more rows on the rank than are chosen begin with this many.
  const long long length = first_with_more(rows, a.index->top_k) * ratio_of(a);
  TopKShape s;
  s.q_heads = share.attended;
  s.index_heads = a.index->heads;
  s.projections = projections_of(c);
  s.prompts = asked == Asked::prefill;
  s.kept = a.index->top_k;
  s.rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.longest = longest_rows(a, share, segments);
  s.choosing = over_segments(segments, [&](const Segment& r) { return from_length(r, length).fresh; });
  s.scores = over_segments(segments,
                           [&](const Segment& r) { return row_pairs(a, rows, 0, from_length(r, length)); });
  s.ratio = ratio_of(a);
  s.hidden = c.model.hidden;
  return s;
}

}  // namespace shardline
