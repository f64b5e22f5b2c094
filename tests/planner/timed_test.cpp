// What is read and cannot be timed is refused in one place, whatever is asked of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/model/catalog.hpp"
#include "planner/plan/timed.hpp"
#include "planner/scenario/scenario.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

std::string said(const std::string& name) {
  std::string out;
  for (const std::string& part : untimed(load_model(name, source_path("models/catalog")))) out += part + "\n";
  return out;
}

TEST(Timed, EveryKindOfTodaysModelsIsTimed) {
  for (const char* whole : {"deepseek-v3.2", "glm-5.2", "gemma-4-31b", "minimax-m2.5", "deepseek-r1",
                            "gpt-oss-120b", "llama-4-scout", "qwen3.5-397b-a17b", "minimax-m3",
                            "nemotron-3-super-120b-a12b", "deepseek-v4-pro", "deepseek-v4-flash", "kimi-k3"})
    EXPECT_EQ(said(whole), "") << whole;
}

// What a choice of blocks must be to be lowered: one head for each KV head, and the own block among them.
TEST(Timed, OtherChoicesOfBlocksAreNamed) {
  Model m = load_model("minimax-m3", source_path("models/catalog"));
  const auto said_of = [&](auto change) {
    Model other = m;
    for (Attention& a : other.attentions)
      if (a.index) change(*a.index);
    const std::vector<std::string> parts = untimed(other);
    return parts.empty() ? std::string() : parts.front();
  };
  EXPECT_THAT(said_of([](SparseIndex& x) { x.heads = 2; }), ::testing::HasSubstr("2 heads for 4 KV heads"));
  EXPECT_THAT(said_of([](SparseIndex& x) { x.local_blocks = 0; }), ::testing::HasSubstr("own block"));
  EXPECT_THAT(said_of([](SparseIndex& x) { x.block = 1; }), ::testing::HasSubstr("single keys"));
}

TEST(Timed, NoCaseIsMadeOfWhatCannotBeTimed) {
  Model m = load_model("minimax-m3", source_path("models/catalog"));
  for (Attention& a : m.attentions)
    if (a.index) a.index->local_blocks = 0;
  EXPECT_THROW(make_case(m, catalog_system("h200-hgx"), Precision{}, 1000, 16, Routing{}), UserError);
}

}  // namespace
}  // namespace shardline
