// One kind of attention, or of experts, in our YAML. README.md, "Catalogue".
#include "models/model/catalog_fields.hpp"

namespace shardline::catalog {
namespace {

/// A window or chunk is of one kind: where there are several, one that all share could not be taken back.
void read_reach(const Fields& at, Attention& a) {
  const Fields from(at.own());
  for (const auto& [key, kind] : {std::pair("window", ReachKind::window), {"chunk", ReachKind::chunk}}) {
    const auto tokens = from.find(key);
    if (!tokens) {
      if (const auto all = at.find(key))
        all->fault(all->path() + ": a window or chunk is of one kind; name it in those of attentions");
      continue;
    }
    if (a.reach.local()) tokens->fault(tokens->path() + ": a layer has a window or chunks, not both");
    a.reach = {kind, tokens->tokens(1, limits::kContext)};
  }
}

void read_index(const Fields& at, Attention& a) {
  const auto given = at.find("index");
  if (!given) return;
  const Fields own(*given);
  SparseIndex x;
  x.heads = own.count_at("heads", limits::kHeads);
  x.dim = own.count_at("dim", limits::kWidth);
  x.top_k = own.count_at("top_k", limits::kWidth);
  if (a.kind == AttentionKind::gqa) {
    x.block = own.count_at("block", limits::kWidth);
    x.init_blocks = own.optional_count("init_blocks", limits::kWidth, 0);
    x.local_blocks = own.optional_count("local_blocks", limits::kWidth, 0);
  }
  if (a.kind == AttentionKind::mla) x.shared = own.flag("shared");
  if (given->is_map()) given->no_other_keys();
  a.index = x;
}

OutputGate read_gate(const Fields& at) {
  const auto given = at.find("gate");
  return given ? static_cast<OutputGate>(given->one_of({"none", "head", "full", "narrow"}))
               : OutputGate::none;
}

Dtype read_state(const Fields& at) {
  const auto given = at.find("state_type");
  return given && given->one_of({"fp32", "bf16"}) == 1 ? Dtype::bf16 : Dtype::fp32;
}

void read_gqa(const Fields& at, const std::optional<Reader>& whole, Attention& a, Model& m) {
  a.q_heads = at.count_at("q_heads", limits::kHeads);
  a.kv_heads = at.count_at("kv_heads", limits::kHeads);
  a.head_dim = at.count_at("head_dim", limits::kWidth);
  if (whole) {
    m.qk_norm = Fields(*whole).flag("qk_norm");
    m.qk_norm_whole = Fields(*whole).flag("qk_norm_whole");
    const auto bias = whole->find("bias");
    if (bias) m.attention_bias = static_cast<AttentionBias>(bias->one_of({"none", "qkv", "all"}));
  }
  a.v_dim = at.optional_count("v_dim", limits::kWidth);
  if (a.v_dim == a.head_dim) a.v_dim = 0;
  read_reach(at, a);
  a.sinks = at.flag("sinks");
  a.k_eq_v = at.flag("k_eq_v");
  a.gate = read_gate(at);
  read_index(at, a);
}

void read_latents(const Fields& at, Attention& a) {
  a.q_heads = at.count_at("q_heads", limits::kHeads);
  a.kv_heads = 1;
  a.q_lora_rank = at.optional_count("q_lora_rank", limits::kWidth);
  a.kv_lora_rank = at.count_at("kv_lora_rank", limits::kWidth);
  a.rope_dim = at.count_at("rope_dim", limits::kWidth);
  a.nope_dim = at.count_at("nope_dim", limits::kWidth);
  a.v_dim = at.count_at("v_dim", limits::kWidth);
  a.gate = read_gate(at);
  read_index(at, a);
  // Read so that check() can say why they are refused.
  if (at.has("window") || at.has("chunk")) read_reach(at, a);
  if (at.has("sinks")) a.sinks = at.flag("sinks");
}

void read_compressed(const Fields& at, Attention& a) {
  a.q_heads = at.count_at("q_heads", limits::kHeads);
  a.kv_heads = 1;
  a.head_dim = at.count_at("head_dim", limits::kWidth);
  a.rope_dim = at.count_at("rope_dim", limits::kWidth);
  a.q_lora_rank = at.count_at("q_lora_rank", limits::kWidth);
  a.reach = {ReachKind::window, at.at("window").tokens(1, limits::kContext)};
  a.sinks = at.flag("sinks");
  Compression c;
  c.ratio = at.optional_count("ratio", limits::kWidth, 0);
  c.o_groups = at.count_at("o_groups", limits::kHeads);
  c.o_rank = at.count_at("o_rank", limits::kWidth);
  a.compression = c;
  read_index(at, a);
}

void read_delta(const Fields& at, Attention& a) {
  DeltaRule d;
  d.key_heads = at.count_at("key_heads", limits::kHeads);
  d.value_heads = at.count_at("value_heads", limits::kHeads);
  d.key_dim = at.count_at("key_dim", limits::kWidth);
  d.value_dim = at.count_at("value_dim", limits::kWidth);
  d.conv = at.count_at("conv", 64);
  d.channel_decay = at.flag("channel_decay");
  d.state = read_state(at);
  a.gate = read_gate(at);
  a.delta = d;
}

void read_mamba(const Fields& at, Attention& a) {
  Mamba s;
  s.heads = at.count_at("heads", limits::kHeads);
  s.head_dim = at.count_at("head_dim", limits::kWidth);
  s.state = at.count_at("state", limits::kWidth);
  s.groups = at.count_at("groups", limits::kHeads);
  s.conv = at.count_at("conv", 64);
  s.conv_bias = at.flag("conv_bias", true);
  s.bias = at.flag("bias");
  s.state_type = read_state(at);
  a.mamba = s;
}

}  // namespace

Attention read_attention(const Fields& at, const std::optional<Reader>& whole, Model& m) {
  Attention a;
  a.kind = static_cast<AttentionKind>(
      at.at("kind").one_of({"gqa", "mla", "compressed", "delta", "mamba", "none"}));
  switch (a.kind) {
    case AttentionKind::gqa:
      read_gqa(at, whole, a, m);
      break;
    case AttentionKind::mla:
      read_latents(at, a);
      break;
    case AttentionKind::compressed:
      read_compressed(at, a);
      break;
    case AttentionKind::delta:
      read_delta(at, a);
      break;
    case AttentionKind::mamba:
      read_mamba(at, a);
      break;
    case AttentionKind::none:
      break;
  }
  return a;
}

FeedForward read_experts(const Reader& at) {
  const Fields fields(at);
  FeedForward f;
  f.experts = count(at.at("experts"), limits::kExperts);
  f.experts_per_token = count(at.at("experts_per_token"), limits::kExperts);
  const int shared = fields.optional_count("shared_experts", limits::kExperts, 0);
  f.inner = count(at.at("inner"), limits::kWidth);
  f.router_bias = fields.flag("router_bias");
  const auto own_width = fields.find("shared_inner");
  if (own_width && shared == 0)
    own_width->fault(own_width->path() + ": there are no shared experts of this width");
  set_shared(f, shared, own_width ? count(*own_width, limits::kWidth) : f.inner);
  f.shared_gate = fields.flag("shared_gate");
  f.latent = fields.optional_count("latent", limits::kWidth);
  f.latent_norm = fields.flag("latent_norm");
  f.hashed = fields.flag("hashed");
  return f;
}

}  // namespace shardline::catalog
