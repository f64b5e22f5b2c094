// What the import of a config.json leaves out reaches whoever asks, and types that nobody read are asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A small Llama as a file says it, with these keys behind its own.
class ImportNotes : public ::testing::Test {
 protected:
  ImportNotes()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~ImportNotes() override { std::filesystem::remove_all(folder_); }

  PlanQuestion of(const std::string& keys, const std::string& engine = "vllm") const {
    std::ofstream(folder_ / "config.json")
        << R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
"num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000,
"intermediate_size": 4096, "max_position_embeddings": 32768)"
        << keys << "}";
    PlanQuestion q;
    q.model = folder_.string();
    q.system = "h100-hgx";
    q.gpus = 2;
    q.input = 2048;
    q.output = 128;
    q.engine = engine;
    return q;
  }

  static std::string refusal(const PlanQuestion& q) {
    try {
      asked_plan(q, shipped_catalogs());
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }

  static std::vector<std::string> warnings(const PlanQuestion& q) {
    const Study study = asked_plan(q, shipped_catalogs()).study;
    Evaluator e(study.study, study.sweep().search.all_reduce);
    std::vector<std::string> out;
    for (const Diagnostic& d : simulate_plan(study, e, possible_plan(study, "tensor:tpa=2,tpf=2")).unread)
      out.push_back(d.what);
    return out;
  }

 private:
  std::filesystem::path folder_;
};

constexpr const char* kUnread =
    ",\n\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}";

// Whatever the engine, and with none: no type of the file's is known.
TEST_F(ImportNotes, TypesThatAreNotReadAreAskedForAtTheirPlace) {
  for (const char* engine : {"vllm", "sglang", "ideal"}) {
    const std::string said = refusal(of(kUnread, engine));
    EXPECT_THAT(said, HasSubstr("not read: the method bitsandbytes at ")) << engine;
    EXPECT_THAT(said, HasSubstr("config.json:4:")) << engine;
    EXPECT_THAT(said, HasSubstr("--set precision.weights=fp8")) << engine;
  }
  EXPECT_EQ(refusal(of("")), "no error");
  const char* const unpriced = "vLLM 0.24.0 reads these files, by kernels that nobody here has measured";
  EXPECT_THAT(refusal(of(kUnread)), HasSubstr(unpriced));
  EXPECT_THAT(refusal(of(kUnread, "ideal")), ::testing::Not(HasSubstr("reads these files")));
}

// An engine that has no reader for the files does not start them, whatever types stand in their place.
TEST_F(ImportNotes, FilesThatTheEngineDoesNotReadAreRefusedWhateverTheirTypes) {
  const auto file = [](const std::string& keys) {
    return ",\n\"quantization_config\": {\"quant_method\": " + keys + "}";
  };
  const std::string int8 =
      R"("compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
"weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
"input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true}}})";
  struct Row {
    std::string keys;
    const char *engine, *reads;
  };
  for (const Row& row :
       {Row{"\"bitsandbytes\"", "trtllm", "engine vllm (vLLM 0.24.0) or sglang (SGLang 0.5.14)"},
        Row{"\"aqlm\"", "vllm", "no engine here reads these files"},
        Row{"\"hqq\"", "sglang", "no engine here reads these files"},
        Row{"\"gptq\", \"bits\": 3", "vllm", "engine sglang (SGLang 0.5.14), which reads"},
        Row{"\"gptq\", \"bits\": 8", "trtllm", "engine vllm (vLLM 0.24.0) or sglang"},
        Row{int8, "trtllm", "engine vllm (vLLM 0.24.0) or sglang"}}) {
    SCOPED_TRACE(row.keys + " " + row.engine);
    PlanQuestion q = of(file(row.keys), row.engine);
    for (const bool overridden : {false, true}) {
      if (overridden) q.settings = {"precision.weights=fp8"};
      EXPECT_THAT(refusal(q), HasSubstr("does not start: files of "));
      EXPECT_THAT(refusal(q), HasSubstr(row.reads));
      EXPECT_THAT(refusal(q), HasSubstr("it reads files of some tools alone"));
    }
  }
  for (const Row& row : {Row{"\"gptq\", \"bits\": 3", "sglang", ""}, Row{"\"gptq\", \"bits\": 8", "vllm", ""},
                         Row{int8, "vllm", ""}, Row{int8, "sglang", ""}}) {
    SCOPED_TRACE(row.keys + " " + row.engine);
    PlanQuestion q = of(file(row.keys), row.engine);
    EXPECT_THAT(refusal(q), HasSubstr("reads these files"));
    q.settings = {"precision.weights=fp8"};
    EXPECT_EQ(refusal(q), "no error");
  }
}

// Of files that are read here: what other types a scenario says is no file that the engine could start.
TEST_F(ImportNotes, AnOverrideDoesNotMakeAnEngineReadTheFiles) {
  PlanQuestion q = of(",\n\"quantization_config\": {\"quant_method\": \"fbgemm_fp8\"}", "trtllm");
  for (const bool overridden : {false, true}) {
    if (overridden) q.settings = {"precision.weights=bf16"};
    EXPECT_THAT(refusal(q), HasSubstr("in fp8_dynamic, as files of fbgemm_fp8 have them"));
  }
  q.engine = "vllm";
  EXPECT_EQ(refusal(q), "no error");
}

TEST_F(ImportNotes, TypesThatTheScenarioSaysAreTakenAndSaid) {
  PlanQuestion q = of(kUnread);
  q.settings = {"precision.weights=fp8"};
  EXPECT_EQ(refusal(q), "no error");
  EXPECT_THAT(warnings(q), Contains(HasSubstr("the method bitsandbytes")));
  EXPECT_THAT(warnings(q), Contains(HasSubstr("another checkpoint's: vLLM 0.24.0 reads these files")));
  const Study study = asked_plan(q, shipped_catalogs()).study;
  EXPECT_EQ(study.study.precision.of(Module::dense_ffn).weights, Dtype::fp8);
}

TEST_F(ImportNotes, ReachWhoeverAsks) {
  const auto said = warnings(of(
      R"(, "mystery_key": 3, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
"activation_scheme": "dynamic", "modules_to_not_convert": ["model.layers.9.nothing"]})"));
  EXPECT_THAT(said, Contains(HasSubstr("mystery_key")));
  EXPECT_THAT(said, Contains(HasSubstr("match no matrix")));
  EXPECT_THAT(warnings(of("")), ::testing::Not(Contains(HasSubstr("match no matrix"))));
}

}  // namespace
}  // namespace shardline
