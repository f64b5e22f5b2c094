// What a refusal of a scenario's types says to write in their place: every line of it is tried.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "planner/scenario/shipped.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

// What stands against a scenario, or nothing.
std::string refusal(const std::string& text, const std::vector<std::string>& settings = {}) {
  Overrides asked;
  asked.settings = settings;
  try {
    parse_scenario("q.yaml", text, shipped_catalogs(), asked);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

// The settings of "for instance --set a=b --set c=d on the command line", and of "as --set a=b on ...".
std::vector<std::string> settings_in(const std::string& message) {
  std::vector<std::string> out;
  std::istringstream words(message);
  std::string word;
  while (words >> word) {
    if (word == "--set" && words >> word) out.push_back(word);
  }
  return out;
}

bool of_types(const std::string& message) {
  for (const char* rule :
       {" does not start: projections", " does not start: experts", " does not start: dense",
        " does not start: shared", " has no price here: ", " which it does not keep in ",
        "whose cache it does not keep", "caches in fp4 there"}) {
    if (message.find(rule) != std::string::npos) return true;
  }
  return false;
}

TEST(Refusals, P21EveryOneOfTypesSaysWhatToSetAndThatWorks) {
  std::set<std::string> tried;
  int refused = 0;
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    for (const char* system : {"a100-sxm", "h100-hgx", "gb200-nvl72"}) {
      for (const char* model : {"llama-3.1-70b", "qwen3-235b-a22b"}) {
        std::vector<std::string> precisions;
        for (const char* type : {"fp4", "fp8", "int4"}) {
          precisions.push_back(fmt::format("{{weights: {}, kv: bf16}}", type));
          if (std::string(model) == "llama-3.1-70b") continue;
          precisions.push_back(fmt::format("{{weights: bf16, expert_weights: {}, kv: bf16}}", type));
          precisions.push_back(fmt::format("{{weights: {}, expert_math: bf16, kv: bf16}}", type));
        }
        precisions.emplace_back("{weights: fp4, math: fp4, kv: bf16}");
        precisions.emplace_back("{weights: bf16, kv: fp4}");
        for (const std::string& precision : precisions) {
          const std::string text = fmt::format(
              "name: q\nsystem: {}\nengine: {}\nmodels: [{}]\ncontext: 8Ki tokens\nstrategies: [tensor]\n"
              "gpus: [8]\nbatch: [4]\nprecision: {}\n",
              system, engine, model, precision);
          const std::string message = refusal(text);
          if (!of_types(message)) continue;
          SCOPED_TRACE(text + message);
          ++refused;
          const std::vector<std::string> settings = settings_in(message);
          ASSERT_FALSE(settings.empty());
          EXPECT_EQ(refusal(text, settings), "");
          tried.insert(settings.begin(), settings.end());
        }
      }
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_TRUE(tried.contains("precision.weights=fp8"));
  EXPECT_TRUE(tried.contains("precision.weights=int4"));
  EXPECT_TRUE(tried.contains("precision.expert_weights=fp8"));
  EXPECT_TRUE(tried.contains("precision.kv=fp8"));
}

}  // namespace
}  // namespace shardline
