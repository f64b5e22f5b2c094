#include "models/model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr double kLargestModel = 1e15;

double q_width(const Attention& a) { return 1.0 * a.q_heads * key_width(a); }

/// Keys and values of one token, as their projections make them.
double kv_width(const Attention& a) { return 1.0 * a.kv_heads * (1.0 * key_width(a) + value_width(a)); }

/// Matrices of one attention layer. The absorbed form of MLA multiplies with the same number of weights.
double attention_matrices(const Model& m, const Attention& a) {
  const double hidden = m.hidden;
  const double output = 1.0 * a.q_heads * value_width(a) * hidden;
  switch (a.kind) {
    case AttentionKind::gqa:
      return hidden * (q_width(a) + kv_width(a)) + output;
    case AttentionKind::mla:
      break;
  }
  const double rank = a.q_lora_rank;
  const double queries = a.q_lora_rank > 0 ? rank * (hidden + q_width(a)) : hidden * q_width(a);
  const double latent = hidden * (1.0 * a.kv_lora_rank + a.rope_dim);
  const double expand = 1.0 * a.kv_lora_rank * a.q_heads * (1.0 * a.nope_dim + a.v_dim);
  return queries + latent + expand + output;
}

double ffn_matrices(const Model& m, int inner) {
  return (m.ffn_kind == FfnKind::gated ? 3.0 : 2.0) * m.hidden * inner;
}

double ffn_biases(const Model& m, int inner) {
  if (!m.ffn_bias) return 0;
  return (m.ffn_kind == FfnKind::gated ? 2.0 : 1.0) * inner + m.hidden;
}

/// The dense network, or one expert.
double one_network(const Model& m, const FeedForward& f) {
  return ffn_matrices(m, f.inner) + ffn_biases(m, f.inner);
}

double norm_parameters(const Model& m) { return (m.norm == NormKind::rms ? 1.0 : 2.0) * m.hidden; }

double norms_per_layer(const Model& m) {
  if (m.parallel_attention_ffn) return 1;
  return m.sandwich_norms ? 4 : 2;
}

/// Sums `of(kind)` over all layers.
template <class F>
double over_attentions(const Model& m, F&& of) {
  double sum = 0;
  for (const LayerRun& run : m.runs) sum += run.count * of(m.attentions[run.attention]);
  return sum;
}
template <class F>
double over_ffns(const Model& m, F&& of) {
  double sum = 0;
  for (const LayerRun& run : m.runs) sum += run.count * of(m.ffns[run.ffn]);
  return sum;
}

/// Least `of(kind)` of the kinds that have one; 0 if none has.
template <class Kind, class F>
int least(const std::vector<Kind>& kinds, F&& of) {
  int best = 0;
  for (const Kind& kind : kinds) {
    const int n = of(kind);
    if (n > 0 && (best == 0 || n < best)) best = n;
  }
  return best;
}

/// Keys that the last of `context` tokens sees.
double seen_keys(const Reach& reach, double context) {
  const auto tokens = static_cast<double>(reach.tokens);
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
      return std::min(context, tokens);
    case ReachKind::chunk:
      return context <= tokens ? context : context - tokens * (std::ceil(context / tokens) - 1);
  }
  return context;
}

class Rules {
 public:
  explicit Rules(const Model& m) : m_(m) {}

  std::vector<ModelFault> faults;

  void require(bool holds, const std::string& field, std::string what) {
    if (!holds) faults.push_back({field, std::move(what)});
  }

  void attention(std::size_t i) {
    const Attention& a = m_.attentions[i];
    const std::string at = fmt::format("attentions[{}].", i);
    require(a.reach.sized() == (a.reach.tokens > 0), at + "reach",
            "a window or a chunk has at least one token, and full attention has neither");
    switch (a.kind) {
      case AttentionKind::gqa:
        require(a.kv_heads > 0 && a.q_heads % a.kv_heads == 0, at + "kv_heads",
                fmt::format("{} query heads do not divide into {} key/value heads", a.q_heads, a.kv_heads));
        require(a.v_dim != a.head_dim, at + "v_dim", "values as wide as keys are written as 0");
        return;
      case AttentionKind::mla:
        return latent(a, at);
    }
  }

  void latent(const Attention& a, const std::string& at) {
    require(a.rope_dim % 2 == 0, at + "rope_dim",
            fmt::format("rotary width {} is odd, but rotary embedding turns pairs of channels", a.rope_dim));
    require(!a.reach.local(), at + "reach", "windows and chunks of mla are not modelled");
    require(!a.sinks, at + "sinks", "sinks of mla are not modelled");
    require(!m_.qk_norm, "qk_norm", "mla has its own norms; qk_norm applies to gqa only");
    require(m_.attention_bias == AttentionBias::none, "attention_bias",
            "biases on mla projections are not modelled");
  }

  void ffn(std::size_t i) {
    const FeedForward& f = m_.ffns[i];
    const std::string at = fmt::format("ffns[{}].", i);
    require(f.inner > 0, at + "inner",
            f.dense() ? "dense layers need an inner width" : "experts need an inner width");
    if (f.dense()) {
      require(f.experts_per_token == 0 && f.shared_experts == 0 && !f.router_bias, at + "experts",
              "a dense network has no experts to visit");
      return;
    }
    require(f.experts <= limits::kExperts && f.shared_experts <= limits::kExperts, at + "experts",
            fmt::format("{} routed and {} shared experts; more than {} are refused", f.experts,
                        f.shared_experts, limits::kExperts));
    require(f.experts_per_token >= 1 && f.experts_per_token <= f.experts, at + "experts_per_token",
            fmt::format("a token cannot visit {} of {} experts", f.experts_per_token, f.experts));
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
      require(std::any_of(m_.runs.begin(), m_.runs.end(),
                          [&](const LayerRun& run) { return run.*index == static_cast<int>(i); }),
              at, "no layer is of this kind");
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

 private:
  const Model& m_;
};

template <class Kind>
int number_of(std::vector<Kind>& kinds, const Kind& kind) {
  const auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found != kinds.end()) return static_cast<int>(found - kinds.begin());
  kinds.push_back(kind);
  return static_cast<int>(kinds.size()) - 1;
}

}  // namespace

std::vector<ModelFault> check(const Model& m) {
  Rules rules(m);
  rules.runs();
  rules.kinds(m.attentions, "attentions", &LayerRun::attention);
  rules.kinds(m.ffns, "ffns", &LayerRun::ffn);
  for (std::size_t i = 0; i < m.attentions.size(); ++i) rules.attention(i);
  for (std::size_t i = 0; i < m.ffns.size(); ++i) rules.ffn(i);
  rules.require(!m.parallel_attention_ffn || !m.sandwich_norms, "sandwich_norms",
                "parallel attention has one norm");
  if (rules.faults.empty()) {
    const double count = parameter_count(m);
    rules.require(count <= kLargestModel, "layers",
                  fmt::format("{:.3g} parameters; more than {:.0e} are refused", count, kLargestModel));
  }
  return rules.faults;
}

void set_layers(Model& m, std::span<const Attention> attentions, std::span<const FeedForward> ffns) {
  SL_CHECK(attentions.size() == ffns.size(), "every layer has an attention and a feed-forward network");
  m.attentions.clear();
  m.ffns.clear();
  m.runs.clear();
  for (std::size_t i = 0; i < attentions.size(); ++i) {
    const int attention = number_of(m.attentions, attentions[i]), ffn = number_of(m.ffns, ffns[i]);
    if (m.runs.empty() || m.runs.back().attention != attention || m.runs.back().ffn != ffn)
      m.runs.push_back({attention, ffn, 0});
    ++m.runs.back().count;
  }
}

std::string to_string(const Reach& reach) {
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
      return fmt::format("window {}", reach.tokens);
    case ReachKind::chunk:
      return fmt::format("chunk {}", reach.tokens);
  }
  return "full";
}

int layers_of_attention(const Model& m, int i) {
  int sum = 0;
  for (const LayerRun& run : m.runs) sum += run.attention == i ? run.count : 0;
  return sum;
}

int layers_of_ffn(const Model& m, int i) {
  int sum = 0;
  for (const LayerRun& run : m.runs) sum += run.ffn == i ? run.count : 0;
  return sum;
}

int dense_layers(const Model& m) {
  int sum = 0;
  for (const LayerRun& run : m.runs) sum += m.ffns[run.ffn].dense() ? run.count : 0;
  return sum;
}

int least_q_heads(const Model& m) {
  return least(m.attentions, [](const Attention& a) { return a.q_heads; });
}
int least_kv_heads(const Model& m) {
  return least(m.attentions, [](const Attention& a) { return a.kv_heads; });
}
int least_experts(const Model& m) {
  return least(m.ffns, [](const FeedForward& f) { return f.experts; });
}
int least_expert_inner(const Model& m) {
  return least(m.ffns, [](const FeedForward& f) { return f.dense() ? 0 : f.inner; });
}
int least_dense_inner(const Model& m) {
  return least(m.ffns, [](const FeedForward& f) { return f.dense() ? f.inner : 0; });
}

const Attention* one_attention(const Model& m) {
  return m.attentions.size() == 1 ? m.attentions.data() : nullptr;
}
const FeedForward* one_ffn(const Model& m) { return m.ffns.size() == 1 ? m.ffns.data() : nullptr; }

double attention_parameters(const Model& m, const Attention& a) {
  double count = attention_matrices(m, a);
  switch (a.kind) {
    case AttentionKind::gqa:
      break;
    case AttentionKind::mla:
      return count + a.q_lora_rank + a.kv_lora_rank;
  }
  if (m.qk_norm) count += 2.0 * a.head_dim;
  if (m.attention_bias != AttentionBias::none) count += q_width(a) + kv_width(a);
  if (m.attention_bias == AttentionBias::all) count += m.hidden;
  if (a.sinks) count += a.q_heads;
  return count;
}

double ffn_parameters(const Model& m, const FeedForward& f) {
  if (f.dense()) return one_network(m, f);
  const double router = 1.0 * f.experts * m.hidden + (f.router_bias ? f.experts : 0);
  return (1.0 * f.experts + f.shared_experts) * one_network(m, f) + router;
}

double parameter_count(const Model& m) {
  const double tables = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
  const double norms = (m.layers() * norms_per_layer(m) + 1) * norm_parameters(m);
  const double attention = over_attentions(m, [&](const Attention& a) { return attention_parameters(m, a); });
  return tables + norms + attention +
         over_ffns(m, [&](const FeedForward& f) { return ffn_parameters(m, f); });
}

double active_parameters(const Model& m) {
  return parameter_count(m) - over_ffns(m, [&](const FeedForward& f) {
           return f.dense() ? 0.0 : (1.0 * f.experts - f.experts_per_token) * one_network(m, f);
         });
}

double kv_elements_per_layer(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
      break;
    case AttentionKind::mla:
      return 1.0 * a.kv_lora_rank + a.rope_dim;
  }
  return kv_width(a);
}

Bytes kv_bytes_per_token(const Model& m, double element_bytes) {
  return Bytes(over_attentions(m, kv_elements_per_layer) * element_bytes);
}

std::int64_t kept_tokens(const Reach& reach, std::int64_t length) {
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
    case ReachKind::chunk:
      return std::min(length, reach.tokens);
  }
  return length;
}

Bytes kv_bytes(const Model& m, std::int64_t length, double element_bytes) {
  const double elements = over_attentions(m, [&](const Attention& a) {
    return kv_elements_per_layer(a) * static_cast<double>(kept_tokens(a.reach, length));
  });
  return Bytes(elements * element_bytes);
}

double active_matmul_weights(const Model& m) {
  const double attention = over_attentions(m, [&](const Attention& a) { return attention_matrices(m, a); });
  const double ffn = over_ffns(m, [&](const FeedForward& f) {
    if (f.dense()) return ffn_matrices(m, f.inner);
    const double visited = 1.0 * f.experts_per_token + f.shared_experts;
    return visited * ffn_matrices(m, f.inner) + 1.0 * f.experts * m.hidden;
  });
  return attention + ffn + 1.0 * m.vocab * m.hidden;
}

Flops attention_flops(const Attention& a, double context_tokens) {
  double products = 0;  // per head and token: with a key and a value as they are cached
  switch (a.kind) {
    case AttentionKind::gqa:
      products = 1.0 * key_width(a) + value_width(a);
      break;
    case AttentionKind::mla:
      products = 2.0 * a.kv_lora_rank + a.rope_dim;
      break;
  }
  return Flops(2.0 * a.q_heads * products * context_tokens);
}

Flops flops_per_token(const Model& m, double context_tokens) {
  Flops sum(2 * active_matmul_weights(m));
  for (std::size_t i = 0; i < m.attentions.size(); ++i) {
    const Attention& a = m.attentions[i];
    sum +=
        layers_of_attention(m, static_cast<int>(i)) * attention_flops(a, seen_keys(a.reach, context_tokens));
  }
  return sum;
}

}  // namespace shardline
