// Every key that the import of a config.json reads, with a value of each other type: refused at its place,
// with what was expected. Which keys these are the families say themselves (hf::Import::understood): a key
// that is new is refused by this test until the table says what it holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "models/model/hf_config.hpp"
#include "models/model/hf_import.hpp"
#include "tests/models/files.hpp"
#include "tests/models/wrong_types.hpp"

namespace shardline {
namespace {

using testing::expect_refused;
using testing::Holds;
using testing::Json;
using testing::wrong;

/// Keys apart by blanks, and what each holds.
struct KeysThatHold {
  Holds holds;
  const char* keys;
};
constexpr KeysThatHold kTable[] = {
    {Holds::flag,
     "add_cross_attention add_full_attention_sink_bias add_swa_attention_sink_bias attention_bias "
     "attention_k_eq_v attention_out_bias attention_output_gate attn_output_gate bias enable_moe_block "
     "index_share_for_mtp_iteration is_encoder_decoder latent_moe_use_norm mamba_proj_bias "
     "mla_use_output_gate mlp_bias multi_query new_decoder_architecture parallel_attn qkv_bias "
     "tie_word_embeddings use_bias use_conv_bias use_head_wise_attn_gate use_moe_router_bias use_mtp "
     "use_qk_norm use_routing_bias use_sliding_window"},
    {Holds::text,
     "expert_dtype hybrid_override_pattern index_topk_pattern mamba_ssm_cache_dtype mamba_ssm_dtype "
     "mlp_hidden_act mtp_hybrid_override_pattern qk_norm_type topk_method"},
    {Holds::map,
     "attention_other_setting audio_config compress_rates compression_config linear_attn_config "
     "per_layer_config quantization_config rope_parameters rope_scaling sparse_attention_config "
     "text_config thinker_config vision_config"},
    {Holds::numbers, "compress_ratios hybrid_layer_pattern mlp_only_layers moe_layers no_rope_layers"},
    {Holds::texts, "architectures indexer_types layer_types layers_block_type mlp_layer_types"},
    {Holds::list, "cross_attention_layers"},
    {Holds::blocks, "block_configs"},
    {Holds::real, "compress_rope_theta"},
    {Holds::number_or_list, "moe_layer_freq"},
    {Holds::text_or_numbers, "moe_layers_enum"},
    {Holds::flag_or_text, "use_bidirectional_attention"},
    {Holds::number,
     "_sliding_window_pattern attention_chunk_size attention_head_dim attn_res_block_size chunk_size "
     "conv_kernel decoder_sparse_step dense_intermediate_size experts_per_token ffn_hidden_size "
     "first_k_dense_replace full_attention_interval global_head_dim hc_mult hc_sinkhorn_iters head_dim "
     "hidden_size hidden_size_per_layer_input index_block_size index_head_dim index_local_blocks "
     "index_n_heads index_skip_topk_offset index_topk index_topk_blocks index_topk_freq "
     "interleave_moe_layer_step intermediate_size intermediate_size_mlp "
     "kv_lora_rank linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads "
     "linear_value_head_dim mamba_head_dim mamba_num_heads max_position_embeddings max_window_layers "
     "model_max_length moe_intermediate_size moe_k moe_latent_size moe_layer_end_index moe_layer_interval "
     "moe_layer_start_index moe_num_experts moe_num_shared_experts moe_shared_expert_intermediate_size "
     "moe_top_k mtp_num_hidden_layers n_group n_groups n_head n_head_kv n_layer n_routed_experts "
     "n_shared_experts no_rope_layer_interval num_attention_groups num_attention_heads num_experts "
     "num_experts_per_tok num_experts_per_token num_global_key_value_heads num_hash_layers "
     "num_hidden_layers num_key_value_heads num_kv_heads num_kv_shared_layers num_local_experts "
     "num_mtp_modules num_nextn_predict_layers num_shared_experts o_groups o_lora_rank q_lora_rank "
     "qk_head_dim qk_nope_head_dim qk_rope_head_dim routed_expert_hidden_size share_expert_dim "
     "share_expert_dims shared_expert_intermediate_size shared_intermediate_size sliding_window "
     "sliding_window_pattern sliding_window_size ssm_state_size swa_head_dim swa_num_attention_heads "
     "swa_num_key_value_heads swa_v_head_dim top_k_experts topk_group v_head_dim vocab_size"},
};

std::vector<std::string> split(const char* keys) {
  std::istringstream in(keys);
  return {std::istream_iterator<std::string>(in), {}};
}

std::map<std::string, Holds> table() {
  std::map<std::string, Holds> out;
  for (const KeysThatHold& row : kTable)
    for (const std::string& key : split(row.keys)) out.emplace(key, row.holds);
  return out;
}

/// Keys that the family reads of `config`, whatever it holds.
std::set<std::string, std::less<>> keys_read(const hf::Family& family, const Json& config) {
  const Document document = Document::parse_json("t.json", config.dump(1));
  const Reader file = document.root();
  file.allow_other_keys();
  const bool inside = config.contains("text_config");
  hf::Import in{.root = inside ? file.at("text_config") : file, .file = file, .m = {}, .wrapped = inside};
  in.drafts = 1;
  family.read(in);
  std::set<std::string, std::less<>> keys = in.understood;
  for (const hf::Refusal& refusal : hf::refusals()) {
    if (!in.ignored.contains(refusal.key)) keys.emplace(refusal.key);
  }
  for (const std::string_view key : hf::objects()) keys.emplace(key);
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers", "architectures"})
    keys.emplace(key);
  if (inside) {
    keys.erase("architectures");  // of the file
    keys.erase("text_config");
  }
  return keys;
}

/// What every family finds enough in to read all that it reads, if not a sound model.
Json skeleton() {
  return Json::parse(R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
      "num_key_value_heads": 4, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256,
      "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
      "sliding_window": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
      "first_k_dense_replace": 1,
      "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 4, "head_dim": 16},
      "block_configs": []})");
}

/// Of a family: the published configurations that tests have, and a made-up one.
std::vector<Json> configs_of(const hf::Family& family) {
  std::vector<Json> out;
  for (const auto& entry : std::filesystem::directory_iterator(testing::hf_dir())) {
    Json config = Json::parse(testing::read_file(entry.path()));
    if (config.value("model_type", "") == family.model_type) out.push_back(std::move(config));
  }
  Json made;
  made["model_type"] = family.model_type;
  if (family.text == hf::Text::here) {
    made.update(skeleton());
  } else {
    made["text_config"] = skeleton();
  }
  out.push_back(std::move(made));
  return out;
}

TEST(WrongTypes, AreRefusedOfEveryKeyOfEveryFamily) {
  const std::map<std::string, Holds> types = table();
  std::set<std::string> seen;
  for (const hf::Family& family : hf::families()) {
    SCOPED_TRACE(family.model_type);
    std::set<std::string, std::less<>> tried;  // of the published one where there is one
    for (const Json& config : configs_of(family)) {
      for (const std::string& key : keys_read(family, config)) {
        if (key == "model_type" || !tried.insert(key).second) continue;
        const auto type = types.find(key);
        ASSERT_NE(type, types.end()) << key << " is read: say in table() what it holds";
        seen.insert(key);
        const bool inside = config.contains("text_config");
        const Json::json_pointer at((inside ? "/text_config/" : "/") + key);
        for (const Json& value : wrong(type->second)) expect_refused(config, at, value);
        if (::testing::Test::HasFailure()) break;
      }
    }
  }
  for (const auto& [key, holds] : types) EXPECT_TRUE(seen.contains(key)) << key << " is read by no family";
}

struct Inner {
  const char* file;  // or the text that has the mapping
  const char* at;    // a pointer to the mapping that has the keys
  Holds holds;
  const char* keys;
};

void expect_all_refused(const Json& config, const Inner& row) {
  SCOPED_TRACE(row.at);
  for (const std::string& key : split(row.keys)) {
    const Json::json_pointer at(std::string(row.at) + "/" + key);
    for (const Json& value : wrong(row.holds)) expect_refused(config, at, value);
  }
}

constexpr const char* kVision = "/vision_config";
constexpr Inner kInner[] = {
    {"kimi-k3", "/text_config/linear_attn_config", Holds::numbers, "kda_layers full_attn_layers"},
    {"kimi-k3", "/text_config/linear_attn_config", Holds::number,
     "num_heads head_dim short_conv_kernel_size"},
    {"kimi-k3", "/text_config/linear_attn_config", Holds::flag, "use_full_rank_gate"},
    {"kimi-k3", "", Holds::map, "text_config vision_config audio_config rope_scaling"},
    {"kimi-k3", "", Holds::flag, "tie_word_embeddings"},
    {"kimi-k3", "", Holds::texts, "architectures"},
    {"kimi-k3", "/text_config", Holds::text, "model_type"},
    {"kimi-k3", kVision, Holds::number,
     "vt_hidden_size patch_size qkv_hidden_size init_pos_emb_height init_pos_emb_width "
     "vt_num_hidden_layers vt_intermediate_size"},
    {"kimi-k3", kVision, Holds::flag, "linear_bias"},
    {"qwen3.5-397b-a17b", kVision, Holds::number,
     "hidden_size patch_size out_hidden_size spatial_merge_size depth intermediate_size in_channels "
     "temporal_patch_size num_position_embeddings"},
    {"qwen3.5-397b-a17b", kVision, Holds::numbers, "deepstack_visual_indexes"},
    {"gemma-3-27b", kVision, Holds::number,
     "hidden_size patch_size image_size num_hidden_layers intermediate_size"},
    {"gemma-4-31b", kVision, Holds::number,
     "hidden_size patch_size num_attention_heads head_dim num_hidden_layers intermediate_size "
     "position_embedding_size"},
    {"llama-4-scout", kVision, Holds::number,
     "hidden_size patch_size image_size vision_output_dim projector_input_dim intermediate_size "
     "num_hidden_layers"},
    {"minimax-m3", "/sparse_attention_config", Holds::number,
     "sparse_num_index_heads sparse_index_dim sparse_topk_blocks sparse_block_size sparse_init_block "
     "sparse_local_block"},
    {"minimax-m3", "/sparse_attention_config", Holds::numbers,
     "sparse_attention_freq sparse_disable_index_value"},
    {"minimax-m3", "/sparse_attention_config", Holds::flag, "use_sparse_attention"},
    {"minimax-m3", "/sparse_attention_config", Holds::text, "sparse_score_type"},
    {"deepseek-v4-flash", "/compress_rates", Holds::number,
     "compressed_sparse_attention heavily_compressed_attention"},
};

TEST(WrongTypes, AreRefusedOfKeysInsideOfOthers) {
  for (const Inner& row : kInner) {
    SCOPED_TRACE(row.file);
    Json config = Json::parse(testing::read_file(testing::hf_dir() / (std::string(row.file) + ".json")));
    if (row.at == kVision && !config[Json::json_pointer(kVision)].is_object())
      config["vision_config"] = Json::object();
    expect_all_refused(config, row);
  }
}

TEST(WrongTypes, AreRefusedOfKeysOfTheLayersOfStepThatSlide) {
  Json config = skeleton();
  config["model_type"] = "step3p5";
  config["attention_other_setting"] = Json::object();
  expect_all_refused(config, {"", "/attention_other_setting", Holds::number,
                              "num_attention_heads num_attention_groups head_dim"});
}

constexpr const char* kFp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
constexpr const char* kGptq = R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:x": {}}})";
constexpr const char* kAwq = R"({"quant_method": "awq"})";
constexpr const char* kModelopt = R"({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"})";
constexpr const char* kMixed =
    R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "FP8"}}})";
constexpr const char* kGroups =
    R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8, "type": "float"}}}})";
constexpr const char* kWeights = "/quantization_config/config_groups/g/weights";
constexpr const char* kInputs = "/quantization_config/config_groups/g/input_activations";
constexpr const char* kTop = "/quantization_config";
constexpr Inner kOfQuantisation[] = {
    {kFp8, kTop, Holds::text, "quant_method activation_scheme"},
    {kFp8, kTop, Holds::numbers, "weight_block_size"},
    {kFp8, kTop, Holds::texts, "modules_to_not_convert ignored_layers"},
    {kFp8, kTop, Holds::map, "sparsity_config"},
    {kGptq, kTop, Holds::number, "bits group_size"},
    {kGptq, kTop, Holds::flag, "sym lm_head"},
    {kGptq, kTop, Holds::map, "dynamic"},
    {kGptq, kTop, Holds::list, "modules_in_block_to_quantize"},
    {kGptq, "/quantization_config/dynamic", Holds::map, "+:x"},
    {kGptq, "/quantization_config/dynamic/+:x", Holds::number, "bits group_size"},
    {kAwq, kTop, Holds::number, "w_bit q_group_size"},
    {kAwq, kTop, Holds::texts, "modules_to_not_convert"},
    {kModelopt, kTop, Holds::text, "quant_algo"},
    {kModelopt, kTop, Holds::number, "group_size"},
    {kModelopt, kTop, Holds::texts, "exclude_modules ignore"},
    {kModelopt, kTop, Holds::text_or_map, "kv_cache_quant_algo kv_cache_scheme"},
    {kMixed, kTop, Holds::map, "quantized_layers"},
    {kMixed, "/quantization_config/quantized_layers", Holds::map, "a"},
    {kMixed, "/quantization_config/quantized_layers/a", Holds::text, "quant_algo"},
    {kGroups, kTop, Holds::texts, "ignore"},
    {kGroups, kTop, Holds::map, "config_groups"},
    {kGroups, "/quantization_config/config_groups", Holds::map, "g"},
    {kGroups, "/quantization_config/config_groups/g", Holds::texts, "targets"},
    {kGroups, "/quantization_config/config_groups/g", Holds::map, "weights input_activations"},
    {kGroups, "/quantization_config/config_groups/g", Holds::text, "format"},
    {kGroups, kWeights, Holds::number, "num_bits group_size"},
    {kGroups, kWeights, Holds::text, "type strategy scale_dtype"},
    {kGroups, kInputs, Holds::number, "num_bits"},
    {kGroups, kInputs, Holds::text, "type"},
    {kGroups, kInputs, Holds::flag_or_text, "dynamic"},
};

TEST(WrongTypes, AreRefusedOfKeysOfQuantisation) {
  const Json model = Json::parse(testing::read_file(testing::hf_dir() / "llama-3.1-8b.json"));
  for (const Inner& row : kOfQuantisation) {
    SCOPED_TRACE(row.file);
    Json config = model;
    config["quantization_config"] = Json::parse(row.file);
    expect_all_refused(config, row);
  }
}

// A list with an entry for each layer: the last one and those of layers that draft are read, too.
TEST(WrongTypes, AreRefusedInEveryEntryOfALayer) {
  for (const auto& [file, list, drafts] :
       std::vector<std::tuple<const char*, const char*, int>>{{"deepseek-v4-flash", "/compress_ratios", 1},
                                                              {"glm-5.2", "/indexer_types", 0},
                                                              {"minimax-m3", "/moe_layer_freq", 0},
                                                              {"mimo-v2-flash", "/hybrid_layer_pattern", 0},
                                                              {"gpt-oss-120b", "/layer_types", 0}}) {
    SCOPED_TRACE(fmt::format("{}{}", file, list));
    const Json config = Json::parse(testing::read_file(testing::hf_dir() / (std::string(file) + ".json")));
    const Json::json_pointer at(list);
    ASSERT_TRUE(config.contains(at));
    const std::size_t size = config[at].size();
    EXPECT_EQ(static_cast<int>(size), config["num_hidden_layers"].get<int>() + drafts);
    for (std::size_t i = 0; i < size; ++i) {
      for (const Json& value : {Json(true), Json("1"), Json(7), Json::array({1}), Json(Json::value_t::null)})
        expect_refused(config, at / i, value);
    }
  }
}

}  // namespace
}  // namespace shardline
