#include "tests/fuzz/step_model.hpp"

#include "sim/base/error.hpp"

namespace shardline::fuzz {

namespace {

Reach reach_of(Choices& choose, bool small) {
  const auto kind = choose.of({ReachKind::full, ReachKind::window, ReachKind::chunk});
  if (kind == ReachKind::full) return {};
  return {kind, small ? 1 + choose.below(20) : choose.number(12)};
}

Attention gqa(Choices& choose, int unit, bool small, bool local) {
  Attention a;
  a.kv_heads = choose.of({1, 2, 4, 8});
  a.q_heads = a.kv_heads * choose.of({1, 2, 4, 3});
  a.head_dim = 4 * unit;
  if (local) {
    a.reach = reach_of(choose, small);
    a.sinks = choose.once_in(3);
    if (choose.once_in(4)) a.v_dim = a.head_dim / 2;
  }
  if (!small) {
    a.k_eq_v = choose.once_in(8) && a.v_dim == 0;
    a.gate = choose.of({OutputGate::none, OutputGate::none, OutputGate::head, OutputGate::full});
  }
  return a;
}

Attention blocks(Choices& choose, int unit) {
  Attention a = gqa(choose, unit, true, false);
  const int top_k = 2 + choose.below(3);
  a.index = SparseIndex{.heads = a.kv_heads,
                        .dim = 4 * unit,
                        .top_k = top_k,
                        .block = choose.of({4, 2, 8}),
                        .init_blocks = choose.below(2),
                        .local_blocks = 1};
  return a;
}

Attention mla(Choices& choose, int unit, bool small, bool indexed) {
  Attention a;
  a.kind = AttentionKind::mla;
  a.q_heads = choose.of({4, 8, 2, 16});
  a.kv_heads = 1;
  a.kv_lora_rank = 6 * unit;
  a.rope_dim = 2 * unit;
  a.nope_dim = 3 * unit;
  a.v_dim = 4 * unit;
  if (indexed || choose.once_in(2)) a.q_lora_rank = 12 * unit;
  if (indexed)
    a.index = SparseIndex{
        .heads = 1 + choose.below(4), .dim = 4 * unit, .top_k = 1 + choose.below(small ? 12 : 255)};
  return a;
}

// As DeepSeek-V4's: a window of single tokens, beside it one row for every `ratio` tokens, of which an index
// may choose.
Attention compressed(Choices& choose, int unit, bool small) {
  Attention a;
  a.kind = AttentionKind::compressed;
  a.q_heads = choose.of({4, 8, 2, 16});
  a.kv_heads = 1;
  a.head_dim = 8 * unit;
  a.rope_dim = 2 * unit;
  a.q_lora_rank = 12 * unit;
  a.reach = {ReachKind::window, small ? 1 + choose.below(20) : choose.number(8)};
  a.sinks = choose.once_in(3);
  a.compression =
      Compression{.ratio = choose.of({0, 4, 16, 8}), .o_groups = choose.of({2, 1}), .o_rank = 4 * unit};
  if (a.compression->ratio > 0 && choose.once_in(2))
    a.index = SparseIndex{
        .heads = 1 + choose.below(4), .dim = 4 * unit, .top_k = 1 + choose.below(small ? 12 : 255)};
  return a;
}

Attention delta(Choices& choose, int unit) {
  Attention a;
  a.kind = AttentionKind::delta;
  const bool channel = choose.once_in(2);
  const int heads = choose.of({4, 8, 2});
  a.gate = channel ? OutputGate::narrow : OutputGate::full;
  a.delta = DeltaRule{.key_heads = heads,
                      .value_heads = channel ? heads : heads * choose.of({2, 1}),
                      .key_dim = 4 * unit,
                      .value_dim = 3 * unit,
                      .conv = 2 + choose.below(3),
                      .channel_decay = channel};
  return a;
}

Attention mamba(Choices& choose, int unit) {
  Attention a;
  a.kind = AttentionKind::mamba;
  const int groups = choose.of({4, 2, 8});
  a.mamba = Mamba{.heads = groups * choose.of({2, 1}),
                  .head_dim = 3 * unit,
                  .state = 4 * unit,
                  .groups = groups,
                  .conv = 2 + choose.below(3)};
  return a;
}

// Of all but the last, which a model of one kind has often.
Attention attention(Choices& choose, int unit, bool small) {
  switch (choose.below(10)) {
    case 1:
      return gqa(choose, unit, small, true);
    case 2:
      return mla(choose, unit, small, false);
    case 3:
      return mla(choose, unit, small, true);
    case 4:
      return blocks(choose, unit);
    case 5:
      return delta(choose, unit);
    case 6:
      return mamba(choose, unit);
    case 7: {
      Attention none;
      none.kind = AttentionKind::none;
      return small ? gqa(choose, unit, small, false) : none;
    }
    case 8:
      return compressed(choose, unit, small);
    default:
      return gqa(choose, unit, small, false);
  }
}

FeedForward network(Choices& choose, int unit, bool small) {
  FeedForward f;
  const int kind = choose.below(small ? 3 : 5);
  if (kind == 4) {
    f.absent = true;
    return f;
  }
  f.inner = 16 * unit;
  if (kind < 2) return f;
  f.experts = choose.of({16, 8, 4, 7});
  f.experts_per_token = 1 + choose.below(std::min(4, f.experts));
  if (small) return f;
  f.shared_experts = choose.below(3);
  f.router_bias = choose.once_in(2);
  f.shared_gate = f.shared_experts > 0 && choose.once_in(2);
  if (choose.once_in(4)) f.latent = 6 * unit;
  f.latent_norm = f.latent > 0 && choose.once_in(2);
  return f;
}

void layers(Choices& choose, Model& m, int unit, bool small) {
  std::vector<Attention> kinds{attention(choose, unit, small)};
  if (choose.once_in(2)) kinds.push_back(attention(choose, unit, small));
  if (kinds.size() == 2 && kinds[0].index && kinds[0].kind == AttentionKind::mla && choose.once_in(2)) {
    kinds[1] = kinds[0];
    kinds[1].index->shared = true;
  }
  std::vector<FeedForward> networks{network(choose, unit, small)};
  if (choose.once_in(2)) networks.push_back(network(choose, unit, small));
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  const int count = 1 + choose.below(5);
  for (int i = 0; i < count; ++i) {
    attentions.push_back(kinds[static_cast<std::size_t>(i) % kinds.size()]);
    ffns.push_back(i == 0 ? networks.front() : networks.back());
  }
  set_layers(m, attentions, ffns);
  if (choose.once_in(2)) m.drafts = DraftModules{1 + choose.below(2), attentions.back(), ffns.back()};
}

}  // namespace

Model step_model(Choices& choose, bool small) {
  const int unit = small ? 1 : choose.of({32, 16, 8});
  Model m;
  m.name = "fuzzed";
  m.hidden = 12 * unit;
  m.vocab = 32 * unit;
  m.max_context = 1 << 20;
  layers(choose, m, unit, small);
  if (!small) {
    m.ffn_kind = choose.of({FfnKind::gated, FfnKind::gated, FfnKind::plain});
    m.tied_embeddings = choose.once_in(2);
    m.parallel_attention_ffn = choose.once_in(8);
    m.qk_norm = choose.once_in(4);
    m.qk_norm_whole = m.qk_norm && choose.once_in(2);
    m.sandwich_norms = choose.once_in(4);
    m.norm = choose.of({NormKind::rms, NormKind::rms, NormKind::layer});
    m.attention_bias = choose.of({AttentionBias::none, AttentionBias::qkv, AttentionBias::all});
    m.ffn_bias = choose.once_in(4);
  }
  if (const auto faults = check(m); !faults.empty())
    throw UserError(faults.front().field + ": " + faults.front().what);
  return m;
}

}  // namespace shardline::fuzz
