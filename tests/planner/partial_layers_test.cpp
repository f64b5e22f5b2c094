// Layers of attention or of a feed-forward network alone, output gates, one matrix for keys and values,
// experts on latents and shared experts of a width of their own: what is lowered and stored is what the
// model's definition counts ([M1], [M2], [M5]), and a layer cut in two halves costs what it did.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

FeedForward none_ffn() {
  FeedForward f;
  f.absent = true;
  return f;
}
Attention none_attention() {
  Attention a;
  a.kind = AttentionKind::none;
  return a;
}

/// The case with other layers: one entry of each per layer.
Case with_layers(Case c, const std::vector<Attention>& attentions, const std::vector<FeedForward>& ffns) {
  set_layers(c.model, attentions, ffns);
  for (const ModelFault& f : check(c.model)) ADD_FAILURE() << f.field << ": " << f.what;
  set_routing(c, Routing{});
  return c;
}

/// Each kind of layer of the model once, changed by `change`.
template <class Change>
Case changed(const std::string& model, Change change) {
  Case c = decode_case(model, "h100-hgx", 4096);
  c.precision = all_bf16();
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  for (const LayerRun& run : c.model.runs) {
    attentions.push_back(c.model.attentions[static_cast<std::size_t>(run.attention)]);
    ffns.push_back(c.model.ffns[static_cast<std::size_t>(run.ffn)]);
    change(attentions.back(), ffns.back());
  }
  return with_layers(std::move(c), attentions, ffns);
}

struct Variant {
  const char* name;
  Case c;
};

std::vector<Variant> variants() {
  const auto none = [](Attention&, FeedForward&) {};
  const auto gated = [](OutputGate gate) { return [gate](Attention& a, FeedForward&) { a.gate = gate; }; };
  const auto routed = [](auto change) {
    return [change](Attention&, FeedForward& f) {
      if (f.routed()) change(f);
    };
  };
  return {
      {"gqa", changed("llama-3.1-70b", none)},
      {"gqa, full gate", changed("llama-3.1-70b", gated(OutputGate::full))},
      {"gqa, gate per head", changed("llama-3.1-70b", gated(OutputGate::head))},
      {"mla", changed("deepseek-r1", none)},
      {"mla, full gate", changed("deepseek-r1", gated(OutputGate::full))},
      {"latents", changed("deepseek-r1", routed([](FeedForward& f) {
                            f.latent = 1024;
                            f.latent_norm = true;
                          }))},
      {"shared width, gated", changed("deepseek-r1", routed([](FeedForward& f) {
                                        f.shared_inner = 5376;
                                        f.shared_gate = true;
                                      }))},
  };
}

/// FLOPs of the weights that one rank multiplies in a step.
double gemm_flops(const Case& c, const std::string& plan) {
  const Schedule s = lowered(c, plan);
  const std::vector<double> runs = executions(s);
  double sum = 0;
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last; ++op)
      if (is_gemm(s.ops[op].kind)) sum += runs[b] * flops(s.ops[op]).value;
  }
  return sum;
}

TEST(PartialLayers, OneRankMultipliesTheWeightsOfTheModel) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const double expected = 2 * active_matmul_weights(v.c.model);
    EXPECT_NEAR(gemm_flops(v.c, "tensor:batch=1") / expected, 1, 1e-12);
    EXPECT_NEAR(gemm_flops(v.c, "tensor:batch=6") / (6 * expected), 1, 1e-12);
  }
}

TEST(PartialLayers, OneRankStoresTheMatricesOfTheModel) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Model& m = v.c.model;
    double elements = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
    for (const LayerRun& run : m.runs) {
      const FeedForward& f = m.ffns[static_cast<std::size_t>(run.ffn)];
      const double biases = (f.router_bias ? f.experts : 0) + (f.latent_norm ? f.latent : 0);
      elements += run.count * (attention_matrices(m, m.attentions[static_cast<std::size_t>(run.attention)]) +
                               ffn_parameters(m, f) - biases);
    }
    const Plan plan = plan_of(v.c, {}, "tensor:batch=1");
    EXPECT_NEAR(memory_use(v.c, plan).weights.value / (2 * elements), 1, 1e-12);
  }
}

// On every rank of a plan the gate is as wide as the slice of the heads that it multiplies.
TEST(PartialLayers, GatesAreAsWideAsTheSliceThatEntersTheOutputProjection) {
  const Case c = changed("llama-3.1-70b", [](Attention& a, FeedForward&) { a.gate = OutputGate::full; });
  for (const char* plan : {"tensor:tpa=8,tpf=8", "helix:tpa=4,kvp=2,tpf=8", "dcp:tpa=16,tpf=16,dcp=2"}) {
    SCOPED_TRACE(plan);
    const Schedule s = lowered(c, plan);
    const std::vector<Op> gates = ops_named(s, "output gate"), outs = ops_named(s, "out projection");
    ASSERT_EQ(gates.size(), 1U);
    ASSERT_EQ(outs.size(), 1U);
    EXPECT_EQ(shape<ElementwiseShape>(gates[0]).width, shape<GemmShape>(outs[0]).k);
  }
}

/// Layers of both, and the same cut into layers of one each.
std::pair<Case, Case> whole_and_halves(const std::string& model) {
  Case c = decode_case(model, "h100-hgx", 4096);
  c.precision = all_bf16();
  const Attention a = first_attention(c.model);
  const FeedForward f = has_experts(c.model) ? expert_ffn(c.model) : dense_ffn(c.model);
  const Case whole = with_layers(c, std::vector<Attention>(4, a), std::vector<FeedForward>(4, f));
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  for (int i = 0; i < 4; ++i) {
    attentions.insert(attentions.end(), {a, none_attention()});
    ffns.insert(ffns.end(), {none_ffn(), f});
  }
  return {whole, with_layers(c, attentions, ffns)};
}

TEST(PartialLayers, ALayerInTwoHalvesCostsAndKeepsWhatItDid) {
  struct Row {
    const char *model, *plan;
  };
  for (const Row& row : {Row{"llama-3.1-70b", "tensor:tpa=8,tpf=8,batch=4"},
                         Row{"llama-3.1-70b", "helix:tpa=4,kvp=2,tpf=8,batch=4"},
                         Row{"llama-3.1-70b", "pipeline:pp=4,tpa=2,tpf=2,in_flight=4,batch=2"},
                         Row{"llama-3.1-70b", "dcp:tpa=16,tpf=16,dcp=2,batch=4"},
                         Row{"deepseek-r1", "dp_ep:dp=8,ep=8,batch=4"},
                         Row{"deepseek-r1", "helix:tpa=2,kvp=4,ep=8,value_up=after,batch=4"},
                         Row{"deepseek-r1", "tensor:tpa=8,ep=8,batch=4"}}) {
    SCOPED_TRACE(std::string(row.model) + " " + row.plan);
    const auto [whole, halves] = whole_and_halves(row.model);
    const Plan plan = plan_of(whole, {}, row.plan);
    ASSERT_EQ(check_plan(halves, plan), std::nullopt);
    Evaluator one(whole), two(halves);
    EXPECT_NEAR(two.simulate(plan) / one.simulate(plan), 1, 1e-12);
    EXPECT_NEAR(two.bound(plan) / one.bound(plan), 1, 1e-12);
    const MemoryUse a = memory_use(whole, plan), b = memory_use(halves, plan);
    EXPECT_NEAR(b.weights / a.weights, 1, 1e-12);
    EXPECT_NEAR(b.kv / a.kv, 1, 1e-12);
    EXPECT_EQ(b.activations, a.activations);
    EXPECT_EQ(b.buffers, a.buffers);
  }
}

TEST(PartialLayers, PrefillsAndMixedStepsRunThem) {
  for (const char* kind : {"prefill", "mixed"}) {
    SCOPED_TRACE(kind);
    auto [whole, halves] = whole_and_halves("llama-3.1-70b");
    for (Case* c : {&whole, &halves}) {
      if (kind == std::string_view("prefill")) c->batch.decode.clear();
      c->batch.prefill = {{0, 4096}};
    }
    const Plan plan = plan_of(whole, {}, "tensor:tpa=8,tpf=8,batch=1");
    Evaluator one(whole), two(halves);
    EXPECT_NEAR(two.simulate(plan) / one.simulate(plan), 1, 1e-12);
  }
}

// What travels to experts is as wide as they are.
TEST(PartialLayers, LatentsTravelToExperts) {
  const Case plain = changed("deepseek-r1", [](Attention&, FeedForward&) {});
  const Case latent = changed("deepseek-r1", [](Attention&, FeedForward& f) {
    if (f.routed()) f.latent = 1792;
  });
  const double share = 1792.0 / plain.model.hidden;
  for (const char* plan : {"dp_ep:dp=8,ep=8,batch=4", "dp_ep:dp=8,ep=8,batch=4,moe_a2a=gather"}) {
    SCOPED_TRACE(plan);
    const Schedule a = lowered(plain, plan), b = lowered(latent, plan);
    int travelled = 0;
    for (const char* name : {"dispatch", "combine", "gather tokens", "sum outputs"}) {
      const std::vector<Op> x = ops_named(a, name), y = ops_named(b, name);
      ASSERT_EQ(x.size(), y.size());
      for (std::size_t i = 0; i < x.size(); ++i, ++travelled)
        EXPECT_NEAR(message_bytes(y[i]) / message_bytes(x[i]), share, 1e-12);
    }
    EXPECT_EQ(travelled, 2);
    EXPECT_EQ(ops_named(b, "latent down").size(), 1U);
    EXPECT_EQ(ops_named(b, "latent up").size(), 1U);
  }
}

// What a gate of the shared experts adds needs no routed token: halves of a batch that overlap
// (two_batches.cpp) run it beside messages as they do the shared experts, which they know by name.
TEST(PartialLayers, GatesOfSharedExpertsAreKnownAsSharedExperts) {
  const auto names = [](bool gated) {
    const Case c =
        changed("deepseek-r1", [&](Attention&, FeedForward& f) { f.shared_gate = gated && f.routed(); });
    std::vector<std::string> out;
    for (const Op& op : lowered(c, "dp_ep:dp=8,ep=8,batch=4").ops) out.emplace_back(op.name);
    return out;
  };
  std::vector<std::string> plain = names(false), more;
  for (const std::string& name : names(true)) {
    const auto at = std::find(plain.begin(), plain.end(), name);
    at == plain.end() ? more.push_back(name) : static_cast<void>(plain.erase(at));
  }
  EXPECT_TRUE(plain.empty());
  ASSERT_EQ(more.size(), 2U);
  for (const std::string& name : more) EXPECT_EQ(name.rfind("shared experts", 0), 0U) << name;
}

TEST(PartialLayers, StrategiesThatDoNotRunThemSayIt) {
  const auto [whole, halves] = whole_and_halves("llama-3.1-70b");
  int refused = 0;
  for (const Strategy* s : strategies()) {
    if (s->local_attention) continue;
    SCOPED_TRACE(s->name);
    Case c = halves;
    if (!s->decodes) {
      c.batch.decode.clear();
      c.batch.prefill = {{0, 4096}};
    }
    EXPECT_FALSE(s->takes(c));
    Plan plan;
    plan.strategy = id_of(*s);
    const auto reason = check_plan(c, plan);
    ASSERT_TRUE(reason);
    EXPECT_NE(reason->find("layers that lack attention"), std::string::npos) << *reason;
    ++refused;
  }
  EXPECT_EQ(refused, 5);  // kv_runahead, ring_decode, star, apb, sparse
}

}  // namespace
}  // namespace shardline
