#include "planner/layers/recurrent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/recurrent_flow.hpp"
#include "planner/layers/sparse_attention.hpp"

namespace shardline {

namespace {

constexpr Count kConvBytes = 2;  // BF16, whatever the state's type [M14]
// Logarithms of decays are float32 (sgl-project/sglang 49e384ce9d, python/sglang/srt:
// layers/attention/fla/fused_gdn_gating.py:57).
constexpr double kDecayBytes = 4;

RecurrentShape shape_of(const Attention& a, const RecurrentHeads& h) {
  const DeltaRule d = state_rule(a);
  RecurrentShape s;
  s.decay = d.channel_decay ? StateDecay::per_channel : StateDecay::per_head;
  if (a.mamba) s.decay = StateDecay::added;
  s.key_heads = h.key;
  s.value_heads = h.value;
  s.key_dim = d.key_dim;
  s.value_dim = d.value_dim;
  s.taps = d.conv;
  s.number_bytes = count_of(bytes_per_element(d.state));
  return s;
}

// New tokens of these requests. Any draft may be the last that is accepted: a state is left behind each.
RecurrentShape of_requests(RecurrentShape s, std::span<const Segment> segments, const Plan& p, Asked asked) {
  s.prompts = asked == Asked::prefill;
  s.states = s.prompts ? 1 : new_tokens(p);
  for (const Segment& r : segments) {
    s.rows += r.fresh * r.count;
    s.requests += r.count;
    s.longest = std::max<Count>(s.longest, r.fresh);
  }
  return s;
}

// Chunks of keys and values are multiplied as matrices, in BF16 where the device has a unit for it.
Dtype state_math(const Case& c) {
  const auto has = [&](Dtype t) {
    return c.system.device.peak[static_cast<std::size_t>(t)] > FlopsPerSecond(0);
  };
  return has(Dtype::bf16) ? Dtype::bf16 : c.precision.math;
}

// Of prompts, those of this round where they pass in chunks.
std::vector<Segment> prompt_segments(const Case& c, const Plan& p, const ContextStep* prefills) {
  if (p[kPrefillChunk] == 0) return asked_segments(c, p, Asked::prefill);
  std::vector<Segment> round;
  for (const Interval& i : whole_prompts(*prefills)) round.push_back({i.begin, i.size()});
  return round;
}

RecurrentHeads heads_of(const DeltaRule& d, std::pair<Count, Count> values) {
  const auto keys = key_heads_of(d, values);
  return {keys.second - keys.first, values.second - values.first};
}

// Of which context-parallel rank k keeps states, the TP rank with most.
RecurrentHeads state_heads_of(const Attention& a, const Plan& p, int k) {
  RecurrentHeads most;
  for (int t = 0; t < p.tpa; ++t) {
    const RecurrentHeads own = heads_of(state_rule(a), state_heads(a, p, k * p.tpa + t));
    most.key = std::max(most.key, own.key);
    most.value = std::max(most.value, own.value);
  }
  return most;
}

// The rank with most of them.
RecurrentHeads most_state_heads(const Attention& a, const Plan& p) {
  if (p.cp == 1) return recurrent_heads(a, p);
  RecurrentHeads most;
  for (int k = 0; k < p.cp; ++k) {
    const RecurrentHeads own = state_heads_of(a, p, k);
    most.key = std::max(most.key, own.key);
    most.value = std::max(most.value, own.value);
  }
  return most;
}

// Of one token: queries, keys and values of heads, and what they are decayed and corrected by; the outputs.
double exchanged_bytes(const Case& c, const Attention& a, const RecurrentHeads& h) {
  const DeltaRule d = state_rule(a);
  const double decays = static_cast<double>(h.value) * (d.channel_decay ? d.key_dim : 1);
  return (static_cast<double>(shape_of(a, h).channels()) + static_cast<double>(h.value)) *
             activation_size(c) +
         kDecayBytes * decays;
}
double output_bytes(const Case& c, const Attention& a, Count values) {
  return static_cast<double>(values * state_rule(a).value_dim) * activation_size(c);
}

// Tokens to heads: a rank sends of its tokens every other rank's heads, beyond the key heads copies of them.
void add_to_heads(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const RowOps& ops) {
  b.exchange("tokens to heads", Part::exchange, OpKind::all_to_all, {p.cp, p.tpa}, Bytes(0));
  std::vector<double> widths;
  double all = 0;
  for (int k = 0; k < p.cp; ++k) all += widths.emplace_back(exchanged_bytes(c, a, state_heads_of(a, p, k)));
  std::vector<Shape> shapes;
  for (std::size_t k = 0; k < widths.size(); ++k)
    shapes.emplace_back(ExchangeShape{Bytes(static_cast<double>(ops.rows()[k]) * (all - widths[k]))});
  b.vary(shapes);
}

void add_to_tokens(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const RowOps& ops) {
  b.exchange("heads to tokens", Part::exchange, OpKind::all_to_all, {p.cp, p.tpa}, Bytes(0));
  Count all = 0;
  for (const Count rows : ops.rows()) all += rows;
  std::vector<Shape> shapes;
  for (int k = 0; k < p.cp; ++k) {
    const Count others = all - ops.rows()[static_cast<std::size_t>(k)];
    shapes.emplace_back(ExchangeShape{
        Bytes(static_cast<double>(others) * output_bytes(c, a, state_heads_of(a, p, k).value))});
  }
  b.vary(shapes);
}

// The products with the layer's input. The gate is made beside queries, keys and values where it is as wide
// as the outputs (vllm models/qwen3_next.py, in_proj_qkvz and in_proj_ba); what is made through a narrow
// width takes two products, of which every rank has the first whole (layers/kda.py, f_a_proj, g_a_proj).
void add_projections(const RowOps& ops, const Case& c, const Attention& a, const Plan& p) {
  const DeltaRule d = state_rule(a);
  const Count h = c.model.hidden, heads = recurrent_heads(a, p).value, values = recurrent_values(a, p);
  if (a.mamba) {  // all in one product: transformers models/nemotron_h/modeling_nemotron_h.py, in_proj
    ops.gemm("gate, inputs, B, C and steps", Part::qkv, Module::attention, h,
             values + recurrent_channels(a, p) + heads);
    if (c.batch.prefills())
      ops.elementwise("steps", Part::qkv, heads, 2 * static_cast<double>(heads) * activation_size(c));
    return;
  }
  const bool narrow = a.gate == OutputGate::narrow;
  ops.gemm("queries, keys, values", Part::qkv, Module::attention, h,
           recurrent_channels(a, p) + (narrow ? 0 : values));
  const Count decay = d.channel_decay ? d.key_dim : heads;
  ops.gemm("betas and decays", Part::qkv, Module::attention, h,
           heads + decay + (narrow ? Count{d.value_dim} : 0));
  if (d.channel_decay) ops.gemm("decays up", Part::qkv, Module::attention, d.key_dim, heads * d.key_dim);
  if (narrow) ops.gemm("gate up", Part::qkv, Module::attention, d.value_dim, values);
  // Softplus and logistic function: of decoding requests in the kernel of the update.
  if (c.batch.prefills()) {
    const Count made = heads + (d.channel_decay ? heads * d.key_dim : heads);
    ops.elementwise("decay gates", Part::qkv, made, 2 * static_cast<double>(made) * activation_size(c));
  }
}

// Ranks that share the one group of Mamba-2 norm its outputs by the sum of all their squares (vllm
// model_executor/layers/mamba/mamba_mixer2.py, Mixer2RMSNormGated, n_groups == 1; sgl-project/sglang
// layers/attention/mamba/mixer2_rms_norm_gated.py).
void add_gated_norm(const Case& c, const Attention& a, const Plan& p, const RowOps& ops,
                    std::vector<RecurrentFlow>& flows) {
  const Count values = recurrent_values(a, p);
  const double pass = static_cast<double>(values) * activation_size(c);
  const int ranks = out_proj_ranks(p);
  if (!a.mamba || a.mamba->groups % ranks == 0) {
    ops.elementwise("gated norm", Part::attention, values, 3 * pass);
    for (RecurrentFlow& flow : flows) flow.gate();
    return;
  }
  constexpr double kSquareBytes = 4;  // sums of squares are float32
  ops.elementwise("gate and squares", Part::attention, values, 3 * pass);
  for (RecurrentFlow& flow : flows) flow.gate_squares();
  ops.exchange("sum of squares", Part::exchange, OpKind::all_reduce, {ranks, 1},
               [&](Count rows) { return ExchangeShape{Bytes(kSquareBytes * static_cast<double>(rows))}; });
  for (RecurrentFlow& flow : flows) flow.sum_squares();
  ops.elementwise("norm of a group", Part::attention, values, 2 * pass);
  for (RecurrentFlow& flow : flows) flow.norm();
}

}  // namespace

DeltaRule state_rule(const Attention& a) {
  if (a.delta) return *a.delta;
  const Mamba& m = *a.mamba;
  return {.key_heads = m.groups,
          .value_heads = m.heads,
          .key_dim = m.state,
          .value_dim = m.head_dim,
          .conv = m.conv,
          .channel_decay = false,
          .state = m.state_type};
}

RecurrentHeads recurrent_heads(const Attention& a, const Plan& p) {
  const DeltaRule d = state_rule(a);
  const int ranks = out_proj_ranks(p), each = d.value_heads / d.key_heads;
  const Count values = rank_share(d.value_heads, ranks);
  if (values % each == 0) return {values / each, values};
  if (each % values == 0) return {1, values};
  Count keys = 0;
  for (int t = 0; t < ranks; ++t) {
    const auto [first, last] = key_heads_of(d, value_heads(a, p, t));
    keys = std::max(keys, last - first);
  }
  return {keys, values};
}

std::pair<Count, Count> value_heads(const Attention& a, const Plan& p, int t) {
  const Count all = state_rule(a).value_heads, own = rank_share(all, out_proj_ranks(p));
  return {std::min(all, own * t), std::min(all, own * (t + 1))};
}

std::pair<Count, Count> state_heads(const Attention& a, const Plan& p, int r) {
  const std::pair<Count, Count> all = value_heads(a, p, r % out_proj_ranks(p));
  if (p.cp == 1) return all;
  const Count each = rank_share(all.second - all.first, p.cp), first = all.first + each * (r / p.tpa % p.cp);
  return {std::min(first, all.second), std::min(first + each, all.second)};
}

std::pair<Count, Count> key_heads_of(const DeltaRule& d, std::pair<Count, Count> values) {
  const Count each = d.value_heads / d.key_heads;
  if (values.first == values.second) return {0, 0};
  return {values.first / each, (values.second + each - 1) / each};
}

Count recurrent_channels(const Attention& a, const Plan& p) {
  return shape_of(a, recurrent_heads(a, p)).channels();
}

Count recurrent_values(const Attention& a, const Plan& p) {
  return recurrent_heads(a, p).value * state_rule(a).value_dim;
}

Bytes rank_state_bytes(const Attention& a, const Plan& p, Count more) {
  const RecurrentShape s = shape_of(a, most_state_heads(a, p));
  return Bytes(static_cast<double>(s.state()) * bytes_per_element(state_rule(a).state) +
               static_cast<double>(s.channels() * (s.taps - 1 + more) * kConvBytes));
}

bool copies_states(const Case& c) {
  return c.engine && c.engine->drafts.states == DraftSteps::States::copied;
}

Bytes state_place_bytes(const Case& c, const Attention& a, const Plan& p) {
  return rank_state_bytes(a, p, copies_states(c) ? 0 : p[kDrafts]);
}

Bytes recurrent_cache_bytes(const Case& c, const Attention& a, const Plan& p) {
  const auto requests = static_cast<double>(requests_in(c.batch.decode) + requests_in(c.batch.prefill));
  const Bytes place = state_place_bytes(c, a, p);
  Bytes all = place;
  if (!copies_states(c) && p[kDrafts] > 0) {
    // An engine's places are alike; without one the rows of the convolution are kept once.
    const double matrices = static_cast<double>(shape_of(a, most_state_heads(a, p)).state()) *
                            bytes_per_element(state_rule(a).state);
    all += (c.engine ? place : Bytes(matrices)) * p[kDrafts];
  }
  return all * (requests * p.batch * p.in_flight);
}

void add_accepted_states(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Count requests = decode_requests(c, p);
  Count numbers = 0;
  Bytes bytes;
  for (int i = 0; i < static_cast<int>(c.model.attentions.size()); ++i) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(i)];
    if (!a.recurrent()) continue;
    const Count layers = layers_of_attention(c.model, i);
    numbers += layers * shape_of(a, most_state_heads(a, p)).state();
    bytes += rank_state_bytes(a, p) * static_cast<double>(2 * requests * layers);
  }
  b.begin_block("accepted states");
  b.elementwise("accepted states", Part::attention, OpKind::elementwise, {requests, numbers, bytes});
  b.end_block();
}

Bytes recurrent_buffers(const Case& c, const Attention& a, const Plan& p) {
  if (p.cp == 1 || !c.batch.prefills()) return Bytes(0);
  const RecurrentHeads h = recurrent_heads(a, p);
  return Bytes(2 * prefill_rows(c, p) * (exchanged_bytes(c, a, h) + output_bytes(c, a, h.value)));
}

AttentionWeights recurrent_weights(const Case& c, const Attention& a, const Plan& p) {
  const DeltaRule d = state_rule(a);
  const double h = c.model.hidden;
  const auto heads = static_cast<double>(recurrent_heads(a, p).value),
             values = static_cast<double>(recurrent_values(a, p));
  AttentionWeights w;
  w.out_proj = values * h;
  w.projections = h * (static_cast<double>(recurrent_channels(a, p)) + heads);
  if (a.mamba) {
    w.projections += h * values;
    return w;
  }
  w.projections += a.gate == OutputGate::narrow ? d.value_dim * (h + values) : h * values;
  w.projections += d.channel_decay ? d.key_dim * (h + heads * d.key_dim) : h * heads;
  return w;
}

// Channels before and behind the convolution, gates and outputs.
double recurrent_activations(const Attention& a, const Plan& p) {
  return 2.0 * static_cast<double>(recurrent_channels(a, p)) +
         2.0 * static_cast<double>(recurrent_values(a, p));
}

std::optional<std::string> too_many_for_states(const Model& m, const Plan& p) {
  for (const Attention& a : m.attentions) {
    // The outputs of a group are normed together: on one rank, or over all where there is one group, which
    // each has a copy of. Engines copy no other.
    if (a.mamba && a.mamba->groups > 1 && a.mamba->groups % out_proj_ranks(p) != 0)
      return fmt::format(
          "{} ranks share the layers with a state, whose {} groups (Mamba-2) they do not divide",
          out_proj_ranks(p), a.mamba->groups);
    if (a.mamba && a.mamba->heads % out_proj_ranks(p) != 0)
      return fmt::format(
          "{} ranks share the layers with a state, whose {} heads (Mamba-2) they do not divide",
          out_proj_ranks(p), a.mamba->heads);
    const Count heads = a.recurrent() ? rank_share(state_rule(a).value_heads, out_proj_ranks(p)) : 0;
    if (a.recurrent() && p.cp > 1 && rank_share(heads, rank_share(heads, p.cp)) < p.cp)
      return fmt::format(
          "cp={} ranks take heads for tokens in layers with a state, of which a TP rank has {}: some "
          "would have none",
          p.cp, heads);
    if (!a.delta || out_proj_ranks(p) <= a.delta->value_heads) continue;
    return fmt::format("{} ranks share the layers with a state, which have {} heads of values",
                       out_proj_ranks(p), a.delta->value_heads);
  }
  return std::nullopt;
}

Tokens whole_prompts(const ContextStep& step) {
  std::map<std::int32_t, Interval> all;
  for (int k = 0; k < step.p.cp; ++k) {
    for (const Interval& i : step.layout.fresh[static_cast<std::size_t>(k)]) {
      if (i.request == kPadding || i.size() == 0) continue;
      Interval& whole = all.try_emplace(i.request, Interval{i.request, i.begin, i.last() + 1}).first->second;
      whole.begin = std::min(whole.begin, i.begin);
      whole.end = std::max(whole.end, i.last() + 1);
    }
  }
  Tokens out;
  for (const auto& [request, interval] : all) out.push_back(interval);
  return out;
}

void add_recurrent(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const RowOps& ops,
                   ContextStep* prefills) {
  add_projections(ops, c, a, p);
  const Dtype math = state_math(c);
  std::vector<RecurrentFlow> flows;
  const bool exchanges = p.cp > 1;
  const auto state = [&](const char* name, OpKind kind, const std::function<RecurrentShape(int)>& shape) {
    b.recurrent(name, kind, math, shape(0));
    if (!exchanges) return;
    std::vector<Shape> shapes;
    for (int k = 0; k < p.cp; ++k) shapes.emplace_back(shape(k));
    b.vary(shapes);
  };
  // Requests that decode and prompts have kernels of their own, each the convolution and then the state.
  const auto add = [&](Asked asked, std::span<const Segment> segments) {
    const auto shape = [&](int k) {
      const RecurrentHeads h = exchanges ? state_heads_of(a, p, k) : recurrent_heads(a, p);
      return of_requests(shape_of(a, h), segments, p, asked);
    };
    RecurrentFlow& flow = flows.emplace_back(b, c, a, p, asked, prefills);
    if (exchanges) {
      add_to_heads(b, c, a, p, ops);
      flow.to_heads();
    }
    state("convolve", OpKind::convolve, shape);
    flow.convolve();
    state(asked == Asked::decode ? "update states" : "scan", OpKind::recur, shape);
    flow.recur();
    if (exchanges) {
      add_to_tokens(b, c, a, p, ops);
      flow.to_tokens();
    }
  };
  if (c.batch.decodes()) add(Asked::decode, asked_segments(c, p, Asked::decode));
  if (prefills) add(Asked::prefill, prompt_segments(c, p, prefills));
  add_gated_norm(c, a, p, ops, flows);
}

}  // namespace shardline
