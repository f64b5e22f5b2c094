// hardware/cost/forms/README.md [H68] to [H72]: what kernels of sparse and linear attention count, their
// limits, and blocks in parts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/sparse_models.hpp"
#include "hardware/cost/forms/sparse_module.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using Shape = std::vector<double>;
using Words = std::vector<std::string>;

FormContext context_of(const Form& form, const Words& words, const char* system = "h200-hgx") {
  FormContext c;
  EXPECT_TRUE(form.context(words, testing::catalog_system(system), c));
  return c;
}
std::vector<double> start(const Form& form) {
  std::vector<double> out;
  for (const FormParameter& p : form.parameters) out.push_back(p.start);
  return out;
}
/// Parameters at their starts, but for those that are named.
std::vector<double> with(const Form& form, std::initializer_list<std::pair<const char*, double>> set) {
  std::vector<double> out = start(form);
  for (const auto& [name, value] : set) {
    std::size_t i = 0;
    while (form.parameters[i].name != std::string_view(name)) ++i;
    out[i] = value;
  }
  return out;
}

TEST(SparseModels, H71CountsWeightsOfARank) {
  const SparseLayer* v32 = find_sparse_layer("deepseek-v3.2", "indexer");
  ASSERT_NE(v32, nullptr);
  // Down-projections, 16 heads up and out, the index; 16 heads absorbed both ways.
  const double plain =
      7168.0 * (1536 + 576) + 16 * (1536.0 * 192 + 128 * 7168) + 1536.0 * 64 * 128 + 7168.0 * (128 + 64);
  const double absorbed = 16 * 512.0 * 256;
  EXPECT_EQ(projection_weights(*v32, 16), plain + absorbed);
  EXPECT_EQ(projection_bytes(*v32, 16, 1), plain + 2 * absorbed);
  // A layer without an index of its own has that much less.
  const SparseLayer *full = find_sparse_layer("glm-5.2", "indexer"),
                    *shared = find_sparse_layer("glm-5.2", "skip_indexer");
  ASSERT_TRUE(full != nullptr && shared != nullptr);
  EXPECT_EQ(projection_weights(*full, 8) - projection_weights(*shared, 8),
            2048.0 * 32 * 128 + 6144.0 * (128 + 32));
  EXPECT_EQ(find_sparse_layer("glm-5", "skip_indexer"), nullptr);
}

TEST(SparseModels, H71CountsRowsThatAreAttendedTo) {
  const auto rows = [](const char* model, const char* layer, double tokens) {
    return attended_rows(*find_sparse_layer(model, layer), tokens);
  };
  EXPECT_EQ(rows("deepseek-v3.2", "indexer", 1000), 1000);
  EXPECT_EQ(rows("deepseek-v3.2", "indexer", 1e6), 2048);
  EXPECT_EQ(rows("deepseek-v4-pro", "csa", 1024), 1024 / 4 + 128);
  EXPECT_EQ(rows("deepseek-v4-pro", "csa", 1e6), 1024 + 128);
  EXPECT_EQ(rows("deepseek-v4-flash", "hca", 1 << 20), (1 << 20) / 128 + 128);  // grows on
  EXPECT_EQ(rows("MiniMax-M3", "msa", 1e6), 16 * 128);
}

TEST(SparseKernels, H68AThreadBlockScoresAllKeysOfItsRows) {
  const Form& f = kSparseKernelForm;
  // GLM-5: 32 index heads, 4 rows a thread block.
  const FormContext c = context_of(f, {"index_logits", "glm-5", "fp8_mqa_logits"});
  const std::vector<double> p = with(f, {{"round", 1}, {"throttle", 1e-9}, {"t0", 1e-6}, {"start", 1e-6}});
  const double chain = 0.5e-9 * 65536;  // key
  EXPECT_NEAR(f.seconds(Shape{1, 4, 65532}, c, p), chain, 1e-9);
  EXPECT_NEAR(f.seconds(Shape{1, 4 * 132, 65536 - 4 * 132}, c, p), chain, 1e-9);  // a wave
  const double second = f.seconds(Shape{1, 4 * 133, 65536}, c, p);
  EXPECT_NEAR(second / chain, 2, 0.02);
  // Single rows of four requests share a block, which goes through the keys of all.
  EXPECT_NEAR(f.seconds(Shape{8, 1, 16383}, c, p), chain, 1e-9);
}

TEST(SparseKernels, H68SelectingIsAThreadBlockPerRow) {
  const Form& f = kSparseKernelForm;
  const FormContext c = context_of(f, {"topk_top_last", "glm-5", "fast_topk_transform_fused"});
  const std::vector<double> p =
      with(f, {{"throttle", 1e-9}, {"blocks", 1}, {"round", 1}, {"e_memory", 0.955}, {"knee", 300}});
  const double one = 3e-6 + 2e-6 + 0.5e-9 * 131072;
  EXPECT_NEAR(f.seconds(Shape{1, 1, 131071}, c, p), one, 1e-8);
  // As long for as many requests as there are multiprocessors: scores are read in passing.
  EXPECT_NEAR(f.seconds(Shape{132, 1, 131071}, c, p), one, 0.02 * one);
  EXPECT_NEAR(f.seconds(Shape{264, 1, 131071}, c, p), 2 * one - 3e-6, 0.02 * one);
  // Rows that have no more keys than are selected are copied.
  EXPECT_NEAR(f.seconds(Shape{1, 1, 2047}, c, p), 3e-6 + 200e-9 / 132, 1e-9);
  EXPECT_GT(f.seconds(Shape{1, 1, 2048}, c, p), 5e-6);
}

TEST(SparseKernels, H68LongRowsAreSelectedByClusters) {
  const Form& f = kSparseKernelForm;
  const FormContext c = context_of(f, {"v4_topk_v2_top_last", "deepseek-v4-pro", "topk_transform_v2"});
  const std::vector<double> p = with(f, {{"row", 6000}, {"more", 0.02}, {"throttle", 1e-9}});
  EXPECT_NEAR(f.seconds(Shape{1, 1, 65536}, c, p), 5e-6 + 0.5e-9 * 16384, 1e-8);
  EXPECT_NEAR(f.seconds(Shape{1, 1, 131072}, c, p), 9e-6 + 0.02e-9 * 32768, 1e-8);
  // Another model selects half as many, and does so from half the length on.
  const FormContext flash = context_of(f, {"v4_topk_v2_top_last", "deepseek-v4-flash", "topk_transform_v2"});
  EXPECT_GT(f.seconds(Shape{1, 1, 3000}, flash, p), 2 * f.seconds(Shape{1, 1, 3000}, c, p) - 3e-6);
}

TEST(SparseKernels, H68UnknownKernelsHaveNoForm) {
  FormContext c;
  const System s = testing::catalog_system("h200-hgx");
  EXPECT_FALSE(kSparseKernelForm.context(Words{"index_logits", "gpt-oss", "x"}, s, c));
  EXPECT_FALSE(kSparseKernelForm.context(Words{"csa_attn", "deepseek-v4-pro", "x"}, s, c));
  EXPECT_FALSE(kSparseDecodeForm.context(Words{"gpt-oss", "msa", "bf16", "bf16", "x"}, s, c));
}

TEST(LinearAttention, H69CountsWhatIsMoved) {
  const Form& f = kLinearAttentionForm;
  const FormContext conv = context_of(f, {"prefill", "causal_conv1d_fn"});
  // 2 x 16 + 32 heads of 128: read and written per token, three tokens kept per request.
  EXPECT_EQ(f.traffic(Shape{2, 1000, 16, 32, 128}, conv), 64 * 128 * (4.0 * 2000 + 12 * 2));
  const FormContext update = context_of(f, {"decode", "fused_recurrent_kda_packed_decode"});
  const double state = 4.0 * 8 * 96 * 128 * 128;
  EXPECT_EQ(f.traffic(Shape{8, 1, 96, 96, 128}, update), 2 * state + 2.0 * 8 * 128 * 4 * 96);
  // Mamba-2: heads and both groups.
  EXPECT_EQ(kMambaForm.traffic(Shape{1, 1, 64, 64, 128, 8},
                               context_of(kMambaForm, {"decode", "causal_conv1d_update"})),
            (64 * 64 + 2 * 8 * 128) * (4.0 + 12));
  FormContext c;
  EXPECT_FALSE(kMambaForm.context(Words{"prefill", "ssd"}, testing::catalog_system("h200-hgx"), c));
}

TEST(LinearAttention, H69StatesBeyondL2AreReadAtMostAtTheMemorysPeak) {
  const Form& f = kLinearAttentionForm;
  const FormContext c = context_of(f, {"verify", "fused_recurrent_kda"});
  for (const double e : {0.02, 0.5, 3.0}) {
    const std::vector<double> p = with(f, {{"e_memory", e}, {"e_cache", 50}, {"l2", 40}, {"drafts", 1}});
    for (double batch = 64; batch <= 4096; batch *= 8) {
      const double state = 4 * batch * 96 * 128 * 128;  // 403 MB and more
      EXPECT_GE(f.seconds(Shape{batch, 1, 96, 96, 128}, c, p), 0.999 * 2 * state / c.bandwidth);
      // A state for each draft, which a rejected one falls back to.
      EXPECT_GE(f.seconds(Shape{batch, 5, 96, 96, 128}, c, p), 0.999 * 6 * state / c.bandwidth);
    }
  }
}

// us, SGLang 0.5.16's fused_recurrent_kda_packed_decode on H100 (AIConfigurator 095f58a51): a state of 25 MB
// takes 16.1, one of 50 MB, which its L2 of 50 MB does not keep, 49.6, and one of 101 MB 84.5.
TEST(LinearAttention, H69StatesInL2AreReadFaster) {
  const Form& f = kLinearAttentionForm;
  const FormContext c = context_of(f, {"decode", "fused_recurrent_kda_packed_decode"});
  const std::vector<double> p =
      with(f, {{"t0", 5}, {"e_cache", 2}, {"e_memory", 2}, {"l2", 32}, {"chain", 1}, {"drafts", 1}});
  const double bytes = 4.0 * 96 * 128 * 128;  // of a request
  // L2 alone: half the time of the memory's peak. Beyond it both.
  EXPECT_NEAR(f.seconds(Shape{1, 1, 96, 96, 128}, c, p), 5e-6 + bytes / c.bandwidth, 3e-9);
  EXPECT_NEAR(f.seconds(Shape{64, 1, 96, 96, 128}, c, p), 5e-6 + 2 * 64 * bytes / c.bandwidth, 1e-8);
  // Of drafts all states that are written must fit.
  EXPECT_NEAR(f.seconds(Shape{8, 8, 96, 96, 128}, c, p), 5e-6 + 9 * 8 * bytes / c.bandwidth, 2e-7);
}

TEST(LinearAttention, H69AScanIsAChainOfChunks) {
  const Form& f = kLinearAttentionForm;
  const FormContext c = context_of(f, {"prefill", "chunk_kda"});
  const std::vector<double> p =
      with(f, {{"chain", 5000}, {"share", 0.1}, {"head", 1}, {"e_cache", 50}, {"t0", 1e-3}});
  const double one = f.seconds(Shape{1, 32768, 32, 32, 128}, c, p);
  EXPECT_NEAR(one, 512 * 5e-6, 0.01 * one);
  // Shorter sequences with as many tokens are done side by side.
  EXPECT_NEAR(f.seconds(Shape{8, 4096, 32, 32, 128}, c, p), one / 8, 0.02 * one);
}

TEST(HyperConnections, H70MixesStreams) {
  const Form& f = kHyperConnectionForm;
  const FormContext pre = context_of(f, {"pre", "x"}), post = context_of(f, {"post", "x"});
  EXPECT_EQ(f.traffic(Shape{100, 4096, 4, 1}, pre), 2 * 100 * 4096 * 5.0);
  EXPECT_EQ(f.traffic(Shape{100, 4096, 4, 2}, post), 2 * 2 * 100 * 4096 * 9.0);
  const std::vector<double> p = start(f);
  EXPECT_DOUBLE_EQ(f.seconds(Shape{100, 4096, 4, 2}, pre, p), 2 * f.seconds(Shape{100, 4096, 4, 1}, pre, p));
}

const Words kV32{"deepseek-v3.2", "indexer", "fp8", "fp8_block", "dsa_indexer_flashmla_kv"};
const Words kShared{"glm-5.2", "skip_indexer", "fp8", "bf16", "dsa_skip_indexer_flashmla_kv"};

TEST(SparseModules, H71PartsSumUpToTheBlock) {
  for (const SparseLayer& l : sparse_layers()) {
    SCOPED_TRACE(std::string(l.model) + " " + std::string(l.layer));
    const Words words{std::string(l.model), std::string(l.layer), "fp8", "fp8_block", "x"};
    const FormContext c = context_of(kSparseDecodeForm, words);
    const std::vector<double> p = start(kSparseDecodeForm);
    const Shape x{16, 200000, 32};
    const SparseParts parts = sparse_decode_parts(x, c, p);
    EXPECT_DOUBLE_EQ(parts.device(), kSparseDecodeForm.seconds(x, c, p));
    EXPECT_EQ(parts.index > 0, l.index_heads > 0);
    EXPECT_EQ(parts.top_k > 0, l.index_heads > 0);
    EXPECT_GT(parts.attend, 0);
    const std::vector<double> q =
        with(kSparsePrefillForm, {{"host", 0.1}, {"rebuild", 0.1}, {"rebuild_request", 0.01}});
    const Shape prompt{4, 512, 100000, 32};
    const FormContext cp = context_of(kSparsePrefillForm, words);
    EXPECT_NEAR(sparse_prefill_parts(prompt, cp, q).device() / kSparsePrefillForm.seconds(prompt, cp, q), 1,
                1e-9);
  }
}

TEST(SparseModules, H71HeadsAreShardedButTheIndexIsNot) {
  const FormContext c = context_of(kSparseDecodeForm, kV32);
  const std::vector<double> p = start(kSparseDecodeForm);
  const SparseParts all = sparse_decode_parts(Shape{64, 163840, 128}, c, p),
                    eighth = sparse_decode_parts(Shape{64, 163840, 16}, c, p);
  EXPECT_LT(eighth.projections, all.projections / 2);
  EXPECT_LT(eighth.attend, all.attend);
  EXPECT_EQ(eighth.index, all.index);
  EXPECT_EQ(eighth.top_k, all.top_k);
  // An eighth of the context: of both an eighth, but for the start of a selection.
  const SparseParts shard = sparse_decode_parts(Shape{64, 20480, 128}, c, p);
  EXPECT_NEAR(shard.index, all.index / 8, 1e-12);
  EXPECT_NEAR(shard.top_k - 3e-6, (all.top_k - 3e-6) / 8, 1e-12);
  EXPECT_EQ(shard.attend, all.attend);
}

TEST(SparseModules, H71ALayerThatDoesNotScoreIsFlat) {
  const FormContext c = context_of(kSparseDecodeForm, kShared);
  const std::vector<double> p = start(kSparseDecodeForm);
  EXPECT_EQ(kSparseDecodeForm.seconds(Shape{8, 2048, 64}, c, p),
            kSparseDecodeForm.seconds(Shape{8, 1 << 20, 64}, c, p));
}

TEST(SparseModules, H71NoIndexIsReadFasterThanMemory) {
  const std::vector<double> p = [] {
    std::vector<double> out;  // the fastest that any fit may find
    for (const FormParameter& q : kSparseDecodeForm.parameters)
      out.push_back(q.name[0] == 'e' ? q.high : q.low);
    return out;
  }();
  for (const SparseLayer& l : sparse_layers()) {
    const FormContext c =
        context_of(kSparseDecodeForm, {std::string(l.model), std::string(l.layer), "fp8", "fp8_block", "x"});
    for (double tokens = 4096; tokens <= 4 << 20; tokens *= 2) {
      const double index = l.index_heads > 0 ? l.index_bytes * tokens / l.ratio : 0;
      const double bytes = 64 * (index + attended_rows(l, tokens) * c.variant[2]);
      EXPECT_GE(kSparseDecodeForm.seconds(Shape{64, tokens, 64}, c, p), bytes / c.bandwidth)
          << l.model << " " << l.layer << " " << tokens;
    }
  }
}

TEST(SparseModules, H71NeverFallWithKeysRequestsOrHeads) {
  const std::vector<double> p = start(kSparseDecodeForm), q = start(kSparsePrefillForm);
  for (const SparseLayer& l : sparse_layers()) {
    SCOPED_TRACE(std::string(l.model) + " " + std::string(l.layer));
    const Words words{std::string(l.model), std::string(l.layer), "bf16", "bf16", "x"};
    const FormContext c = context_of(kSparseDecodeForm, words), cp = context_of(kSparsePrefillForm, words);
    for (double batch = 1; batch <= 1024; batch *= 4) {
      double before = 0, prompt_before = 0;
      for (double tokens = 1; tokens <= 4 << 20; tokens *= 2) {
        const double t = kSparseDecodeForm.seconds(Shape{batch, tokens, 64}, c, p);
        EXPECT_GE(t, before);
        EXPECT_GE(kSparseDecodeForm.seconds(Shape{2 * batch, tokens, 64}, c, p), t);
        EXPECT_GE(kSparseDecodeForm.seconds(Shape{batch, tokens, 128}, c, p), t);
        before = t;
        const double prompt = kSparsePrefillForm.seconds(Shape{batch, 64, tokens, 64}, cp, q);
        EXPECT_GE(prompt, prompt_before * (1 - 1e-12));
        prompt_before = prompt;
      }
    }
  }
}

TEST(SparseModules, H72ShortPromptsTakeTheirHost) {
  const FormContext c = context_of(kSparsePrefillForm, kV32);
  const std::vector<double> p = with(kSparsePrefillForm, {{"host", 1500}});
  EXPECT_NEAR(kSparsePrefillForm.seconds(Shape{1, 4, 4096, 128}, c, p), 1.5e-3, 1e-5);
  const Shape large{8, 4096, 65536, 128};
  EXPECT_NEAR(kSparsePrefillForm.seconds(large, c, p) / sparse_prefill_parts(large, c, p).device(), 1, 1e-4);
}

// What a row's host does beyond 65,536 cached tokens is the collector's, for each of its requests, and none
// of the device's. Of other layers nothing changes there.
TEST(SparseModules, H72LongPrefixesWereTimedWithTheirMetadata) {
  const auto host = [](const Words& words, const Shape& x, double rebuild, double request) {
    const FormContext c = context_of(kSparsePrefillForm, words);
    const std::vector<double> p = with(
        kSparsePrefillForm,
        {{"host", 5000}, {"t0", 1}, {"gather", 1e-5}, {"rebuild", rebuild}, {"rebuild_request", request}});
    const double device = sparse_prefill_parts(x, c, p).device();
    return std::pow(std::pow(kSparsePrefillForm.seconds(x, c, p), 4) - std::pow(device, 4), 0.25);
  };
  EXPECT_NEAR(host(kV32, {4, 1, 65536, 128}, 300, 50), 5e-3, 1e-9);
  EXPECT_NEAR(host(kV32, {4, 1, 65537, 128}, 300, 50), 5.5e-3, 1e-9);
  EXPECT_NEAR(host(kV32, {1, 1, 65537, 128}, 300, 50), 5.35e-3, 1e-9);
  const Words csa{"deepseek-v4-pro", "csa", "fp8", "bf16", "compressed_flashmla"};
  EXPECT_NEAR(host(csa, {4, 1, 1000000, 128}, 300, 50), 5e-3, 1e-9);
}

TEST(SparseModules, H72RowsWithFewKeysSelectNone) {
  const FormContext c = context_of(kSparsePrefillForm, kV32);
  const std::vector<double> p = start(kSparsePrefillForm);
  EXPECT_EQ(sparse_prefill_parts(Shape{1, 2048, 0, 128}, c, p).top_k, 0);
  EXPECT_GT(sparse_prefill_parts(Shape{1, 2049, 0, 128}, c, p).top_k, 0);
  // Half of the rows of a prompt of 4096 select, among 3072 keys in the mean, on more blocks than there are.
  const std::vector<double> q = with(kSparsePrefillForm, {{"per_sm", 1}, {"score", 5}});
  EXPECT_NEAR(sparse_prefill_parts(Shape{1, 4096, 0, 128}, c, q).top_k, (2e-6 + 0.1e-9 * 3072) * 2048 / 132,
              1e-9);
}

const Words kFlash{"deepseek-v4-flash", "csa", "fp8", "fp8_block", "FLASHMLA_SPARSE_DSV4"},
    kFlashOfTensorRt{"deepseek-v4-flash", "csa", "fp8", "fp8_block", "DeepseekV4TrtllmAttention"},
    kFlashOfSglang{"deepseek-v4-flash", "csa", "fp8", "fp8_block", "compressed_flashmla"};

// Scores of the tables are all alike: of 512 to 2,048 rows each is compared with each, by 512 threads.
TEST(SparseModules, H71FlatScoresOfFewCandidatesAreSorted) {
  const std::vector<double> p = with(kSparseDecodeForm, {{"sort", 10}, {"per_sm", 1}});
  const auto sorting = [&](const Words& words, double batch, double tokens) {
    return sparse_decode_parts(Shape{batch, tokens, 64}, context_of(kSparseDecodeForm, words), p).sorting;
  };
  EXPECT_EQ(sorting(kFlashOfTensorRt, 1, 4 * 512), 0);                           // all are chosen
  EXPECT_DOUBLE_EQ(sorting(kFlashOfTensorRt, 1, 4 * 600), 600 * 2 * 10e-9);      // two turns of 512 threads
  EXPECT_DOUBLE_EQ(sorting(kFlashOfTensorRt, 1, 4 * 1024), 1024 * 2 * 10e-9);    // just two
  EXPECT_DOUBLE_EQ(sorting(kFlashOfTensorRt, 264, 4 * 2048), 2048 * 4 * 20e-9);  // 132 SMs, twice
  EXPECT_EQ(sorting(kFlashOfTensorRt, 1, 4 * 2050), 0);                          // told apart by further bits
  // Of 2,048 that DSA chooses, and the token that is computed, all but one are in a bin.
  const Words dsa{"deepseek-v3.2", "indexer", "bf16", "fp8_block", "default"};
  EXPECT_EQ(sorting(dsa, 1, 2047), 0);
  EXPECT_DOUBLE_EQ(sorting(dsa, 1, 2048), 2048 * 4 * 10e-9);
  EXPECT_EQ(sorting(dsa, 1, 2049), 0);
  EXPECT_EQ(sorting(kV32, 1, 2048), 0);
  EXPECT_EQ(sorting({"MiniMax-M3", "msa", "bf16", "bf16", "default"}, 1, 2048), 0);  // selects whole blocks
  EXPECT_EQ(sorting(kFlash, 1, 4 * 1024), 0);  // vLLM decodes by another kernel
  EXPECT_EQ(sorting(kFlashOfSglang, 1, 4 * 1024), 0);
}

// Scores of 65,536 rows and 131,072 keys (CSA of the 4th row each: 32,768 on the mean): 2 x 64 x 128
// operations a pair at .45 of 1.979 PFLOP/s are 39 s / 1000. A fit that has given all to the choice gives
// that back, and its sum stays; one that has more for scores keeps it.
TEST(SparseModules, H72ScoresHaveTheirArithmeticAtLeast) {
  const FormContext c = context_of(kSparsePrefillForm,
                                   {"deepseek-v4-flash", "csa", "fp8", "fp8_block", "FLASHMLA_SPARSE_DSV4"});
  const Shape x{1, 65536, 98304, 64};
  const double pairs = 65536.0 * (98304 + 163840) / 2 / 4, least = 2 * 64 * 128 * pairs / (0.45 * 1.978e15);
  const auto parts = [&](double score, double key) {
    return sparse_prefill_parts(
        x, c, with(kSparsePrefillForm, {{"score", score}, {"key", key}, {"per_sm", 1}, {"e_scores", 1e4}}));
  };
  const SparseParts none = parts(1e-3, 6), more = parts(5, 1), few = parts(1e-3, 1e-4);
  EXPECT_NEAR(none.index / least, 1, 1e-3);
  EXPECT_GT(none.top_k, 0);
  // 6.001 ns of a pair and multiprocessor in all, wherever they are.
  EXPECT_NEAR((none.index + none.top_k) / (more.index + more.top_k), 1, 1e-3);
  EXPECT_GT(more.index, 1.5 * least);
  // No more is moved than the choice has.
  EXPECT_LT(few.index, 0.1 * least);
  EXPECT_GT(few.top_k, 0);
}

TEST(SparseModules, H72FlatScoresOfFewCandidatesAreSorted) {
  const std::vector<double> p = with(kSparsePrefillForm, {{"sort", 10}, {"per_sm", 1}});
  const auto parts = [&](const Words& words, const Shape& x) {
    return sparse_prefill_parts(x, context_of(kSparsePrefillForm, words), p);
  };
  EXPECT_EQ(parts(kFlash, {1, 2048, 0, 64}).sorting, 0);
  EXPECT_EQ(parts(kFlash, {1, 1024, 8192, 64}).sorting, 0);
  EXPECT_EQ(parts(kFlashOfSglang, {1, 1024, 4096, 64}).sorting, 0);
  EXPECT_EQ(parts(kV32, {1, 8192, 0, 64}).sorting, 0);  // chooses 2,048
  // A second way: each row by itself, of all that choose; per row as many as the SMs take at once.
  for (const Shape& x : {Shape{1, 4096, 4096, 64}, Shape{2, 8192, 2048, 64}, Shape{4, 3000, 0, 64},
                         Shape{64, 512, 7000, 64}}) {
    double turns = 0, choosing = 0;
    for (double row = 0; row < x[1]; row += 0.25) {
      const double n = (x[2] + row + 0.125) / 4;
      if (n <= 512) continue;
      choosing += 0.25;
      if (n <= 2048) turns += 0.25 * n * std::ceil(n / 512);
    }
    for (const Words& words : {kFlash, kFlashOfTensorRt})
      EXPECT_NEAR(parts(words, x).sorting, 10e-9 * turns / choosing * std::max(1.0, x[0] * choosing / 132),
                  1e-3 * parts(words, x).sorting);
  }
}

// What no model's scores take is in no price: parts that ops are priced by are as without.
TEST(SparseModules, H72SortingIsInNoOtherPart) {
  const FormContext c = context_of(kSparsePrefillForm, kFlash);
  const Shape x{1, 4096, 4096, 64};
  const SparseParts a = sparse_prefill_parts(x, c, with(kSparsePrefillForm, {{"sort", 10}})),
                    b = sparse_prefill_parts(x, c, with(kSparsePrefillForm, {{"sort", 20}}));
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_DOUBLE_EQ(a.device() - a.sorting, b.device() - b.sorting);
  EXPECT_GT(a.sorting, 0);
}

}  // namespace
}  // namespace shardline
