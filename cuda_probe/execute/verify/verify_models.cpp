#include "cuda_probe/execute/verify/verify_models.hpp"

#include <memory>

#include "planner/serving/acceptance.hpp"

namespace shardline::cli {

namespace {

Attention gqa(const CaseSizes& z, int kv_heads, Reach reach = {}, bool sinks = false) {
  Attention a;
  a.q_heads = 8;
  a.kv_heads = kv_heads;
  a.head_dim = z.head_dim;
  a.reach = reach;
  a.sinks = sinks;
  return a;
}

Attention mla(const CaseSizes& z) {
  Attention a;
  a.kind = AttentionKind::mla;
  a.q_heads = 8;
  a.kv_heads = 1;
  a.kv_lora_rank = z.kv_lora;
  a.rope_dim = z.rope;
  a.nope_dim = z.nope;
  a.v_dim = z.mla_v;
  return a;
}

// An index that chooses 6 keys: fewer than most rows have, more than short ones. Its layers are of two kinds:
// with one of their own, and with the choice of an earlier layer.
std::vector<Attention> indexed(const CaseSizes& z) {
  Attention own = mla(z);
  own.q_lora_rank = 12;
  own.index = SparseIndex{.heads = 3, .dim = 4, .top_k = 6};
  Attention shared = own;
  shared.index->shared = true;
  return {own, shared};
}

// An index of one head for each KV head, which chooses 3 blocks of 4 tokens, the first and the own one
// always.
Attention in_blocks(const CaseSizes& z) {
  Attention a = gqa(z, 2);
  a.index = SparseIndex{.heads = 2, .dim = 4, .top_k = 3, .block = 4, .init_blocks = 1, .local_blocks = 1};
  return a;
}

// Reaches cut blocks of caches and tiles anywhere.
constexpr Reach kWindow{ReachKind::window, 9}, kChunk{ReachKind::chunk, 10};

// Layers that keep a state, and one of full attention: two value heads per key head.
Attention delta(const CaseSizes& z, bool channel_decay) {
  Attention a;
  a.kind = AttentionKind::delta;
  a.gate = channel_decay ? OutputGate::narrow : OutputGate::full;
  a.delta = DeltaRule{.key_heads = channel_decay ? 8 : 4,
                      .value_heads = 8,
                      .key_dim = z.key_dim,
                      .value_dim = z.value_dim,
                      .conv = 4,
                      .channel_decay = channel_decay};
  return a;
}

// Two heads per group, of which ranks have whole ones.
Attention mamba(const CaseSizes& z, int groups) {
  Attention a;
  a.kind = AttentionKind::mamba;
  a.mamba = Mamba{.heads = 8, .head_dim = z.value_dim, .state = z.key_dim, .groups = groups, .conv = 4};
  return a;
}

// A window of 7 tokens and sinks; rows of 2 tokens that are made of 4, of which an index chooses 3; rows of 5
// tokens; and the window alone.
std::vector<Attention> compressed(const CaseSizes& z) {
  Attention window;
  window.kind = AttentionKind::compressed;
  window.q_heads = 8;
  window.kv_heads = 1;
  window.head_dim = z.head_dim;
  window.rope_dim = z.rope;
  window.q_lora_rank = 12;
  window.reach = {ReachKind::window, 7};
  window.sinks = true;
  window.compression = Compression{.ratio = 0, .o_groups = 4, .o_rank = 4};
  Attention sparse = window, heavy = window;
  sparse.compression->ratio = 2;
  sparse.index = SparseIndex{.heads = 3, .dim = 4, .top_k = 3};
  heavy.compression->ratio = 5;
  return {sparse, heavy, window};
}

// Layers of which every third has full attention, the others windows, sinks, and keys wider than values.
std::vector<Attention> two_kinds(const CaseSizes& z) {
  Attention local = gqa(z, 2, {ReachKind::window, 7}, true);
  local.v_dim = z.head_dim / 2;
  return {gqa(z, 2), local, local};
}

const Layers kLayers[] = {
    {"MHA 8/8 heads", [](const CaseSizes& z) { return std::vector{gqa(z, 8)}; }},
    {"GQA 8/2 heads", [](const CaseSizes& z) { return std::vector{gqa(z, 2)}; }},
    {"MQA 8/1 heads", [](const CaseSizes& z) { return std::vector{gqa(z, 1)}; }},
    {"MLA 8 heads", [](const CaseSizes& z) { return std::vector{mla(z)}; }},
    {"GQA 8/2 heads, window 9, sinks",
     [](const CaseSizes& z) { return std::vector{gqa(z, 2, kWindow, true)}; }},
    {"GQA 8/2 heads, chunk 10", [](const CaseSizes& z) { return std::vector{gqa(z, 2, kChunk)}; }},
    {"GQA 8/2 heads, full and window 7 with sinks", two_kinds},
    {"MLA 8 heads, an index of 6 keys, own and shared", indexed},
    {"GQA 8/2 heads, full and 3 chosen blocks of 4",
     [](const CaseSizes& z) {
       return std::vector{gqa(z, 2), in_blocks(z)};
     }},
    {"8 heads, window 7 with sinks, rows of 2 by an index, of 5, none", compressed},
    {"gated DeltaNet 4/8 heads and GQA 8/2",
     [](const CaseSizes& z) {
       return std::vector{delta(z, false), gqa(z, 2)};
     }},
    {"Mamba-2 8 heads in 4 groups and GQA 8/2",
     [](const CaseSizes& z) {
       return std::vector{mamba(z, 4), gqa(z, 2)};
     }},
    {"Mamba-2 8 heads in one group and GQA 8/2",
     [](const CaseSizes& z) {
       return std::vector{mamba(z, 1), gqa(z, 2)};
     }},
    {"KDA 8 heads and MLA 8",
     [](const CaseSizes& z) {
       return std::vector{delta(z, true), mla(z)};
     }},
};

// Two layers at least, so that a pipeline of two stages has one of each kind somewhere.
Model small_model(const Layers& layers, const CaseSizes& z) {
  Model m;
  m.name = "small";
  m.hidden = z.hidden;
  m.vocab = 32;
  std::vector<Attention> attentions = layers.attentions(z);
  if (attentions.size() == 1) attentions.push_back(attentions.front());
  FeedForward dense;
  dense.inner = z.inner;
  set_layers(m, attentions, std::vector<FeedForward>(attentions.size(), dense));
  // A module that drafts attends to a cache, as those of hybrid models do.
  const auto module = std::find_if(attentions.begin(), attentions.end(),
                                   [](const Attention& a) { return !a.recurrent() && !a.none(); });
  m.drafts = DraftModules{1, *module, dense};
  return m;
}

}  // namespace

std::span<const Layers> verify_layers() { return kLayers; }

Case small_case(const Layers& layers, const CaseSizes& z) {
  Case c;
  c.model = small_model(layers, z);
  c.system.fabric.nodes = 64;
  c.system.fabric.gpus_per_node = 8;
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.kv_block = 4;
  c.routing = routing_of(c.model, Routing{});
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  return c;
}

}  // namespace shardline::cli
