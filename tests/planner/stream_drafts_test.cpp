// [P29] Modules that draft for models with several residual streams (DeepSeek-V4): what enters a pass, which
// layer it is, what it keeps, who starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "planner/layers/drafts.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/studies/listing.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using testing::over_step;
using testing::plan_of;
using testing::profile;

constexpr Count kUsers = 3, kStreams = 4;

Case v4(const std::string& model, const std::string& engine = "") {
  Case c = decode_case(model, "gb200-nvl72", 100'000);
  c.precision = all_bf16();
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  if (!engine.empty()) c.engine = profile(engine);
  return c;
}

struct Step {
  std::map<OpKind, double> ops;
  std::map<std::array<Count, 3>, double> inputs;  // products of what enters a pass: rows, k, n
  double moved = 0;                               // bytes of the small kernels beside them
  int attentions = 0;
};

Step step_of(const Case& c, const std::string& plan) {
  Step out;
  const Block* last = nullptr;
  over_step(c, plan_of(c, plan), [&](const Block& block, const Op& op, double times) {
    out.ops[op.kind] += times;
    const std::string_view name(block.name);
    if (&block != last && name == "attention") ++out.attentions;
    last = &block;
    if (name != "draft input") return;
    if (op.kind == OpKind::elementwise) out.moved += times * shape<ElementwiseShape>(op).bytes.value;
    if (op.kind != OpKind::gemm) return;
    const auto& s = shape<GemmShape>(op);
    out.inputs[{s.rows, s.k, s.n}] += times;
  });
  return out;
}

// Of the 1 + k verified rows once, then of one row of a request: a product of embeddings and one of four
// streams each, where DeepSeek-V3's module has one of twice the width.
TEST(StreamDrafts, P29EveryStreamEntersAPass) {
  for (const char* model : {"deepseek-v4-flash", "deepseek-v4-pro"}) {
    const Case c = v4(model);
    const Count h = c.model.hidden;
    for (const Count k : {1, 2, 5}) {
      SCOPED_TRACE(::testing::Message() << model << " " << k);
      const Step s = step_of(c, "tensor:tpa=8,ep=8,batch=3,drafts=" + std::to_string(k));
      std::map<std::array<Count, 3>, double> expected;
      expected[{kUsers * (1 + k), h, h}] += 1;
      expected[{kUsers * (1 + k) * kStreams, h, h}] += 1;
      if (k > 1) {
        expected[{kUsers, h, h}] += static_cast<double>(k - 1);
        expected[{kUsers * kStreams, h, h}] += static_cast<double>(k - 1);
      }
      EXPECT_EQ(s.inputs, expected);
      // Norms read and write the embedding and all streams; the sum reads both products and writes the
      // streams.
      const Count rows = kUsers * (1 + k) + kUsers * (k - 1), each = 2 * (1 + kStreams) + 1 + 2 * kStreams;
      EXPECT_EQ(s.moved, static_cast<double>(rows * each * h) * 2);
    }
  }
}

// A pass is a layer: streams are mixed around both of its sublayers and weighed for the head; its attention
// is a window, without index or rows, whether the model has another such layer (Flash) or none (Pro).
TEST(StreamDrafts, P29APassIsALayerWithAWindowAlone) {
  for (const char* model : {"deepseek-v4-flash", "deepseek-v4-pro"}) {
    const Case c = v4(model);
    const auto none = step_of(c, "tensor:tpa=8,ep=8,batch=3").ops;
    for (const int k : {1, 2, 5}) {
      SCOPED_TRACE(::testing::Message() << model << " " << k);
      const auto drafts = step_of(c, "tensor:tpa=8,ep=8,batch=3,drafts=" + std::to_string(k)).ops;
      const auto more = [&](OpKind kind) { return drafts.at(kind) - none.at(kind); };
      EXPECT_EQ(more(OpKind::mix_streams), 5 * k);
      EXPECT_EQ(more(OpKind::attend_sparse), k);
      EXPECT_EQ(more(OpKind::module_rest), k);
      EXPECT_EQ(more(OpKind::index_logits), 0);
      EXPECT_EQ(more(OpKind::top_k), 0);
      EXPECT_EQ(more(OpKind::all_gather), k);  // the choice of a token
      EXPECT_EQ(more(OpKind::grouped_gemm) * c.model.layers(), k * none.at(OpKind::grouped_gemm));
    }
  }
}

TEST(StreamDrafts, P29AKindOfModulesAloneIsInNoStepWithout) {
  const Case pro = v4("deepseek-v4-pro"), flash = v4("deepseek-v4-flash");
  const int last = static_cast<int>(pro.model.attentions.size()) - 1;
  EXPECT_TRUE(of_drafts_alone(pro.model, last));
  EXPECT_EQ(layers_of_attention(pro.model, last), 0);
  for (int i = 0; i < std::ssize(flash.model.attentions); ++i) EXPECT_FALSE(of_drafts_alone(flash.model, i));
  EXPECT_EQ(step_of(pro, "tensor:tpa=8,ep=8,batch=3").attentions, 2);
  EXPECT_EQ(step_of(pro, "tensor:tpa=8,ep=8,batch=3,drafts=1").attentions, 3);
  EXPECT_EQ(attention_text(pro.model).find(", 0 "), std::string::npos) << attention_text(pro.model);
}

// As a model with one more layer of the module's kinds, and both products' matrices.
TEST(StreamDrafts, P29AModuleIsALayerMoreInMemory) {
  for (const char* model : {"deepseek-v4-flash", "deepseek-v4-pro"}) {
    SCOPED_TRACE(model);
    const Case c = v4(model);
    const DraftLayer layer = draft_layer(c.model).value();
    Case longer = c;
    longer.model.runs.push_back({layer.attention, layer.ffn, 1});
    const double h = c.model.hidden;
    const MemoryUse none = memory_use(c, plan_of(c, "tensor:tpa=8,ep=8,batch=3"));
    const MemoryUse more = memory_use(longer, plan_of(longer, "tensor:tpa=8,ep=8,batch=3"));
    const MemoryUse drafts = memory_use(c, plan_of(c, "tensor:tpa=8,ep=8,batch=3,drafts=1"));
    EXPECT_NEAR(drafts.weights.value - none.weights.value,
                more.weights.value - none.weights.value + 4 * h * h, 1e-6 * h * h);
    EXPECT_GT(more.kv, none.kv);
    EXPECT_GE(drafts.kv, more.kv);  // with room for the draft itself
    EXPECT_LT(drafts.kv.value - more.kv.value, 1e-3 * none.kv.value);
  }
}

// Types of what enters are those of the module's attention, DeepSeek-V3's those of activations.
TEST(StreamDrafts, P29ProductsOfStreamsHaveTheTypeOfTheModulesAttention) {
  Case c = decode_case("deepseek-v4-flash", "gb200-nvl72", 100'000);
  EXPECT_EQ(draft_input_type(c).weights, c.precision.of_drafts().of(Module::attention).weights);
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  EXPECT_EQ(draft_input_type(r1).weights, r1.precision.activations);
  EXPECT_NE(draft_input_type(c).weights, c.precision.activations);
}

// vLLM and SGLang have a class for the module (config/speculative.py, configs/model_config.py), TensorRT-LLM
// 1.3.0rc20 has none of the model.
TEST(StreamDrafts, P29EnginesStartWhatTheyHaveAClassFor) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = v4("deepseek-v4-flash", engine);
    c.model.architecture = "DeepseekV4ForCausalLM";
    const Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=3,drafts=2");
    EXPECT_EQ(no_drafts(c, p), std::nullopt);
    const auto refusal = does_not_start(c, p);
    const std::string rule = refusal ? refusal->rule : "";
    EXPECT_EQ(rule == "model", std::string(engine) == "trtllm") << rule;
    EXPECT_EQ(rule.find("draft"), std::string::npos) << rule;
  }
}

// What a module would read of attention residuals is not published.
TEST(StreamDrafts, P29SumsOfLayersHaveNoModule) {
  Case c = v4("deepseek-v4-flash");
  c.model.residual = {};
  c.model.residual.block = 12;
  EXPECT_THAT(
      no_drafts(c, plan_of(v4("deepseek-v4-flash"), "tensor:tpa=8,ep=8,batch=3,drafts=2")).value_or(""),
      ::testing::HasSubstr("sums of layers is not published"));
}

}  // namespace
}  // namespace shardline
