// What launch files say of single plans.
#include <gmock/gmock.h>

#include "planner/engines/checkpoints.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::AllOf, ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

EngineProfile profile_of(const std::string& name) {
  return load_engine(name, "", source_path("planner/engines"));
}

Case typed(const std::string& model, const std::string& system, Dtype weights, Dtype kv, long long context) {
  Case c = decode_case(model, system, context);
  c.precision = Precision{};
  c.precision.weights = weights;
  c.precision.math = arithmetic_of(weights);
  c.precision.kv = kv;
  return c;
}

Launch of(const Case& c, const std::string& plan, const std::string& engine) {
  return launch_files(c, parse_plan(plan), profile_of(engine), "serve");
}

std::string text_of(const Launch& launch, const std::string& name) {
  for (const LaunchFile& f : launch.files) {
    if (f.name == name) return f.text;
  }
  ADD_FAILURE() << name << " is not there: " << launch.refused;
  return "";
}

// Which machine of several does what.
TEST(LaunchText, P20MachinesOfTraysAndNodes) {
  const Case hgx = typed("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, 8192);
  EXPECT_THAT(text_of(of(hgx, "dp_ep:dp=16,ep=16,batch=64", "vllm"), "serve.sh"),
              AllOf(HasSubstr("NODE=(--data-parallel-size-local 8 --data-parallel-address \"$HEAD_ADDR\""),
                    HasSubstr("NODE+=(--headless --data-parallel-start-rank $((NODE_RANK * 8)))"),
                    HasSubstr("MODEL=${MODEL:-deepseek-ai/DeepSeek-R1}")));
  // A group over two machines is no group of one.
  EXPECT_THAT(text_of(of(hgx, "dp_ep:dp=2,tpa=16,ep=32,batch=64", "vllm"), "serve.sh"),
              HasSubstr("NODE=(--nnodes 4 --node-rank \"$NODE_RANK\""));
  const Case tray = typed("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 8192);
  EXPECT_THAT(text_of(of(tray, "tensor:tpa=8,ep=8,batch=4", "sglang"), "serve.sh"),
              AllOf(HasSubstr("--nnodes 2"), HasSubstr("--dist-init-addr \"$HEAD_ADDR:20000\"")));
  EXPECT_THAT(text_of(of(tray, "tensor:tpa=8,ep=8,batch=4", "trtllm"), "serve.sh"),
              HasSubstr("srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmix"));
  EXPECT_THAT(
      text_of(of(tray, "dp_ep:dp=6,ep=6,batch=4", "sglang"), "serve.sh"),           // two machines of 3
      AllOf(HasSubstr("--nnodes 2"), HasSubstr("--chunked-prefill-size 16128 ")));  // 6 x 21 pages of 128
  EXPECT_THAT(of(tray, "dp_ep:dp=5,ep=5,batch=4", "sglang").refused,
              HasSubstr("5 groups of 1 GPUs fill machines of 4 unequally: 4 or 8 GPUs"));
}

// 8 GPUs of one machine and 4 of another: groups of data parallelism are counted on each (vLLM), a launcher
// is told each rank's machine (TensorRT-LLM); equal parts would be other places.
TEST(LaunchText, P20UnequalPartsOfMachines) {
  const Case hgx = typed("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, 8192);
  const char* const groups = "dp_ep:dp=3,tpa=4,ep=12,moe_a2a=gather,batch=4";
  EXPECT_THAT(text_of(of(hgx, groups, "vllm"), "serve.sh"),
              AllOf(HasSubstr("# Run it on 2 machines of 8 GPUs and 4 on the last, with NODE_RANK 0 to 1"),
                    HasSubstr("--data-parallel-size-local $((NODE_RANK < 1 ? 2 : 1)) "),
                    HasSubstr("--data-parallel-start-rank $((NODE_RANK * 2))")));
  EXPECT_THAT(of(hgx, groups, "sglang").refused,
              HasSubstr("3 groups of 4 GPUs fill machines of 8 unequally: 8 or 16 GPUs"));
  const Case dense = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, 8192);
  const char* const stages = "pipeline:pp=3,tpa=4,tpf=4,batch=4";
  for (const char* engine : {"vllm", "sglang"})
    EXPECT_THAT(of(dense, stages, engine).refused, HasSubstr("3 stages of 4 GPUs fill machines of 8"));
  const Launch ranks = of(dense, stages, "trtllm");
  EXPECT_THAT(text_of(ranks, "serve.sh"),
              AllOf(HasSubstr("for _ in {1..8}; do echo \"$HOST\"; done\n  done | sed -n 1,12p"),
                    HasSubstr("srun --nodes=2 --ntasks=12 --distribution=arbitrary"),
                    HasSubstr("a file of 2 machines with 8 slots, the last with 4")));
  EXPECT_THAT(text_of(ranks, "serve.yaml"), HasSubstr("gpus_per_node: 8"));
}

// Stages that are no whole machines: vLLM's ranks lie in their order, SGLang's nodes have whole stages.
TEST(LaunchText, P20StagesAcrossTrays) {
  const Case tray = typed("llama-3.1-405b", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 8192);
  const char* const stages = "pipeline:pp=3,tpa=8,tpf=8,batch=4";
  EXPECT_THAT(text_of(of(tray, stages, "sglang"), "serve.sh"), HasSubstr("--nnodes 6"));
  const char* const across = "pipeline:pp=4,tpa=8,tpf=8,batch=4";
  EXPECT_THAT(text_of(of(tray, across, "vllm"), "serve.sh"), HasSubstr("NODE=(--nnodes 8 "));
}

// Buffers of DeepEP's kernels of few tokens have room for 128 of a rank: with 64 requests of 8192 tokens that
// decode alone prompts come in steps of as many, which nobody priced. Served ones were priced in them.
TEST(LaunchText, P20FewTokensOfAStepAreSaid) {
  Case c = typed("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, 8192);
  const Launch few = of(c, "dp_ep:dp=8,ep=8,batch=64", "vllm");
  const char* const note =
      "Prompts are in none of its times: its steps hold 128 tokens, those of answers among them, so that a "
      "prompt of 8192 takes 64 steps or more (1 of the engine's own 8192 tokens).";
  EXPECT_THAT(text_of(few, "serve.sh"), AllOf(HasSubstr(note), HasSubstr("--max-num-batched-tokens 128 ")));
  ASSERT_EQ(few.servers.size(), 1U);
  EXPECT_THAT(few.servers.front().notes, Contains(HasSubstr(note)));
  const auto says_nothing = Not(HasSubstr("Prompts are in none"));
  EXPECT_THAT(text_of(of(c, "dp_ep:dp=8,ep=8,batch=64,moe_a2a=gather", "vllm"), "serve.sh"), says_nothing);
  EXPECT_THAT(text_of(of(c, "dp_ep:dp=8,ep=8,batch=64", "sglang"), "serve.sh"), says_nothing);
  c.served = {7168, 1024};
  EXPECT_THAT(text_of(of(c, "dp_ep:dp=8,ep=8,batch=64", "vllm"), "serve.sh"), says_nothing);
}

// DeepSeek-V4 has pages of 256 tokens.
TEST(LaunchText, P20PagesOfDeepSeekV4) {
  for (const auto& [model, pages] : {std::pair("deepseek-v4-pro", true), std::pair("deepseek-r1", false)}) {
    const Case c = typed(model, "gb200-nvl72", Dtype::fp8_block, Dtype::fp8, 8192);
    const std::string text = text_of(of(c, "tensor:tpa=8,ep=8,batch=4", "vllm"), "serve.sh");
    EXPECT_EQ(text.find("--block-size 256 ") != text.npos, pages) << model;
  }
}

// vLLM refuses files of a method that it will drop, unless it is told not to.
TEST(LaunchText, P20DeprecatedFilesAreAllowed) {
  Case c = typed("llama-3.1-405b", "h100-hgx", Dtype::fp8_dynamic, Dtype::bf16, 8192);
  c.model.checkpoint = Checkpoint{};
  for (const auto& [method, allows] : {std::pair("fbgemm_fp8", true), std::pair("fp8", false)}) {
    c.model.checkpoint->method = method;
    const std::string text = text_of(of(c, "tensor:tpa=8,tpf=8,batch=4", "vllm"), "serve.sh");
    EXPECT_EQ(text.find("--allow-deprecated-quantization") != text.npos, allows) << method;
  }
}

// Known facts of engines' versions.
TEST(LaunchText, P20DecodeContextParallelism) {
  const std::string plan = "dcp:tpa=8,ep=8,batch=4,dcp=8";
  const Case b200 = typed("deepseek-r1", "b200-hgx", Dtype::fp4, Dtype::bf16, 100'000);
  const Case h200 = typed("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, 100'000);
  EXPECT_THAT(text_of(of(b200, plan, "vllm"), "serve.sh"), HasSubstr("--attention-backend CUTLASS_MLA"));
  EXPECT_THAT(text_of(of(h200, plan, "vllm"), "serve.sh"), Not(HasSubstr("--attention-backend")));
  EXPECT_THAT(of(b200, plan, "sglang").refused, HasSubstr("0.5.15"));
  EXPECT_THAT(of(b200, plan, "trtllm").refused, HasSubstr("no way to run dcp"));
  EXPECT_THAT(of(b200, plan + ",exchange=a2a,queries=replicated", "vllm").refused, HasSubstr("0.25.0"));
  const Case narrow = typed("deepseek-r1", "b200-hgx", Dtype::fp4, Dtype::fp8, 100'000);
  EXPECT_THAT(of(narrow, plan, "vllm").refused, HasSubstr("16 bits"));
}

TEST(LaunchText, P20WhatNoOptionSays) {
  const Case r1 = typed("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 8192);
  EXPECT_THAT(of(r1, "dp_ep:dp=4,tpa=2,ep=8,batch=4", "trtllm").refused, HasSubstr("attention DP"));
  EXPECT_THAT(of(r1, "tensor:tpa=8,ep=4,tpf=2,batch=4", "vllm").refused, HasSubstr("not 4 groups of 2"));
  EXPECT_THAT(text_of(of(r1, "tensor:tpa=8,ep=4,tpf=2,batch=4", "sglang"), "serve.sh"),
              HasSubstr("--ep-size 4"));
  const Case beyond = typed("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 1'000'000);
  EXPECT_THAT(of(beyond, "tensor:tpa=8,ep=8,batch=4", "vllm").refused,
              HasSubstr("1000000 tokens are beyond the 163840"));
  Case wide = r1;
  wide.precision.kv = Dtype::fp32;
  EXPECT_THAT(of(wide, "tensor:tpa=8,ep=8,batch=4", "vllm").refused, HasSubstr("no KV cache in fp32"));
}

// Room for an answer behind the longest sequence, as far as the model goes.
TEST(LaunchText, P20LengthsHoldTheAnswer) {
  const auto vllm = [](long long context) {
    const Case c = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, context);
    return text_of(of(c, "tensor:tpa=8,tpf=8,batch=600", "vllm"), "serve.sh");
  };
  EXPECT_THAT(vllm(100'000), AllOf(HasSubstr("--max-model-len 101024 "), HasSubstr("--max-num-seqs 600 "),
                                   HasSubstr("--max-cudagraph-capture-size 608 ")));
  EXPECT_THAT(vllm(131'000), HasSubstr("--max-model-len 131072 "));
}

// Of a workload the whole request, however long the answer.
TEST(LaunchText, P20LengthsAreThoseOfTheWorkload) {
  Case c = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, 9216);
  c.served = {1024, 16384};
  EXPECT_THAT(text_of(of(c, "tensor:tpa=8,tpf=8,batch=16", "vllm"), "serve.sh"),
              HasSubstr("--max-model-len 17408 "));
  EXPECT_THAT(text_of(of(c, "tensor:tpa=8,tpf=8,batch=16", "sglang"), "serve.sh"),
              HasSubstr("--context-length 17408 "));
}

// SGLang's formula (server_args.py:3276-3315) by hand, in MiB: 512 + 1.5 x 16384 + 2 x 16 + 1024 x 8 / 8 and,
// under attention DP, 3 x 16 x 8; else 1536 for prefill graphs of MLA.
TEST(LaunchText, P20SglangKeepsWhatItWouldByItself) {
  const Case c = typed("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 8192);
  const double all = c.system.device.memory.value / 1048576;
  const auto part = [&](double reserved) {
    return "--mem-fraction-static " + std::to_string((all - reserved) / all).substr(0, 5) + " ";
  };
  EXPECT_THAT(text_of(of(c, "dp_ep:dp=8,ep=8,batch=16", "sglang"), "serve.sh"),
              HasSubstr(part(512 + 24576 + 32 + 1024 + 384)));
  EXPECT_THAT(text_of(of(c, "tensor:tpa=8,ep=8,batch=16", "sglang"), "serve.sh"),
              HasSubstr(part(512 + 24576 + 32 + 1024 + 1536)));
  EXPECT_THAT(text_of(of(c, "dp_ep:dp=8,ep=8,batch=400", "sglang"), "serve.sh"),
              HasSubstr(part(512 + 24576 + 800 + 1024 + 4.5 * 400 * 8)));
  // GQA: 8 MiB for each graph of a prefill; its profile has no part of its own.
  const Case h200 = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, 8192);
  EXPECT_THAT(text_of(of(h200, "tensor:tpa=8,tpf=8,batch=16", "sglang"), "serve.sh"),
              HasSubstr("--mem-fraction-static 0.899 "));
}

TEST(LaunchText, P20TensorRtLlmKeys) {
  const Case c = typed("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, 8192);
  const std::string yaml = text_of(of(c, "dp_ep:dp=8,ep=8,batch=64", "trtllm"), "serve.yaml");
  for (const char* line : {"  dtype: auto\n", "enable_attention_dp: true\n", "enable_chunked_prefill: true\n",
                           "  backend: CUTLASS\n", "  enable_padding: true\n", "max_seq_len: 9216\n"})
    EXPECT_THAT(yaml, HasSubstr(line));
}

// Helix decodes: prompts are another server's, with as many GPUs.
TEST(LaunchText, P20HelixIsAGenerationServer) {
  const Case c = typed("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, 100'000);
  const Launch launch = of(c, "helix:kvp=4,tpa=2,ep=8,batch=8,value_up=before", "trtllm");
  const std::string generation = text_of(launch, "serve_generation.yaml"),
                    context = text_of(launch, "serve_context.yaml");
  EXPECT_THAT(generation,
              AllOf(HasSubstr("context_parallel_size: 4\n"), HasSubstr("  cp_type: HELIX\n"),
                    HasSubstr("  free_gpu_memory_fraction: 0.7902\n"), HasSubstr("max_num_tokens: 8\n"),
                    HasSubstr("  max_tokens_in_buffer: 25024\n")));
  EXPECT_THAT(context, AllOf(HasSubstr("tensor_parallel_size: 8\n"), Not(HasSubstr("cp_config")),
                             HasSubstr("disable_overlap_scheduler: true\n"),
                             HasSubstr("max_num_tokens: 8192\n"), HasSubstr("cuda_graph_config: null\n")));
  const ScriptRunner runner;
  runner.write(launch.files);
  const Called front = runner.run("serve_front.sh", {{"CONTEXT_ADDRS", "a"}, {"GENERATION_ADDRS", "b"}});
  ASSERT_EQ(front.code, 0);
  ASSERT_GE(front.words.size(), 3u);
  EXPECT_EQ(front.words[1], "disaggregated");
  const OptionTable table("trtllm");
  std::map<std::string, std::string> v;
  EXPECT_NE(table.find("front", front.words[2]), nullptr);
  EXPECT_THAT(table.yaml_faults("front_yaml", "1.3.0rc20", front.config, v), IsEmpty());
  EXPECT_EQ(v["context_servers.urls"], "a:8001");
  EXPECT_EQ(v["generation_servers.urls"], "b:8002");
  for (const char* engine : {"vllm", "sglang"})
    EXPECT_THAT(of(c, "helix:kvp=4,tpa=2,ep=8,batch=8,value_up=before", engine).refused, Not(IsEmpty()));
}

// A pool for prompts and one for answers, of any engine.
TEST(LaunchText, P20PairsOfPools) {
  const Case decode = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, 30'000);
  Case prefill = decode;
  prefill.batch = prefill_batch({{0, 30'000}});
  const Plan context = parse_plan("tensor:tpa=4,tpf=4,batch=1,prefill_chunk=8000"),
             generation = parse_plan("tensor:tpa=8,tpf=8,batch=64");
  const auto pair = [&](const char* engine) {
    return launch_pair({prefill, context}, {decode, generation}, profile_of(engine), "p");
  };
  const Launch vllm = pair("vllm"), sglang = pair("sglang"), trtllm = pair("trtllm");
  EXPECT_THAT(text_of(vllm, "p_context.sh"), HasSubstr("\"kv_role\":\"kv_producer\""));
  EXPECT_THAT(text_of(vllm, "p_generation.sh"), HasSubstr("\"kv_role\":\"kv_consumer\""));
  EXPECT_THAT(text_of(sglang, "p_context.sh"),
              AllOf(HasSubstr("--disaggregation-mode prefill "), HasSubstr("--chunked-prefill-size 8000 "),
                    HasSubstr("--page-size 64 ")));
  EXPECT_THAT(text_of(sglang, "p_generation.sh"),
              AllOf(HasSubstr("--disaggregation-mode decode "), Not(HasSubstr("chunked"))));
  EXPECT_THAT(text_of(trtllm, "p_context.yaml"), HasSubstr("max_num_tokens: 8000\n"));
  const ScriptRunner runner;
  for (const auto& [launch, engine, kind, skip] :
       {std::tuple{&vllm, "vllm", "proxy", 2}, std::tuple{&sglang, "sglang", "router", 3}}) {
    runner.write(launch->files);
    const Called front = runner.run(
        "p_front.sh", {{"CONTEXT_ADDRS", "a"}, {"GENERATION_ADDRS", "b"}, {"VLLM_SOURCE", "/source of it"}});
    ASSERT_EQ(front.code, 0) << engine;
    std::map<std::string, std::string> v;
    const OptionTable table(engine);
    for (const char* half : {"p_context.sh", "p_generation.sh"}) {
      const Called called = runner.run(half, {{"THIS_ADDR", "a"}});
      ASSERT_EQ(called.code, 0) << half;
      v.clear();
      EXPECT_THAT(table.faults("serve", profile_of(engine).version,
                               {called.words.begin() + 3, called.words.end()}, v),
                  IsEmpty())
          << engine << " " << half;
      EXPECT_TRUE(v.contains("--kv-transfer-config") || v.contains("--disaggregation-mode"));
    }
    v.clear();
    EXPECT_THAT(
        table.faults(kind, profile_of(engine).version, {front.words.begin() + skip, front.words.end()}, v),
        IsEmpty())
        << engine;
    EXPECT_TRUE(v.contains("--port"));
  }
}

// States of layers are handed over in one layout alone, which a variable says.
TEST(LaunchText, P20StatesOfPairsHaveALayout) {
  for (const auto& [model, states] : {std::pair{"qwen3.5-397b-a17b", true}, {"qwen3-235b-a22b", false}}) {
    const Case decode = typed(model, "h200-hgx", Dtype::bf16, Dtype::bf16, 8192);
    Case prefill = decode;
    prefill.batch = prefill_batch({{0, 8192}});
    const Plan context = parse_plan("tensor:tpa=8,ep=8,batch=1,prefill_chunk=8192"),
               generation = parse_plan("tensor:tpa=8,ep=8,batch=64");
    const Launch pair = launch_pair({prefill, context}, {decode, generation}, profile_of("vllm"), "p");
    for (const char* half : {"p_context.sh", "p_generation.sh"})
      EXPECT_EQ(text_of(pair, half).find("export VLLM_SSM_CONV_STATE_LAYOUT=DS\n") != std::string::npos,
                states)
          << model << " " << half;
  }
}

// SGLang refuses budgets of prompts that are no whole pages (server_args.py:6689-6692 at v0.5.14), of 64
// tokens on Blackwell.
TEST(LaunchText, P20ChunksAreWholePages) {
  for (const auto& [system, budget] : {std::pair{"h200-hgx", "1000"}, {"b200-hgx", "1024"}}) {
    Case c = typed("llama-3.1-70b", system, Dtype::bf16, Dtype::bf16, 8192);
    c.batch.prefill = {{0, 1'000}};
    EXPECT_THAT(text_of(of(c, "tensor:tpa=8,tpf=8,batch=1", "sglang"), "serve.sh"),
                HasSubstr(std::string("--chunked-prefill-size ") + budget + " "));
  }
}

// Without a checkpoint that is stored so, the shell asks for one; what follows the script's name is the
// engine's.
TEST(LaunchText, P20TheModelIsAVariable) {
  const Case other = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8_block, Dtype::fp8, 8192);
  EXPECT_EQ(checkpoint_of(other), "");
  EXPECT_EQ(checkpoint_of(typed("llama-7b", "h100-hgx", Dtype::bf16, Dtype::bf16, 1024)),
            "huggyllama/llama-7b");
  EXPECT_EQ(checkpoint_of(typed("llama-7b", "h100-hgx", Dtype::fp8, Dtype::bf16, 1024)), "");
  EXPECT_EQ(checkpoint_of(typed("kimi-k2", "h200-hgx", Dtype::bf16, Dtype::bf16, 1024)), "");
  const ScriptRunner runner;
  runner.write(of(other, "tensor:tpa=8,tpf=8,batch=4", "vllm").files);
  EXPECT_NE(runner.run("serve.sh", {}).code, 0);
  const Called called = runner.run("serve.sh", {{"MODEL", "it's \"$HOME\""}});
  ASSERT_EQ(called.code, 0);
  EXPECT_EQ(called.words.at(2), "it's \"$HOME\"");
}

// Lengths beyond the model's, where the user allows them: by a variable of each engine, on every machine.
TEST(LaunchText, P20LongRequestsTakeAVariable) {
  Case c = typed("llama-3.1-405b", "h200-hgx", Dtype::fp8, Dtype::fp8, 200'000);
  const std::string plan = "tensor:tpa=16,tpf=16,batch=1";
  for (const auto& [engine, variable, length] :
       {std::tuple{"vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "--max-model-len 201024 "},
        std::tuple{"sglang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "--context-length 201024 "},
        std::tuple{"trtllm", "TLLM_ALLOW_LONG_MAX_MODEL_LEN", "max_seq_len: 201024\n"}}) {
    c.any_context = false;
    EXPECT_THAT(of(c, plan, engine).refused, HasSubstr("--any-context lifts that"));
    EXPECT_THAT(deployments(c, parse_plan(plan)).front().environment, IsEmpty());
    c.any_context = true;
    const Launch launch = of(c, plan, engine);
    const std::string script = text_of(launch, "serve.sh"), set = std::string("export ") + variable + "=1\n";
    EXPECT_THAT(script, AllOf(HasSubstr(set), HasSubstr("201024 tokens are beyond the 131072 of")));
    EXPECT_THAT(script + (launch.files.size() > 1 ? launch.files[1].text : ""), HasSubstr(length));
    const OptionTable::Row* row = OptionTable(engine).find("env", variable);
    ASSERT_NE(row, nullptr) << variable;
    EXPECT_EQ(row->type, "int");
    if (std::string(engine) == "trtllm") {
      EXPECT_THAT(script, HasSubstr(std::string(" -x ") + variable + ")"));
    }
  }
  c.batch = decode_batch(100'000);  // the model's own lengths need none
  for (const char* engine : {"vllm", "sglang", "trtllm"})
    EXPECT_THAT(text_of(of(c, plan, engine), "serve.sh"), Not(HasSubstr("export")));
}

// Of a case's own engine alone.
TEST(LaunchText, P20LinesOfTheCasesEngine) {
  Case c = typed("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, 8192);
  const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=4");
  EXPECT_EQ(deployments(c, plan).size(), 3u);
  c.engine = std::make_shared<const EngineProfile>(profile_of("sglang"));
  const std::vector<Deployment> own = deployments(c, plan);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own.front().engine, "SGLang");
}

}  // namespace
}  // namespace shardline
