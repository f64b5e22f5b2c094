// Rules between the fields of a Model.
#include <fmt/format.h>

#include <algorithm>

#include "models/model/model.hpp"

namespace shardline {
namespace {

constexpr double kLargestModel = 1e15;
// As many as ExpertRouting counts the loads of; published models have 512 at most.
constexpr int kMostRouted = 1024;
// And a token's, which are drawn one past the other; published models have 22 at most.
constexpr int kMostVisited = 64;

class Rules {
 public:
  explicit Rules(const Model& m) : m_(m) {}

  std::vector<ModelFault> faults;

  void require(bool holds, const std::string& field, std::string what) {
    if (!holds) faults.push_back({field, std::move(what)});
  }

  void attention(const Attention& a, const std::string& at) {
    require(a.reach.sized() == (a.reach.tokens > 0), at + "reach",
            "a window or a chunk has at least one token, and full attention has neither");
    require((a.kind == AttentionKind::compressed) == a.compression.has_value() &&
                (a.kind == AttentionKind::delta) == a.delta.has_value() &&
                (a.kind == AttentionKind::mamba) == a.mamba.has_value(),
            at + "kind",
            "compressed, delta and mamba describe what they compress or keep, and no other kind does");
    if (!faults.empty() && faults.back().field == at + "kind") return;
    if (a.index) index(a, *a.index, at + "index.");
    switch (a.kind) {
      case AttentionKind::gqa:
        return gqa(a, at);
      case AttentionKind::mla:
        return latent(a, at);
      case AttentionKind::compressed:
        return compressed(a, at);
      case AttentionKind::delta:
        return delta(a, at);
      case AttentionKind::mamba:
        return mamba(a, at);
      case AttentionKind::none:
        Attention nothing;
        nothing.kind = AttentionKind::none;
        require(a == nothing, at + "kind", "no attention has no heads and no widths");
    }
  }

  void ffn(const FeedForward& f, const std::string& at) {
    if (f.none()) {
      require(f == FeedForward{.absent = true}, at + "absent", "no network has no width and no experts");
      return;
    }
    require(f.inner > 0, at + "inner",
            f.routed() ? "experts need an inner width" : "dense layers need an inner width");
    if (f.dense()) {
      FeedForward plain;
      plain.inner = f.inner;
      require(f == plain, at + "experts", "a dense network has no experts to visit");
      return;
    }
    require(f.experts <= kMostRouted, at + "experts",
            fmt::format("{} routed experts; more than {} are refused", f.experts, kMostRouted));
    require(f.shared_experts <= kMostRouted, at + "shared_experts",
            fmt::format("{} shared experts; more than {} are refused", f.shared_experts, kMostRouted));
    require(f.experts_per_token >= 1 && f.experts_per_token <= std::min(f.experts, kMostVisited),
            at + "experts_per_token",
            f.experts_per_token > kMostVisited && f.experts_per_token <= f.experts
                ? fmt::format("{} experts of a token; more than {} are refused", f.experts_per_token,
                              kMostVisited)
                : fmt::format("a token cannot visit {} of {} experts", f.experts_per_token, f.experts));
    require(f.shared_inner == 0 || (f.shared_experts > 0 && f.inner > 0 && f.shared_inner % f.inner != 0),
            at + "shared_inner", "shared experts as wide as some routed ones are written as so many of them");
    require(!f.shared_gate || f.shared_experts > 0, at + "shared_gate",
            "there are no shared experts to scale");
    require(!f.latent_norm || f.latent > 0, at + "latent_norm", "there are no latents to normalise");
    require(!f.hashed || !f.router_bias, at + "hashed",
            "experts that are looked up are not chosen by scores, which a bias would change");
    require(!m_.parallel_attention_ffn, "parallel_attention_ffn",
            "experts beside parallel attention are not modelled");
  }

  template <class Kind>
  void kinds(const std::vector<Kind>& list, const char* name, int LayerRun::*index) {
    require(!list.empty() && static_cast<std::int64_t>(list.size()) <= limits::kKinds, name,
            fmt::format("{} kinds; expected 1 to {}", list.size(), limits::kKinds));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", name, i);
      require(std::find(list.begin(), list.begin() + i, list[i]) == list.begin() + i, at,
              "the same as an earlier kind");
      const bool drafts = index == &LayerRun::attention && of_drafts_alone(m_, static_cast<int>(i));
      const bool used = std::any_of(m_.runs.begin(), m_.runs.end(),
                                    [&](const LayerRun& run) { return run.*index == static_cast<int>(i); });
      require(used || drafts, at, "no layer is of this kind");
    }
  }

  void runs() {
    std::int64_t layers = 0;
    for (std::size_t i = 0; i < m_.runs.size(); ++i) {
      const LayerRun& run = m_.runs[i];
      const std::string at = fmt::format("runs[{}]", i);
      const auto within = [](int index, std::size_t size) {
        return index >= 0 && static_cast<std::size_t>(index) < size;
      };
      require(within(run.attention, m_.attentions.size()), at, "there is no such attention");
      require(within(run.ffn, m_.ffns.size()), at, "there is no such feed-forward network");
      require(run.count >= 1, at, "expected at least one layer");
      const bool joined = i > 0 && run.attention == m_.runs[i - 1].attention && run.ffn == m_.runs[i - 1].ffn;
      require(!joined, at, "of the same kinds as the run before it");
      layers += run.count;
    }
    require(layers >= 1 && layers <= limits::kLayers, "layers",
            fmt::format("{} layers; expected 1 to {}", layers, limits::kLayers));
  }

  void whole() {
    require(!m_.parallel_attention_ffn || !m_.sandwich_norms, "sandwich_norms",
            "parallel attention has one norm");
    require(m_.residual.streams >= 1 && m_.residual.block >= 0, "residual", "expected at least one stream");
    require(m_.residual.plain() || !m_.parallel_attention_ffn, "residual",
            "mixed residual streams beside parallel attention are not modelled");
    require(!m_.qk_norm_whole || m_.qk_norm, "qk_norm_whole", "queries and keys have no norm to be wider");
    require(m_.vision_parameters >= 0, "vision_parameters", "expected none or more");
    shared_indices();
    if (!m_.drafts) return;
    require(m_.drafts->count >= 1, "drafts.count", "expected at least one module");
    require(!m_.drafts->attention.none() && !m_.drafts->ffn.none(), "drafts",
            "modules without attention or without a network are not modelled");
    const auto& index = m_.drafts->attention.index;
    require(!m_.drafts->one_choice || (index && !index->shared), "drafts.one_choice",
            "expected modules whose attention has an index and chooses by it");
    attention(m_.drafts->attention, "drafts.attention.");
    ffn(m_.drafts->ffn, "drafts.ffn.");
  }

 private:
  void gqa(const Attention& a, const std::string& at) {
    require(a.kv_heads > 0 && a.q_heads % a.kv_heads == 0, at + "kv_heads",
            fmt::format("{} query heads do not divide into {} key/value heads", a.q_heads, a.kv_heads));
    require(a.v_dim != a.head_dim, at + "v_dim", "values as wide as keys are written as 0");
    require(!a.k_eq_v || a.v_dim == 0, at + "k_eq_v", "one matrix makes keys and values of one width");
    require(a.gate != OutputGate::narrow, at + "gate", "a narrow gate is of linear attention (delta)");
  }

  void latent(const Attention& a, const std::string& at) {
    require(a.rope_dim % 2 == 0, at + "rope_dim",
            fmt::format("rotary width {} is odd, but rotary embedding turns pairs of channels", a.rope_dim));
    require(!a.reach.local(), at + "reach", "windows and chunks of mla are not modelled");
    require(!a.sinks, at + "sinks", "sinks of mla are not modelled");
    require(!a.k_eq_v, at + "k_eq_v", "mla makes keys and values of one latent as it is");
    require(a.gate != OutputGate::narrow, at + "gate", "a narrow gate is of linear attention (delta)");
    require(!m_.qk_norm, "qk_norm", "mla has its own norms; qk_norm applies to gqa only");
    require(m_.attention_bias == AttentionBias::none, "attention_bias",
            "biases on mla projections are not modelled");
  }

  void compressed(const Attention& a, const std::string& at) {
    const Compression& c = *a.compression;
    require(a.kv_heads == 1 && a.q_lora_rank > 0 && a.head_dim > 0, at + "q_lora_rank",
            "compressed attention has compressed queries and one key for all heads");
    require(a.rope_dim % 2 == 0 && a.rope_dim <= a.head_dim, at + "rope_dim",
            fmt::format("{} of {} channels of a head cannot be turned in pairs", a.rope_dim, a.head_dim));
    require(a.reach.kind == ReachKind::window, at + "reach",
            "compressed attention sees a window of single tokens, too");
    require(c.ratio >= 0 && (c.ratio > 0 || !a.index), at + "ratio",
            "without rows there is nothing to choose from");
    require(c.o_groups > 0 && c.o_rank > 0 && a.q_heads % std::max(1, c.o_groups) == 0, at + "o_groups",
            fmt::format("{} heads do not divide into {} groups", a.q_heads, c.o_groups));
    require(a.gate == OutputGate::none && !a.k_eq_v, at + "gate",
            "gates of compressed attention are not modelled");
  }

  void delta(const Attention& a, const std::string& at) {
    const DeltaRule& d = *a.delta;
    require(d.key_heads > 0 && d.key_dim > 0 && d.value_dim > 0 && d.conv > 0, at + "key_heads",
            "linear attention needs heads, widths and a convolution");
    require(d.key_heads > 0 && d.value_heads > 0 && d.value_heads % d.key_heads == 0, at + "value_heads",
            fmt::format("{} heads of values do not divide into {} of keys", d.value_heads, d.key_heads));
    require(a.gate == OutputGate::full || a.gate == OutputGate::narrow, at + "gate",
            "linear attention has a gate, full or narrow");
    require(a.q_heads == 0 && !a.reach.local() && !a.index && !a.sinks && !a.k_eq_v, at + "kind",
            "linear attention has no cache to see through a window, an index or sinks");
  }

  void mamba(const Attention& a, const std::string& at) {
    const Mamba& s = *a.mamba;
    require(s.heads > 0 && s.head_dim > 0 && s.state > 0 && s.conv > 0, at + "heads",
            "a state-space layer needs heads, widths, a state and a convolution");
    require(s.groups > 0 && s.heads % std::max(1, s.groups) == 0, at + "groups",
            fmt::format("{} heads do not divide into {} groups", s.heads, s.groups));
    require(
        a.q_heads == 0 && a.gate == OutputGate::none && !a.reach.local() && !a.index && !a.sinks && !a.k_eq_v,
        at + "kind", "a state-space layer has no cache to see through a window, an index or sinks");
  }

  void index(const Attention& a, const SparseIndex& x, const std::string& at) {
    require(x.heads > 0 && x.dim > 0 && x.top_k > 0 && x.block > 0, at + "top_k",
            "an index has heads, a width and a number of keys that it chooses");
    require(x.block == 1 || a.kind == AttentionKind::gqa, at + "block", "only gqa chooses blocks of tokens");
    require(!x.shared || a.kind == AttentionKind::mla, at + "shared",
            "only mla takes an earlier layer's choice");
    require(x.init_blocks >= 0 && x.local_blocks >= 0 && x.init_blocks + x.local_blocks <= x.top_k,
            at + "top_k",
            fmt::format("{} blocks cannot hold the {} that are always chosen", x.top_k,
                        x.init_blocks + x.local_blocks));
    require(a.kind != AttentionKind::gqa || !a.reach.local(), at + "top_k",
            "an index beside a window or chunks is not modelled");
  }

  // A choice that is taken over must have been made, and be as large.
  void shared_indices() {
    const SparseIndex* made = nullptr;
    for (const LayerRun& run : m_.runs) {
      if (run.attention < 0 || static_cast<std::size_t>(run.attention) >= m_.attentions.size()) return;
      const auto& x = m_.attentions[run.attention].index;
      if (x && !x->shared) made = &*x;
      if (!x || !x->shared) continue;
      const std::string at = fmt::format("attentions[{}].index.shared", run.attention);
      require(made != nullptr, at, "no layer before it makes a choice that it could take");
      require(made == nullptr || made->top_k == x->top_k, at,
              "the choice before it is of another number of keys");
      return;
    }
  }

  const Model& m_;
};

}  // namespace

std::vector<ModelFault> check(const Model& m) {
  Rules rules(m);
  rules.runs();
  rules.kinds(m.attentions, "attentions", &LayerRun::attention);
  rules.kinds(m.ffns, "ffns", &LayerRun::ffn);
  for (std::size_t i = 0; i < m.attentions.size(); ++i)
    rules.attention(m.attentions[i], fmt::format("attentions[{}].", i));
  for (std::size_t i = 0; i < m.ffns.size(); ++i) rules.ffn(m.ffns[i], fmt::format("ffns[{}].", i));
  rules.whole();
  if (rules.faults.empty()) {
    const double count = parameter_count(m);
    rules.require(count <= kLargestModel, "layers",
                  fmt::format("{:.3g} parameters; more than {:.0e} are refused", count, kLargestModel));
  }
  return rules.faults;
}

}  // namespace shardline
