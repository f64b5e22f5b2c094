// A type per class of matrices: which ops and which bytes each key of a scenario's `precision` is for.
#include "planner/plan/precision.hpp"

#include <gmock/gmock.h>

#include <map>

#include "planner/scenario/precision_keys.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/provenance.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case case_of(const std::string& model, const std::string& precision, bool prefill = false,
             const std::string& system = "gb200-nvl72") {
  const std::string text =
      "name: t\nsystem: " + system + "\nmodels: [" + model + "]\n" +
      (prefill ? "phase: prefill\nrequests: [{new: 8Ki tokens}]\n" : "context: 100000 tokens\n") + precision +
      "strategies: [tensor]\ngpus: [8]\nbatch: [1]\n";
  return parse_scenario(
             "t.yaml", text,
             {source_path("models/catalog"), source_path("hardware/catalog"), source_path("scenarios")}, {})
      .studies.at(0)
      .study;
}

std::string type_of(const Op& op) {
  return std::string(to_string(op.dtype)) + " in " + std::string(to_string(op.math));
}

// Op name -> "stored in arithmetic", of GEMMs.
std::map<std::string, std::string> types(const Case& c) {
  Schedule s;
  const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  lower(s, c, plan);
  std::map<std::string, std::string> out;
  for (const Op& op : s.ops) {
    if (is_gemm(op.kind)) out[op.name] = type_of(op);
  }
  return out;
}

const std::vector<std::string> kAttention{"q and kv down", "q up", "q absorb", "kv up", "value up"},
    kOutProj{"out projection"}, kDense{"ffn up", "ffn down"},
    kExperts{"experts up", "experts down", "shared experts up", "shared experts down"}, kRouter{"router"},
    kHead{"lm head"};

struct Row {
  std::string keys;
  std::string attention, out_proj, dense, experts, router, head;
};

TEST(Precision, EachKeyIsForItsClass) {
  const std::string fp4 = "fp4 in fp4", fp8 = "fp8 in fp8", bf16 = "bf16 in bf16";
  for (const Row& row : std::vector<Row>{
           {"", fp4, fp4, fp4, fp4, bf16, bf16},
           {"precision: {weights: fp8, math: fp8}\n", fp8, fp8, fp8, fp8, bf16, bf16},
           {"precision: {ffn_weights: fp8, ffn_math: fp8}\n", fp4, fp4, fp8, fp8, bf16, bf16},
           {"precision: {expert_weights: fp8, expert_math: fp8}\n", fp4, fp4, fp4, fp8, bf16, bf16},
           {"precision: {attention_weights: bf16, attention_math: bf16}\n", bf16, bf16, fp4, fp4, bf16, bf16},
           {"precision: {out_proj_weights: fp8, out_proj_math: fp8}\n", fp4, fp8, fp4, fp4, bf16, bf16},
           {"precision: {attention_weights: bf16, attention_math: bf16, out_proj_weights: fp8}\n", bf16,
            "fp8 in bf16", fp4, fp4, bf16, bf16},
           {"precision: {weights: fp8_static, math: fp8}\n", fp8, fp8, fp8, fp8, bf16, bf16},
           {"precision: {weights: fp8_dynamic}\n", "fp8_dynamic in fp8", "fp8_dynamic in fp8",
            "fp8_dynamic in fp8", "fp8_dynamic in fp8", bf16, bf16},
           {"precision: {weights: int4, expert_weights: mxfp4, expert_math: fp8}\n", "int4 in bf16",
            "int4 in bf16", "int4 in bf16", "mxfp4 in fp8", bf16, bf16},
           {"precision: {router: fp4}\n", fp4, fp4, fp4, fp4, fp4, bf16},
           {"precision: {head: fp8}\n", fp4, fp4, fp4, fp4, bf16, fp8},
           {"precision: {head: fp8_block, weights: fp8_block, math: fp8}\n", "fp8_block in fp8",
            "fp8_block in fp8", "fp8_block in fp8", "fp8_block in fp8", bf16, "fp8_block in fp8"},
       }) {
    for (const bool prefill : {false, true}) {
      const auto seen = types(case_of("deepseek-r1", row.keys, prefill));
      for (const auto& [names, type] : {std::pair(&kAttention, &row.attention),
                                        {&kOutProj, &row.out_proj},
                                        {&kDense, &row.dense},
                                        {&kExperts, &row.experts},
                                        {&kRouter, &row.router},
                                        {&kHead, &row.head}}) {
        int found = 0;
        for (const std::string& name : *names) {
          if (!seen.contains(name)) continue;
          EXPECT_EQ(seen.at(name), *type) << row.keys << name;
          ++found;
        }
        EXPECT_GT(found, 0) << row.keys << names->front();
      }
    }
  }
}

// What each class takes of a GPU's memory, by changing the class from one byte to two.
TEST(Precision, MemoryCountsEachClassInItsType) {
  const std::string base = "weights: fp8, math: fp8, router: fp8, head: fp8";
  const Case c = case_of("deepseek-r1", "precision: {" + base + "}\n");
  const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  const Model& m = c.model;
  const double h = m.hidden, vocab = std::ceil(m.vocab / 8.0);
  const auto weights = [&](const std::string& keys) {
    return memory_use(case_of("deepseek-r1", "precision: {" + keys + "}\n"), plan).weights.value;
  };
  const double before = weights(base);
  EXPECT_EQ(weights("weights: fp8, math: fp8, router: bf16, head: fp8") - before,
            (m.layers() - dense_layers(m)) * h * expert_ffn(m).experts);
  EXPECT_EQ(weights("weights: fp8, math: fp8, router: fp8, head: bf16") - before, 2 * h * vocab);
  EXPECT_EQ(weights(base + ", ffn_weights: bf16, expert_weights: fp8") - before,
            dense_layers(m) * 3 * h * std::ceil(dense_ffn(m).inner / 8.0));
  EXPECT_EQ(weights(base + ", expert_weights: bf16") - before,
            (m.layers() - dense_layers(m)) * 3 * h *
                (expert_ffn(m).experts * std::ceil(expert_ffn(m).inner / 8.0) +
                 std::ceil(expert_ffn(m).inner / 8.0)));
  const double attention = weights(base + ", attention_weights: bf16") - before;
  EXPECT_NEAR(attention + before,
              weights("weights: bf16, math: fp8, router: fp8, head: fp8") -
                  (weights(base + ", ffn_weights: bf16") - before),
              1);
}

// As DeepSeek-V3.1-NVFP4 does: NVFP4 but for the attention's other projections. The output projection of a
// rank has v / TPA heads, and nothing else changes with its type.
TEST(Precision, OutputProjectionsHaveATypeOfTheirOwn) {
  const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  const auto weights = [&](const char* model, const std::string& keys) {
    return memory_use(case_of(model, "precision: {weights: fp8, math: fp8" + keys + "}\n"), plan)
        .weights.value;
  };
  for (const char* model : {"deepseek-r1", "llama-3.1-70b"}) {
    const Model m = case_of(model, "").model;
    const double elements =
        1.0 * m.layers() * m.hidden * m.attentions[0].q_heads / 8 * value_width(m.attentions[0]);
    EXPECT_EQ(weights(model, ", out_proj_weights: bf16") - weights(model, ""), elements) << model;
    EXPECT_EQ(weights(model, ", attention_weights: bf16, out_proj_weights: fp8") -
                  weights(model, ", attention_weights: bf16"),
              -elements)
        << model;
  }
}

TEST(Precision, OutputProjectionsHaveTheTypeOfTheirCheckpoint) {
  const Case c = case_of("deepseek-r1", "");
  Model m = c.model;
  m.checkpoint = Checkpoint{};
  m.checkpoint->out_proj = Dtype::fp4;
  scenario_parts::PrecisionKeys keys;
  const auto type = [&](Module of) {
    const ModuleType t = keys.of(m, c.system.device).of(of);
    return std::pair(t.weights, t.math);
  };
  EXPECT_EQ(type(Module::attention), std::pair(Dtype::bf16, Dtype::bf16));
  EXPECT_EQ(type(Module::out_proj), std::pair(Dtype::fp4, Dtype::fp4));
  keys.attention_weights = Dtype::fp8;  // said of all projections
  EXPECT_EQ(type(Module::out_proj), std::pair(Dtype::fp8, Dtype::fp8));
  keys.out_proj_weights = Dtype::fp4;
  EXPECT_EQ(type(Module::attention), std::pair(Dtype::fp8, Dtype::fp8));
  EXPECT_EQ(type(Module::out_proj), std::pair(Dtype::fp4, Dtype::fp4));
  keys.out_proj_math = Dtype::bf16;
  EXPECT_EQ(type(Module::out_proj), std::pair(Dtype::fp4, Dtype::bf16));
  // No unit for it: said of its own key.
  try {
    case_of("llama-3.1-8b", "precision: {weights: fp8, kv: fp8, out_proj_weights: fp8, out_proj_math: fp4}\n",
            false, "h100-hgx");
    ADD_FAILURE() << "accepted";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("precision.out_proj_math is fp4, which H100"));
    EXPECT_EQ(std::string(e.what()).find("narrower"), std::string::npos);  // it was given
  }
  try {
    case_of("llama-3.1-8b", "precision: {weights: fp4}\n", false, "h100-hgx");
    ADD_FAILURE() << "accepted";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr(
                    "weights may be narrower than what they are computed in: precision: {math: bf16}"));
  }
  // Reports name the types that a checkpoint gives.
  Case of = c;
  of.model = m;
  of.precision = scenario_parts::PrecisionKeys{}.of(m, c.system.device);
  EXPECT_EQ(
      checkpoint_text(of),
      "  weights by checkpoint and scenario: attention bf16, its output projection fp4, dense FFN bf16, "
      "experts bf16, shared experts bf16, head bf16\n");
  EXPECT_EQ(checkpoint_text(c), "");
}

TEST(Precision, SharedExpertsHaveATypeOfTheirOwn) {
  struct Shared {
    std::string keys, routed, shared;
  };
  for (const char* model : {"deepseek-r1", "llama-4-maverick"}) {
    for (const Shared& row : std::vector<Shared>{
             {"shared_weights: fp8, shared_math: fp8", "fp4 in fp4", "fp8 in fp8"},
             {"shared_math: fp8", "fp4 in fp4", "fp4 in fp8"},
             {"expert_weights: fp8, expert_math: fp8", "fp8 in fp8", "fp8 in fp8"},
             {"ffn_weights: fp8, ffn_math: fp8, shared_weights: bf16", "fp8 in fp8", "bf16 in fp8"},
             {"expert_weights: fp8, expert_math: bf16, shared_weights: fp4, shared_math: fp4", "fp8 in bf16",
              "fp4 in fp4"}}) {
      for (const bool prefill : {false, true}) {
        const auto seen = types(case_of(model, "precision: {" + row.keys + "}\n", prefill));
        for (const char* half : {"up", "down"}) {
          EXPECT_EQ(seen.at(std::string("experts ") + half), row.routed) << row.keys;
          EXPECT_EQ(seen.at(std::string("shared experts ") + half), row.shared) << row.keys;
        }
      }
    }
    // A byte more for each of their elements, and for no other.
    const auto weights = [&](const std::string& type) {
      const Case c = case_of(model, "precision: {weights: fp8, math: fp8, shared_weights: " + type + "}\n");
      return memory_use(c, parse_plan("tensor:tpa=8,tpf=8,batch=1")).weights.value;
    };
    const Model m = case_of(model, "").model;
    const FeedForward& f = expert_ffn(m);
    EXPECT_EQ(weights("bf16") - weights("fp8"),
              (m.layers() - dense_layers(m)) * 3.0 * m.hidden * std::ceil(f.shared_experts * f.inner / 8.0))
        << model;
  }
}

TEST(Precision, SharedExpertsHaveTheTypeOfTheirCheckpoint) {
  const Case c = case_of("deepseek-r1", "");
  const Device& device = c.system.device;
  Model m = c.model;
  m.checkpoint = Checkpoint{};
  m.checkpoint->experts = Dtype::fp4;
  m.checkpoint->shared = Dtype::fp8;
  scenario_parts::PrecisionKeys keys;
  const auto shared = [&] {
    const ModuleType t = keys.of(m, device).of(Module::shared_experts);
    return std::pair(t.weights, t.math);
  };
  EXPECT_EQ(keys.of(m, device).of(Module::experts).weights, Dtype::fp4);
  EXPECT_EQ(shared(), std::pair(Dtype::fp8, Dtype::fp8));
  keys.expert_weights = Dtype::bf16;  // said of all experts
  EXPECT_EQ(shared(), std::pair(Dtype::bf16, Dtype::bf16));
  keys.shared_weights = Dtype::fp4;
  EXPECT_EQ(shared(), std::pair(Dtype::fp4, Dtype::fp4));
  EXPECT_EQ(keys.of(m, device).of(Module::experts).weights, Dtype::bf16);
  keys.shared_math = Dtype::fp8;
  EXPECT_EQ(shared(), std::pair(Dtype::fp4, Dtype::fp8));
}

// Of a checkpoint whose drafts and index are wider, whose LM head is narrow; keys go before it.
TEST(Precision, DraftsIndexAndEmbeddingHaveTheTypesOfTheirCheckpoint) {
  const Case c = case_of("deepseek-v3.2", "");
  const Device& device = c.system.device;
  Model m = c.model;
  ASSERT_TRUE(m.drafts);
  constexpr MatrixType wide = Dtype::bf16, narrow = Dtype::fp4;
  m.checkpoint = Checkpoint{};
  m.checkpoint->attention = m.checkpoint->out_proj = m.checkpoint->experts = m.checkpoint->head = narrow;
  m.checkpoint->index = wide;
  m.checkpoint->drafts = DraftMatrices{wide, wide, wide, wide, wide};
  scenario_parts::PrecisionKeys keys;
  const auto type = [&](Module of, bool draft = false) {
    const Precision p = keys.of(m, device);
    return (draft ? p.of_drafts() : p).of(of).weights;
  };
  EXPECT_EQ(type(Module::index), Dtype::bf16);
  EXPECT_EQ(type(Module::attention), Dtype::fp4);
  EXPECT_EQ(type(Module::head), Dtype::fp4);
  EXPECT_EQ(type(Module::embedding), Dtype::bf16);
  for (const Module of : {Module::attention, Module::out_proj, Module::index, Module::experts})
    EXPECT_EQ(type(of, true), Dtype::bf16);
  EXPECT_EQ(type(Module::head, true), Dtype::fp4);
  keys.expert_weights = Dtype::fp8;  // of all experts
  EXPECT_EQ(type(Module::experts, true), Dtype::fp8);
  EXPECT_EQ(type(Module::attention, true), Dtype::bf16);
  keys.draft_weights = Dtype::fp4;
  EXPECT_EQ(type(Module::experts, true), Dtype::fp4);
  EXPECT_EQ(type(Module::experts), Dtype::fp8);
  EXPECT_EQ(type(Module::attention, true), Dtype::fp4);
  keys.index_weights = Dtype::fp8;
  EXPECT_EQ(type(Module::index), Dtype::fp8);
  keys.head = Dtype::fp8;
  EXPECT_EQ(type(Module::embedding), Dtype::fp8);
  m.checkpoint.reset();
  m.drafts = c.model.drafts;
  EXPECT_EQ(type(Module::experts, true), Dtype::fp4) << "the key, without a checkpoint";
  keys.draft_weights.reset();
  EXPECT_EQ(keys.of(m, device).drafts.has_value(), false);
}

TEST(Precision, ModelsFromConfigJsonHaveTheTypesOfTheirCheckpoint) {
  const std::string r1 = source_path("tests/models/hf/deepseek-r1.json").string();
  const Precision p = case_of(r1, "").precision;
  EXPECT_EQ(p.of(Module::attention).weights, Dtype::fp8_block);
  EXPECT_EQ(p.of(Module::experts).weights, Dtype::fp8_block);
  EXPECT_EQ(p.of(Module::experts).math, Dtype::fp8);
  EXPECT_EQ(p.router, Dtype::bf16);
  EXPECT_EQ(p.head, Dtype::bf16);
  EXPECT_EQ(p.kv, Dtype::bf16);
  EXPECT_EQ(p.dispatch, Dtype::fp8);
  // Without quantisation all is BF16, not this project's default of FP4.
  const Precision llama = case_of(source_path("tests/models/hf/llama-3.1-8b.json").string(), "").precision;
  EXPECT_EQ(llama.of(Module::attention).weights, Dtype::bf16);
  EXPECT_EQ(llama.of(Module::dense_ffn).math, Dtype::bf16);
  // What the scenario says comes first.
  const Precision asked =
      case_of(r1, "precision: {expert_weights: fp4, expert_math: fp4, kv: fp8}\n").precision;
  EXPECT_EQ(asked.of(Module::attention).weights, Dtype::fp8_block);
  EXPECT_EQ(asked.of(Module::experts).weights, Dtype::fp4);
  EXPECT_EQ(asked.of(Module::experts).math, Dtype::fp4);
  EXPECT_EQ(asked.kv, Dtype::fp8);
}

// Without a word of it all is in the narrowest arithmetic of the device, which is said.
TEST(Precision, DefaultsAreOfTheDevice) {
  struct Default {
    const char* system;
    Dtype type;
    const char* text;
  };
  for (const Default& row :
       {Default{"gb200-nvl72", Dtype::fp4, "weights fp4, arithmetic fp4, KV cache fp4"},
        Default{"h100-hgx", Dtype::fp8, "weights fp8, arithmetic fp8, KV cache fp8"},
        Default{"a100-sxm", Dtype::bf16, "weights bf16, arithmetic bf16, KV cache bf16"}}) {
    const Case c = case_of("llama-3.1-8b", "", false, row.system);
    EXPECT_EQ(c.precision.of(Module::attention).weights, row.type) << row.system;
    EXPECT_EQ(c.precision.of(Module::dense_ffn).math, row.type) << row.system;
    EXPECT_EQ(c.precision.kv, row.type) << row.system;
    EXPECT_EQ(c.precision.dispatch, row.type) << row.system;
    const std::string text = precision_text(c);
    const std::string said =
        "  assumed: " + std::string(row.text) + " (the scenario's precision does not say)\n";
    EXPECT_EQ(text.substr(0, said.size()), said);
    EXPECT_EQ(text.size() > said.size(), row.type == Dtype::fp4) << "and that caches in FP4 are assumed";
  }
  // Tokens are only sent where there are experts.
  EXPECT_EQ(precision_text(case_of("deepseek-r1", "precision: {weights: fp8, kv: fp8}\n", false, "h200-hgx")),
            "  assumed: tokens sent to experts fp8 (the scenario's precision does not say)\n");
  // Arithmetic follows the weights that are given; what a device cannot compute is never put right in
  // silence.
  const Case wide = case_of("llama-3.1-8b", "precision: {weights: bf16, kv: bf16}\n", false, "h100-hgx");
  EXPECT_EQ(wide.precision.math, Dtype::bf16);
  EXPECT_EQ(precision_text(wide), "");
  EXPECT_THROW(case_of("llama-3.1-8b", "precision: {weights: fp4}\n", false, "h100-hgx"), UserError);
  EXPECT_EQ(
      case_of("llama-3.1-8b", "precision: {weights: fp4, math: bf16}\n", false, "h100-hgx").precision.math,
      Dtype::bf16);
}

TEST(Precision, ACheckpointWithoutACacheTypeIsSaid) {
  const std::string r1 = source_path("tests/models/hf/deepseek-r1.json").string();
  EXPECT_EQ(precision_text(case_of(r1, "")),
            "  assumed: KV cache bf16 (neither the scenario nor the checkpoint says)\n");
  EXPECT_EQ(precision_text(case_of(r1, "precision: {kv: fp8}\n")), "");
}

// NVFP4 weights under BF16 arithmetic, as ModelOpt's W4A16_NVFP4: the checkpoint knows both.
TEST(Precision, TheArithmeticOfACheckpointIsThatOfItsWeights) {
  const Case c = case_of("deepseek-r1", "");
  Model m = c.model;
  m.checkpoint = Checkpoint{};
  m.checkpoint->experts = m.checkpoint->shared = m.checkpoint->head = {Dtype::fp4, Dtype::bf16};
  scenario_parts::PrecisionKeys keys;
  const auto type = [&](Module of) {
    const ModuleType t = keys.of(m, c.system.device).of(of);
    return std::pair(t.weights, t.math);
  };
  for (const Module of : {Module::experts, Module::shared_experts, Module::head})
    EXPECT_EQ(type(of), std::pair(Dtype::fp4, Dtype::bf16));
  keys.expert_weights = keys.head = Dtype::fp8_dynamic;  // other weights have their own
  for (const Module of : {Module::experts, Module::shared_experts, Module::head})
    EXPECT_EQ(type(of), std::pair(Dtype::fp8_dynamic, Dtype::fp8));
  keys.expert_math = Dtype::bf16;
  EXPECT_EQ(type(Module::experts), std::pair(Dtype::fp8_dynamic, Dtype::bf16));
}

// Nothing measured reads caches in FP4: who prices them says so, and where no unit is for FP4 that too.
TEST(PrecisionText, CachesInFp4AreAssumed) {
  const std::string on_blackwell = precision_text(
      case_of("llama-3.1-8b", "precision: {weights: fp8, kv: fp4, math: fp8}\n", false, "gb200-nvl72"));
  EXPECT_NE(on_blackwell.find("assumed: caches in fp4"), std::string::npos);
  EXPECT_EQ(on_blackwell.find("no unit for FP4"), std::string::npos);
  const std::string on_hopper = precision_text(
      case_of("llama-3.1-8b", "precision: {weights: fp8, kv: fp4, math: fp8}\n", false, "h200-hgx"));
  EXPECT_NE(on_hopper.find("has no unit for FP4"), std::string::npos);
  EXPECT_EQ(precision_text(
                case_of("llama-3.1-8b", "precision: {weights: fp8, kv: fp8, math: fp8}\n", false, "h200-hgx"))
                .find("caches in"),
            std::string::npos);
}

}  // namespace
}  // namespace shardline
