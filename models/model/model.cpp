#include "models/model/model.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

double network_matrices(const Model& m, double width, double inner) {
  return (m.ffn_kind == FfnKind::gated ? 3.0 : 2.0) * width * inner;
}

/// A network from `width` channels through `inner` and back.
double network(const Model& m, double width, double inner) {
  double count = network_matrices(m, width, inner);
  if (m.ffn_bias) count += (m.ffn_kind == FfnKind::gated ? 2.0 : 1.0) * inner + width;
  return count;
}

double expert_width(const Model& m, const FeedForward& f) { return f.latent > 0 ? f.latent : m.hidden; }

/// What every token multiplies beside the experts it visits: the shared ones, the router, and the projections
/// into and out of latents.
double ffn_matrices_of_all(const Model& m, const FeedForward& f) {
  const double hidden = m.hidden;
  return network_matrices(m, hidden, static_cast<double>(f.shared_width())) + hidden * f.experts +
         2.0 * hidden * f.latent + (f.shared_gate ? hidden : 0);
}

double norm_parameters(const Model& m) { return (m.norm == NormKind::rms ? 1.0 : 2.0) * m.hidden; }

/// Norms of a layer that has such an attention and such a network.
double norms_of_layer(const Model& m, const Attention& a, const FeedForward& f) {
  if (m.parallel_attention_ffn) return 1;
  return ((a.none() ? 0 : 1) + (f.none() ? 0 : 1)) * (m.sandwich_norms ? 2 : 1);
}

/// What one layer needs to join its outputs to what goes on (Residual).
double residual_parameters(const Model& m) {
  const double n = m.residual.streams, hidden = m.hidden;
  double count = 0;
  if (n > 1) count += 2 * ((2 + n) * n * (n * hidden + 1) + 3);
  if (m.residual.block > 0) count += 4 * hidden;
  return count;
}

/// The same behind the last layer.
double residual_end_parameters(const Model& m) {
  const double n = m.residual.streams, hidden = m.hidden;
  return (n > 1 ? n * (n * hidden + 1) + 1 : 0) + (m.residual.block > 0 ? 2 * hidden : 0);
}

double layer_parameters(const Model& m, const Attention& a, const FeedForward& f) {
  return attention_parameters(m, a) + ffn_parameters(m, f) + norms_of_layer(m, a, f) * norm_parameters(m) +
         residual_parameters(m);
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

template <class Kind>
int number_of(std::vector<Kind>& kinds, const Kind& kind) {
  const auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found != kinds.end()) return static_cast<int>(found - kinds.begin());
  kinds.push_back(kind);
  return static_cast<int>(kinds.size()) - 1;
}

}  // namespace

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

void list_draft_kind(Model& m) {
  if (m.drafts && m.drafts->attention.compression) number_of(m.attentions, m.drafts->attention);
}

bool of_drafts_alone(const Model& m, int i) {
  return m.drafts && i + 1 == std::ssize(m.attentions) && layers_of_attention(m, i) == 0 &&
         m.attentions.back() == m.drafts->attention;
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
  return least(m.ffns, [](const FeedForward& f) { return f.routed() ? f.inner : 0; });
}
int least_dense_inner(const Model& m) {
  return least(m.ffns, [](const FeedForward& f) { return f.dense() ? f.inner : 0; });
}

const Attention& first_attention(const Model& m) {
  for (const LayerRun& run : m.runs) {
    const Attention& a = m.attentions[static_cast<std::size_t>(run.attention)];
    if (!a.none() && !a.recurrent()) return a;
  }
  return m.attentions.front();
}

const Attention* one_attention(const Model& m) {
  return m.attentions.size() == 1 ? m.attentions.data() : nullptr;
}
const FeedForward* one_ffn(const Model& m) { return m.ffns.size() == 1 ? m.ffns.data() : nullptr; }

double ffn_parameters(const Model& m, const FeedForward& f) {
  if (f.none()) return 0;
  if (f.dense()) return network(m, m.hidden, f.inner);
  double count = f.experts * network(m, expert_width(m, f), f.inner) + ffn_matrices_of_all(m, f);
  if (m.ffn_bias) {
    const double shared = f.shared_inner > 0 ? f.shared_inner : f.inner;
    count += f.shared_experts * (network(m, m.hidden, shared) - network_matrices(m, m.hidden, shared));
  }
  return count + (f.router_bias ? f.experts : 0) + (f.latent_norm ? f.latent : 0);
}

double parameter_count(const Model& m) {
  const double tables = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
  double count = tables + norm_parameters(m) + residual_end_parameters(m);
  for (const LayerRun& run : m.runs)
    count += run.count * layer_parameters(m, m.attentions[run.attention], m.ffns[run.ffn]);
  return count;
}

double draft_parameters(const Model& m) {
  if (!m.drafts) return 0;
  const double hidden = m.hidden;
  return m.drafts->count * (layer_parameters(m, m.drafts->attention, m.drafts->ffn) + 2 * hidden * hidden +
                            3 * norm_parameters(m) + residual_end_parameters(m));
}

double all_parameters(const Model& m) {
  return parameter_count(m) + draft_parameters(m) + static_cast<double>(m.vision_parameters);
}

double active_parameters(const Model& m) {
  return parameter_count(m) - over_ffns(m, [&](const FeedForward& f) {
           return f.routed()
                      ? (1.0 * f.experts - f.experts_per_token) * network(m, expert_width(m, f), f.inner)
                      : 0.0;
         });
}

double active_matmul_weights(const Model& m) {
  const double ffn = over_ffns(m, [&](const FeedForward& f) {
    if (!f.routed()) return network_matrices(m, m.hidden, f.inner);
    return f.experts_per_token * network_matrices(m, expert_width(m, f), f.inner) + ffn_matrices_of_all(m, f);
  });
  return over_attentions(m, [&](const Attention& a) { return attention_matrices(m, a); }) + ffn +
         1.0 * m.vocab * m.hidden;
}

Flops flops_per_token(const Model& m, double context_tokens) {
  Flops sum(2 * active_matmul_weights(m));
  for (std::size_t i = 0; i < m.attentions.size(); ++i)
    sum += layers_of_attention(m, static_cast<int>(i)) * mixer_flops(m.attentions[i], context_tokens);
  return sum;
}

}  // namespace shardline
