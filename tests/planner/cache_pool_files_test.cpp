// What launch files say of an engine's pools of caches [P20], and profiles of them [P18].
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "planner/engines/launch_files.hpp"
#include "planner/search/cache_sizes.hpp"
#include "tests/planner/cache_pools.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

std::string lines_of(const char* name, Case c, const Plan& p) {
  c.precision = all_bf16();
  std::string out;
  const Launch launch = launch_files(c, p, *engine_named(name), "x");
  for (const LaunchedServer& s : launch.servers)
    for (const std::string& line : s.lines) out += line + "\n";
  return out;
}

TEST(CachePoolFiles, P20LaunchFilesSayThePricedPools) {
  const Case oss = served("sglang", "gpt-oss-120b", 8'192, 1'024);
  const Plan p = tensor(2, 16);
  EXPECT_THAT(lines_of("sglang", oss, p),
              HasSubstr(fmt::format(" --swa-full-tokens-ratio {:.3f}", window_thousandths(oss, p) / 1000.0)));
  EXPECT_THAT(lines_of("sglang", oss, p), Not(HasSubstr("mamba")));
  const Case hybrid = served("sglang", "qwen3.5-397b-a17b", 8'192, 1'024);
  EXPECT_THAT(lines_of("sglang", hybrid, tensor(2, 16)), HasSubstr(" --max-mamba-cache-size 80"));
  EXPECT_THAT(lines_of("sglang", hybrid, tensor(2, 16)), Not(HasSubstr("swa")));
  for (const char* model : {"llama-3.1-8b", "gemma-3-27b"}) {
    const std::string text = lines_of("sglang", served("sglang", model, 8'192, 1'024), tensor(2, 16));
    EXPECT_THAT(text, Not(HasSubstr("swa"))) << model;
    EXPECT_THAT(text, Not(HasSubstr("mamba"))) << model;
  }
  for (const char* name : {"vllm", "trtllm"})
    EXPECT_THAT(lines_of(name, served(name, "gpt-oss-120b", 8'192, 1'024), p),
                AllOf(HasSubstr("serve"), Not(HasSubstr("window"))))
        << name;
}

std::string fault(const std::string& name, const std::string& what, const std::string& instead) {
  std::string text = testing::read_file(source_path("planner/engines/" + name + ".yaml"));
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  text.replace(at, what.size(), instead);
  try {
    parse_engine(name + ".yaml", text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(CachePoolFiles, P18FaultsOfAProfileAreLocated) {
  EXPECT_EQ(fault("sglang", "    plain: 3\n", "    plain: 3\n"), "");
  EXPECT_THAT(fault("sglang", "    plain: 3\n", "    plain: 6\n"),
              HasSubstr("memory.states: expected plain <= buffered_waiting <= buffered"));
  EXPECT_THAT(
      fault("sglang", "    plain: 3\n", "    plane: 3\n"),
      AllOf(HasSubstr("missing key plain in memory.states"), HasSubstr("unknown key memory.states.plane")));
  EXPECT_THAT(fault("sglang", "    plain: 3\n", "    plain: 0\n"), HasSubstr("memory.states.plain"));
  EXPECT_THAT(fault("sglang", "[Qwen3NextForCausalLM, ", "[Qwen3NextForCausalLM, Qwen3NextForCausalLM, "),
              HasSubstr("stands here twice"));
  EXPECT_THAT(fault("sglang", "    split: true\n", "    split: maybe\n"), HasSubstr("memory.windows.split"));
  EXPECT_THAT(fault("sglang", "    steps: 2\n", "    steps: -1\n"), HasSubstr("memory.windows.steps"));
  EXPECT_THAT(fault("sglang", "    late: 256 tokens\n", "    late: 256\n"), HasSubstr("memory.windows.late"));
  EXPECT_THAT(fault("sglang", "    blackwell: fp8\n", "    blackwell: fp9\n"),
              HasSubstr("memory.sparse_latents.blackwell"));
  EXPECT_THAT(fault("sglang", "    blackwell: fp8\n", "    rubin: fp8\n"),
              AllOf(HasSubstr("unknown key memory.sparse_latents.rubin"), HasSubstr("expected a type")));
  EXPECT_THAT(fault("sglang", "unbuffered_states", "unbufered_states"),
              HasSubstr("expected context_servers, stages, unbuffered_states or the name of a strategy"));
  EXPECT_THAT(fault("vllm", "between", "between"), "");
  EXPECT_THAT(fault("trtllm", "between: [helix, context_servers]", "between: [unbuffered_states]"),
              HasSubstr("expected memory.states, which says what has buffers"));
  EXPECT_THAT(fault("vllm", "    mla: 64 tokens\n", ""), HasSubstr("missing key mla in memory.pages"));
}

}  // namespace
}  // namespace shardline
