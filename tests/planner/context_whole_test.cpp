// [C26] Ranks that share prompts and keep the caches of all of them, as SGLang's do: new tokens alone are
// sent, MLA attends absorbed, and of a pair one rank hands the cache over.
#include <gtest/gtest.h>

#include "hardware/cost/kernel_cost.hpp"
#include "models/model/cache.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/handoff/cache_layout.hpp"
#include "planner/layers/gathered.hpp"
#include "planner/layers/memory.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/cache_pools.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kCp8 = "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1";
constexpr const char* kChunks = "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1,in_flight=1,prefill_chunk=8192";

Case study(const std::string& model, std::vector<Segment> requests, const char* engine) {
  Case c = decode_case(model, "h200-hgx", 1);
  c.precision = {Dtype::fp8, Dtype::bf16, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  c.precision.router = c.precision.head = Dtype::bf16;
  c.batch = prefill_batch(std::move(requests));
  if (engine != nullptr) c.engine = engine_named(engine);
  return c;
}

std::vector<double> bytes_of(const Schedule& s, const char* name) {
  std::vector<double> out;
  for (const Op& op : ops_named(s, name)) out.push_back(message_bytes(op).value);
  return out;
}

// However many tokens are cached: those of papers are sent again.
TEST(ContextWhole, C26ANewTokenIsSentOnce) {
  for (const char* model : {"deepseek-r1", "deepseek-v3.2", "qwen3-235b-a22b"}) {
    SCOPED_TRACE(model);
    for (const long long cached : {0LL, 24'576LL, 122'880LL}) {
      const std::vector<Segment> chunk{{cached, 8'192}};
      const Case papers = study(model, chunk, nullptr), sglang = study(model, chunk, "sglang");
      const Attention& a = sglang.model.attentions.front();
      const double width = has_latents(a) ? a.kv_lora_rank + a.rope_dim : 2.0 * a.kv_heads * a.head_dim;
      EXPECT_EQ(bytes_of(lowered(sglang, kCp8), "gather KV").front(), 1'024 * width * 2);
      const double all = static_cast<double>(cached + 8'192) / 8;
      EXPECT_NEAR(bytes_of(lowered(papers, kCp8), "gather KV").front(), all * width * 2, 1);
      if (a.index) {
        EXPECT_EQ(bytes_of(lowered(sglang, kCp8), "gather index keys").front(), 1'024.0 * a.index->dim * 2);
      }
    }
  }
}

// Pairs, and the work of each: 576 + 512 numbers for 192 + 128.
TEST(ContextWhole, C26LatentsAreAttendedToAbsorbed) {
  const Case c = study("deepseek-r1", {{16'384, 8'192}}, "sglang"),
             papers = study("deepseek-r1", {{16'384, 8'192}}, nullptr);
  const Schedule absorbed = lowered(c, kCp8), expanded = lowered(papers, kCp8);
  double pairs = 0, same = 0, flop = 0, less = 0;
  for (OpIndex i = 0; i < absorbed.ops.size(); ++i) {
    if (absorbed.ops[i].kind != OpKind::attend_prefill) continue;
    for (int r = 0; r < 8; ++r) {
      const Op op = absorbed.op_of_class(i, absorbed.class_of(r));
      const auto& s = shape<AttendPrefillShape>(op);
      EXPECT_EQ(s.cache, CacheRows::latent);
      EXPECT_EQ(s.kv_heads, 1);
      EXPECT_LE(s.kv_rows, 24'576);
      pairs += static_cast<double>(s.pairs);
      flop += flops(op).value;
    }
    break;
  }
  for (OpIndex i = 0; i < expanded.ops.size(); ++i) {
    if (expanded.ops[i].kind != OpKind::attend_prefill) continue;
    for (int r = 0; r < 8; ++r) {
      const Op op = expanded.op_of_class(i, expanded.class_of(r));
      same += static_cast<double>(shape<AttendPrefillShape>(op).pairs);
      less += flops(op).value;
    }
    break;
  }
  EXPECT_EQ(pairs, same);
  EXPECT_EQ(pairs, 8'192.0 * 16'384 + 8'192.0 * 8'193 / 2);
  EXPECT_DOUBLE_EQ(flop / less, 1088.0 / 320);
  EXPECT_EQ(ops_named(absorbed, "kv up").size(), 0u);
  EXPECT_EQ(ops_named(expanded, "q absorb").size(), 0u);
  EXPECT_EQ(ops_named(absorbed, "q absorb").size(), ops_named(expanded, "kv up").size());
}

TEST(ContextWhole, C26OtherPlansAndEnginesShareTheirCaches) {
  const Case sglang = study("deepseek-r1", {{0, 8'192}}, "sglang"),
             vllm = study("deepseek-r1", {{0, 8'192}}, "vllm");
  EXPECT_TRUE(keeps_whole_caches(sglang, parse_plan(kCp8)));
  EXPECT_FALSE(keeps_whole_caches(sglang, parse_plan("tensor:tpa=8,ep=8,batch=1")));
  EXPECT_FALSE(keeps_whole_caches(sglang, parse_plan("ring_pass_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1")));
  EXPECT_FALSE(keeps_whole_caches(vllm, parse_plan(kCp8)));
}

// Buffers follow from a chunk, caches from the prompt.
TEST(ContextWhole, C26BuffersAreThoseOfAChunk) {
  for (const long long prompt : {8'192LL, 131'072LL}) {
    const Case c = study("deepseek-r1", {{0, prompt}}, "sglang");
    const Plan p = parse_plan(kChunks);
    EXPECT_EQ(gathered_buffers(c, c.model.attentions.front(), p), Bytes(2 * 8'192.0 * 576 * 2));
    EXPECT_EQ(memory_use(c, p).kv.value, 61.0 * 576 * 2 * static_cast<double>(prompt));
  }
}

TEST(ContextWhole, C26AStepHasOnePrompt) {
  const Case c = study("deepseek-r1", {{0, 1'024}}, "sglang");
  const PromptStep shared = prompt_step(c, *c.engine, parse_plan(kCp8), 1'024),
                   tensor = prompt_step(c, *c.engine, parse_plan("tensor:tpa=8,ep=8,batch=1"), 1'024);
  EXPECT_EQ(shared.prompts, 1);
  EXPECT_EQ(shared.chunk, 1'024);
  EXPECT_EQ(tensor.prompts, 8);
}

// The whole cache, once, from rank 0; the others have it, too.
TEST(ContextWhole, C26RankZeroHandsTheCacheOver) {
  const Case c = study("deepseek-r1", {{0, 32'768}}, "sglang");
  const CacheLayout layout = cache_layout(c, parse_plan(kChunks), CacheSide::prefilled, 32'768, 0);
  ASSERT_EQ(layout.boxes.size(), 8u);
  for (const CacheBox& box : layout.boxes) {
    EXPECT_EQ(size(box.tokens), box.rank == 0 ? 32'768 : 0);
    EXPECT_EQ(size(box.received), box.rank == 0 ? 0 : 32'768);
    EXPECT_EQ(box_bytes(layout, box).value, 61.0 * 32'768 * 576 * 2);
  }
}

}  // namespace
}  // namespace shardline
