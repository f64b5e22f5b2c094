// Keys of today's models, each in turn made wrong: the fault stands at the key and says what was expected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using Parse = std::function<Model(const std::string&, const std::string&)>;

const Parse kConfig = [](const std::string& file, const std::string& text) {
  return parse_hf_config(file, text);
};
const Parse kYaml = [](const std::string& file, const std::string& text) { return parse_model(file, text); };

/// Where the value of `key` begins and ends in a text of JSON or of YAML with flow lists; npos: there is
/// none.
std::pair<std::size_t, std::size_t> value_of(const std::string& text, const std::string& key,
                                             std::size_t from = 0) {
  std::size_t at = from;
  for (;; ++at) {
    at = text.find(key, at);
    if (at == std::string::npos) return {at, at};
    const bool begins = at == 0 || std::string_view(" \"{").find(text[at - 1]) != std::string_view::npos;
    std::size_t end = at + key.size();
    if (begins && end < text.size() && text[end] == '"') ++end;
    if (!begins || text.compare(end, 2, ": ") != 0) continue;
    const std::size_t first = end + 2;
    const char opens = text[first];
    if (opens != '[' && opens != '{' && opens != '"') return {first, text.find_first_of(",}\n #", first)};
    const char closes = opens == '[' ? ']' : opens == '{' ? '}' : '"';
    int depth = 0;
    for (std::size_t i = first; i < text.size(); ++i) {
      if (text[i] == opens && opens != closes) ++depth;
      if (text[i] == closes && (opens == closes ? i > first : --depth == 0)) return {first, i + 1};
    }
    return {first, text.size()};
  }
}

std::string replaced(std::string text, const std::string& key, const std::string& value) {
  const auto [first, last] = value_of(text, key);
  EXPECT_NE(first, std::string::npos) << key << " is not in the text";
  return first == std::string::npos ? text : text.replace(first, last - first, value);
}

int line_of(const std::string& text, std::size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

/// The faults of a text. Whatever is thrown beside a UserError fails the test, as does a text that is
/// accepted.
std::vector<Diagnostic> faults_of(const Parse& parse, const std::string& text) {
  try {
    parse("t.json", text);
  } catch (const UserError& e) {
    return {e.diagnostics().begin(), e.diagnostics().end()};
  } catch (const std::exception& e) {
    ADD_FAILURE() << "no UserError: " << e.what();
    return {};
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

/// One of the faults stands in a line of the key's value, names the key and says more than that.
void expect_at_key(const Parse& parse, const std::string& text, const std::string& key,
                   const std::string& value) {
  SCOPED_TRACE(key + ": " + value);
  const std::string wrong = replaced(text, key, value);
  const auto [first, last] = value_of(wrong, key);
  const int from = line_of(wrong, first), to = line_of(wrong, last);
  std::string all;
  for (const Diagnostic& d : faults_of(parse, wrong)) {
    all += to_string(d);
    const bool named = d.where.key.find(key) != std::string::npos || d.what.find(key) != std::string::npos;
    if (named && d.where.line >= from && d.where.line <= to && d.where.column > 0 &&
        d.what.size() + d.details.size() > key.size())
      return;
  }
  ADD_FAILURE() << "no fault at line " << from << ":\n" << all;
}

void expect_number(const Parse& parse, const std::string& text, const std::string& key) {
  for (const char* value : {"\"many\"", "-1", "1.5", "[1]", "{\"a\": 1}", "99999999999", "true"})
    expect_at_key(parse, text, key, value);
}

void expect_flag(const Parse& parse, const std::string& text, const std::string& key) {
  for (const char* value : {"\"maybe\"", "7", "[true]", "{\"a\": 1}"}) expect_at_key(parse, text, key, value);
}

/// A list with one value per layer, and perhaps some of draft layers behind.
void expect_layers(const Parse& parse, const std::string& text, const std::string& key) {
  const auto [first, last] = value_of(text, key);
  ASSERT_NE(first, std::string::npos) << key;
  const std::string list = text.substr(first, last - first);
  const std::size_t comma = list.find(',');
  ASSERT_NE(comma, std::string::npos) << key;
  const std::string entry = list.substr(1, comma - 1);
  const std::size_t second = list.find(',', comma + 1);
  expect_at_key(parse, text, key, "[" + list.substr(second + 1));  // two too few: one may be a draft's
  expect_at_key(parse, text, key, "[" + entry + ", " + entry + ", " + entry + ", " + list.substr(1));
  for (const char* wrong : {"\"other\"", "-3", "[1]", "{\"a\": 1}"})
    expect_at_key(parse, text, key, "[" + std::string(wrong) + list.substr(comma));
  for (const char* wrong : {"\"full\"", "{\"a\": 1}", "[]"}) expect_at_key(parse, text, key, wrong);
}

struct FamilyKeys {
  const char* file;
  std::vector<const char*> numbers, flags, layers;
};

TEST(NewKeys, OfAConfigEachHasItsFaultsAtItsPlace) {
  const FamilyKeys families[] = {
      {"minimax-m3",
       {"dense_intermediate_size", "num_local_experts", "n_shared_experts", "shared_intermediate_size",
        "sparse_block_size", "sparse_index_dim", "sparse_init_block", "sparse_local_block",
        "sparse_num_index_heads", "sparse_topk_blocks", "num_nextn_predict_layers", "first_k_dense_replace"},
       {"use_routing_bias", "use_qk_norm", "attention_output_gate", "use_sparse_attention"},
       {"moe_layer_freq", "sparse_attention_freq", "sparse_disable_index_value"}},
      {"glm-5.2",
       {"index_n_heads", "index_head_dim", "index_topk", "index_topk_freq", "index_skip_topk_offset",
        "num_nextn_predict_layers", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"},
       {"tie_word_embeddings"},
       {"indexer_types"}},
      {"deepseek-v4-flash",
       {"o_groups", "o_lora_rank", "q_lora_rank", "index_n_heads", "index_head_dim", "index_topk",
        "num_hash_layers", "hc_mult", "num_nextn_predict_layers", "n_routed_experts"},
       {},
       {"compress_ratios"}},
      {"kimi-k3",
       {"num_heads", "short_conv_kernel_size", "attn_res_block_size", "num_shared_experts",
        "routed_expert_hidden_size", "num_nextn_predict_layers", "num_experts"},
       {"mla_use_output_gate", "use_full_rank_gate", "latent_moe_use_norm"},
       {}},
      {"qwen3.5-397b-a17b",
       {"full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "mtp_num_hidden_layers",
        "shared_expert_intermediate_size"},
       {"attn_output_gate"},
       {}},
      {"nemotron-3-super-120b-a12b",
       {"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
        "num_nextn_predict_layers", "moe_latent_size", "moe_shared_expert_intermediate_size"},
       {"use_conv_bias", "mamba_proj_bias", "use_bias"},
       {}},
  };
  for (const FamilyKeys& family : families) {
    SCOPED_TRACE(family.file);
    const std::string text = testing::read_file(testing::hf_dir() / (std::string(family.file) + ".json"));
    for (const char* key : family.numbers) expect_number(kConfig, text, key);
    for (const char* key : family.flags) expect_flag(kConfig, text, key);
    for (const char* key : family.layers) expect_layers(kConfig, text, key);
  }
}

/// Every number and flag that a catalogue file of one of the new kinds has, in its order.
TEST(NewKeys, OfTheCatalogueEachHasItsFaultsAtItsPlace) {
  int tried = 0;
  for (const char* file : {"minimax-m3", "glm-5.2", "deepseek-v4-flash", "kimi-k3", "qwen3.5-397b-a17b",
                           "nemotron-3-super-120b-a12b", "mimo-v2-flash"}) {
    SCOPED_TRACE(file);
    const std::string text = testing::read_file(testing::catalog_dir() / (std::string(file) + ".yaml"));
    for (const char* key : {"heads",        "dim",          "top_k",     "block",        "init_blocks",
                            "local_blocks", "ratio",        "o_groups",  "o_rank",       "key_heads",
                            "value_heads",  "key_dim",      "value_dim", "conv",         "state",
                            "groups",       "streams",      "latent",    "shared_inner", "shared_experts",
                            "q_lora_rank",  "kv_lora_rank", "rope_dim",  "nope_dim",     "v_dim"}) {
      if (value_of(text, key).first == std::string::npos) continue;
      ++tried;
      expect_number(kYaml, text, key);
    }
    for (const char* key : {"shared", "channel_decay", "conv_bias", "sinks", "hashed", "router_bias",
                            "shared_gate", "latent_norm", "qk_norm", "absent"}) {
      if (value_of(text, key).first == std::string::npos) continue;
      ++tried;
      expect_flag(kYaml, text, key);
    }
    for (const char* key : {"kind", "gate", "state_type"}) {
      if (value_of(text, key).first == std::string::npos) continue;
      ++tried;
      for (const char* value : {"7", "[gqa]", "othr"}) expect_at_key(kYaml, text, key, value);
    }
  }
  EXPECT_GT(tried, 60);
}

struct Contradiction {
  const char *file, *key, *value, *expected;
};

TEST(NewKeys, ContradictionsSayBothSides) {
  for (const Contradiction& c : {
           // Lists against counts, and layers that are not there.
           Contradiction{"kimi-k3", "kda_layers", "[0, 1]", "expected 1 to 93"},
           {"kimi-k3", "full_attn_layers", "[94]", "expected 1 to 93"},
           {"kimi-k3", "full_attn_layers", "[1, 4]", "is in full_attn_layers, too"},
           {"kimi-k3", "full_attn_layers", "[]", "is in neither kda_layers nor full_attn_layers"},
           {"kimi-k3", "linear_attn_config", "[1]", "mapping"},
           {"nemotron-3-super-120b-a12b", "mtp_hybrid_override_pattern", "\"M\"", "only *E"},
           {"nemotron-3-super-120b-a12b", "mamba_ssm_cache_dtype", "\"float8\"", "float32"},
           {"nemotron-3-super-120b-a12b", "n_groups", "7", "128 heads do not divide into 7 groups"},
           {"deepseek-v4-flash", "num_hash_layers", "44", "expected 0 to 43"},
           {"deepseek-v4-flash", "o_groups", "7", "64 heads do not divide into 7 groups"},
           {"minimax-m3", "sparse_score_type", "\"mean\"", "max"},
           {"minimax-m3", "sparse_init_block", "16", "16 blocks cannot hold the 17 that are always chosen"},
           {"minimax-m3", "first_k_dense_replace", "5", "expected 3, the dense layers that moe_layer_freq"},
           {"minimax-m3", "first_k_dense_replace", "2", "contradicts moe_layer_freq: layer 2 is dense"},
           {"qwen3.5-397b-a17b", "linear_num_value_heads", "24",
            "24 heads of values do not divide into 16 of keys"},
           {"qwen3.5-397b-a17b", "mlp_only_layers", "[60]", "expected 0 to 59"},
           {"glm-5.2", "qk_rope_head_dim", "63", "rotary width 63 is odd"},
           {"glm-5.2", "index_topk_freq", "5", "contradicts"},
           {"minimax-m3", "sparse_num_index_heads", "3", "3 heads of an index for 4 key/value heads"},
           {"minimax-m3", "sparse_local_block", "0", "own block may be left out is not modelled"},
           {"gemma-4-31b", "num_global_key_value_heads", "5",
            "query heads do not divide into 5 of keys and values of full layers"},
       }) {
    SCOPED_TRACE(fmt::format("{} {}: {}", c.file, c.key, c.value));
    const std::string text =
        replaced(testing::read_file(testing::hf_dir() / (std::string(c.file) + ".json")), c.key, c.value);
    std::string all;
    bool placed = false;
    for (const Diagnostic& d : faults_of(kConfig, text)) {
      all += to_string(d);
      placed = placed || d.where.line > 1;
    }
    EXPECT_THAT(all, HasSubstr(c.expected));
    EXPECT_TRUE(placed) << all;
  }
}

// What is out of range contradicts nothing.
TEST(NewKeys, NumbersOutOfRangeHaveOneFault) {
  for (const auto& [file, key] :
       {std::pair{"glm-5.2", "index_topk_freq"}, std::pair{"qwen3.5-397b-a17b", "full_attention_interval"}}) {
    const std::string text = testing::read_file(testing::hf_dir() / (std::string(file) + ".json"));
    for (const char* value : {"0", "-4"}) {
      const auto faults = faults_of(kConfig, replaced(text, key, value));
      ASSERT_EQ(faults.size(), 1u) << key;
      EXPECT_THAT(to_string(faults.front()), HasSubstr(key));
    }
  }
}

// Llama-Nemotron's blocks, one per layer.
TEST(NewKeys, BlocksOfLlamaNemotron) {
  const auto config = [](const std::string& blocks) {
    return "{\"model_type\": \"nemotron-nas\", \"hidden_size\": 64, \"num_hidden_layers\": 2,\n"
           "\"num_attention_heads\": 4, \"vocab_size\": 100, \"max_position_embeddings\": 256,\n"
           "\"block_configs\": " +
           blocks + "}";
  };
  const std::string whole = R"({"attention": {"no_op": false, "n_heads_in_group": 2, "window_length": null},)"
                            R"( "ffn": {"no_op": false, "ffn_mult": 1.5}})";
  const std::string skipped = R"({"attention": {"no_op": true}, "ffn": {"no_op": true}})";
  const std::string sound = config("[" + whole + ", " + skipped + "]");
  EXPECT_EQ(kConfig("t.json", sound).attentions.size(), 2u);
  expect_number(kConfig, sound, "n_heads_in_group");
  for (const char* value : {"\"many\"", "-1", "0", "1.5", "[1]", "true"})
    expect_at_key(kConfig, sound, "window_length", value);
  expect_flag(kConfig, sound, "no_op");
  for (const char* value : {"\"many\"", "-1", "0", "[1]", "{\"a\": 1}", "1e9", "true"})
    expect_at_key(kConfig, sound, "ffn_mult", value);
  expect_at_key(kConfig, sound, "n_heads_in_group", "3");
  expect_at_key(kConfig, sound, "n_heads_in_group", "8");
  for (const char* value : {"3", "\"all\"", "{\"a\": 1}", "[]", "[3, 4]", "[[], []]"})
    expect_at_key(kConfig, sound, "block_configs", value);
  expect_at_key(kConfig, sound, "block_configs", "[" + skipped + "]");
  expect_at_key(kConfig, sound, "block_configs", "[" + whole + "," + whole + "," + whole + "]");
  for (const char* key : {"attention", "ffn"}) {
    for (const char* value : {"3", "[]", "\"no_op\"", "{}"}) expect_at_key(kConfig, sound, key, value);
  }
}

// Widths of heads that follow from the hidden size are those of every layer, of layers with an index, too.
TEST(NewKeys, HeadsThatDivideTheHiddenSizeAreOfEveryLayer) {
  std::string text = testing::read_file(testing::hf_dir() / "minimax-m3.json");
  const std::string given = "\"head_dim\": 128,";
  const Model m = parse_hf_config("t.json", text.erase(text.find(given), given.size()));
  ASSERT_EQ(m.attentions.size(), 2u);
  for (const Attention& a : m.attentions) EXPECT_EQ(a.head_dim, 6144 / 64);
}

}  // namespace
}  // namespace shardline
