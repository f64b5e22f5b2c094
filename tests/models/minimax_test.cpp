// MiniMax-M3 as MiniMax published it and as transformers saves it, which has other names for the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

json published() { return json::parse(testing::read_file(testing::hf_dir() / "minimax-m3.json")); }

json names(const json& switches, const char* off, const char* on) {
  json list = json::array();
  for (const json& one : switches) list.push_back(one == 1 ? on : off);
  return list;
}

/// The file that transformers makes of the published one.
json saved() {
  json file = published();
  const json config = file["sparse_attention_config"];
  file["layer_types"] = names(config["sparse_attention_freq"], "full_attention", "minimax_m3_sparse");
  file["mlp_layer_types"] = names(file["moe_layer_freq"], "dense", "sparse");
  for (const auto& [flat, own] : {std::pair{"index_n_heads", "sparse_num_index_heads"},
                                  {"index_head_dim", "sparse_index_dim"},
                                  {"index_topk_blocks", "sparse_topk_blocks"},
                                  {"index_block_size", "sparse_block_size"},
                                  {"index_local_blocks", "sparse_local_block"}})
    file[flat] = config[own];
  for (const char* key : {"sparse_attention_config", "moe_layer_freq", "first_k_dense_replace",
                          "n_shared_experts", "use_routing_bias", "use_qk_norm", "qk_norm_type",
                          "attention_output_gate", "moe_intermediate_size", "architectures"})
    file.erase(key);
  file["model_type"] = "minimax_m3_vl_text";
  return file;
}

Model model(const json& file) { return parse_hf_config("m3.json", file.dump()); }

std::string fault(const json& file) {
  try {
    model(file);
  } catch (const UserError& e) {
    return e.diagnostics().front().what;
  }
  return "accepted";
}

void expect_same(const Model& one, const Model& other) {
  EXPECT_EQ(one.attentions, other.attentions);
  EXPECT_EQ(one.ffns, other.ffns);
  EXPECT_EQ(one.runs, other.runs);
  EXPECT_EQ(one.qk_norm, other.qk_norm);
  EXPECT_EQ(one.qk_norm_whole, other.qk_norm_whole);
  EXPECT_EQ(one.hidden, other.hidden);
}

TEST(MiniMax, WhatTransformersSavesIsTheSameModel) {
  const Model own = model(published());
  expect_same(model(saved()), own);
  EXPECT_THAT(model(saved()).notes, Each(Not(HasSubstr("not understood"))));
  json wrapped;
  wrapped["model_type"] = "minimax_m3_vl";
  wrapped["text_config"] = saved();
  expect_same(model(wrapped), own);
  EXPECT_THAT(model(wrapped).notes, Each(Not(HasSubstr("is unknown"))));
  json both = published();  // as versions between them have it
  both["layer_types"] = saved()["layer_types"];
  expect_same(model(both), own);
}

TEST(MiniMax, NumbersThatTransformersLeavesOutAreItsDefaults) {
  json file = saved();
  for (const char* key :
       {"index_n_heads", "index_head_dim", "index_topk_blocks", "index_block_size", "index_local_blocks"})
    file.erase(key);
  expect_same(model(file), model(saved()));
  file["index_topk_blocks"] = 8;
  EXPECT_EQ(model(file).attentions.back().index->top_k, 8);
}

TEST(MiniMax, WithoutACountThereIsOneSharedExpert) {
  json file = published();
  file.erase("n_shared_experts");
  EXPECT_EQ(model(file).ffns.back().shared_experts, 1);
  file["n_shared_experts"] = 0;
  EXPECT_EQ(model(file).ffns.back().shared_experts, 0);
}

TEST(MiniMax, ListsAndNumbersThatContradictEachOther) {
  json file = published();
  file["layer_types"] = saved()["layer_types"];
  file["layer_types"][3] = "full_attention";
  EXPECT_THAT(fault(file), HasSubstr("layer_types[3] full_attention contradicts sparse_attention_config, "
                                     "whose sparse_attention_freq[3] is 1"));
  file = published();
  file["layer_types"] = saved()["layer_types"];
  file["sparse_attention_config"]["use_sparse_attention"] = false;
  EXPECT_THAT(fault(file), HasSubstr("whose use_sparse_attention is false"));
  file = published();
  file["index_topk_blocks"] = 8;
  EXPECT_THAT(fault(file),
              HasSubstr("index_topk_blocks 8 contradicts sparse_attention_config.sparse_topk_blocks 16"));
  file = published();
  file.erase("first_k_dense_replace");
  file["mlp_layer_types"] = saved()["mlp_layer_types"];
  file["mlp_layer_types"][5] = "dense";
  EXPECT_THAT(fault(file), HasSubstr("mlp_layer_types: layer 5 is dense, but by"));
  file = saved();
  file["index_n_heads"] = 3;
  EXPECT_THAT(fault(file), HasSubstr("3 heads of an index for 4 key/value heads"));
  file = saved();
  file["index_local_blocks"] = 0;
  EXPECT_THAT(fault(file), HasSubstr("index_local_blocks 0: a query whose own block may be left out"));
}

TEST(MiniMax, AFileWithoutAnIndexSaysSo) {
  json file = published();
  file.erase("sparse_attention_config");
  EXPECT_THAT(model(file).notes, Contains(HasSubstr("all layers have full attention")));
  EXPECT_EQ(model(file).attentions.size(), 1U);
}

}  // namespace
}  // namespace shardline
