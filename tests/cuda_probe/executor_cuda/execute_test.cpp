// The command on the stand-in device.
#include <gtest/gtest.h>

#include "cuda_probe/cli/execute.hpp"
#include "sim/base/error.hpp"

namespace shardline::testing {
namespace {

std::string output_of(const probe_cli::ExecuteOptions& o, int result) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(probe_cli::execute(o), result);
  return ::testing::internal::GetCapturedStdout();
}

probe_cli::ExecuteOptions emulated() {
  probe_cli::ExecuteOptions o;
  o.emulate = true;
  return o;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ExecuteCommand, RunsCasesOfEveryStrategy) {
  probe_cli::ExecuteOptions o = emulated();
  o.cases = 2;
  const std::string text = output_of(o, 0);
  for (const char* name : {"tensor", "helix", "ring_pass_kv", "ring_pass_q", "ulysses"})
    EXPECT_TRUE(has(text, name)) << text;
  EXPECT_TRUE(has(text, "equal")) << text;
}

TEST(ExecuteCommand, SaysWhatIsLeftOut) {
  probe_cli::ExecuteOptions o = emulated();
  o.strategy = "ring_pass_kv";
  o.ranks = 1;
  o.cases = 4;
  const std::string text = output_of(o, 0);
  EXPECT_TRUE(has(text, "2 cases left out: needs more than 1 ranks")) << text;
  EXPECT_TRUE(has(text, "4 cases left out: layers are of several kinds of attention")) << text;
  EXPECT_TRUE(has(text, "2 cases left out: op 'attend' has sinks, which the attention kernels do not"))
      << text;
}

TEST(ExecuteCommand, OneScheduleOpByOp) {
  probe_cli::ExecuteOptions o = emulated();
  o.scenario = "llama_70b_h100_128k";
  o.plan = "helix:kvp=2,tpa=2,tpf=4";
  o.tokens = 256;
  const std::string text = output_of(o, 0);
  for (const char* part : {"attend", "merge", "INVENTED", "communication lane", "largest error"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(ExecuteCommand, NeedsADeviceAndBothOfScenarioAndPlan) {
  EXPECT_EQ(probe_cli::execute({}), 3);
  probe_cli::ExecuteOptions o = emulated();
  o.plan = "tensor:tpa=2";
  EXPECT_THROW(probe_cli::execute(o), UserError);
  o.scenario = "llama_70b_h100_128k";
  o.model = "none";
  EXPECT_THROW(probe_cli::execute(o), UserError);
}

}  // namespace
}  // namespace shardline::testing
