// Caches that a refusal offers in place of another one [P21] start.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/engines/launch_rules.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/trtllm_rules.hpp"

namespace shardline {
namespace {

using namespace testing;

// What the text of a refusal offers in place of a cache: types of the cache, or else of all weights, or else
// of both.
std::vector<Case> offered(const Case& c, const std::string& instead) {
  std::vector<Case> out;
  if (instead.starts_with("precision: {")) {
    Precision& p = out.emplace_back(c).precision;
    int said = 0;
    for (const Dtype t : {Dtype::fp8, Dtype::bf16, Dtype::fp4, Dtype::int4}) {
      const auto says = [&](const char* key) {
        return instead.find(std::string(key) + ": " + std::string(to_string(t))) != std::string::npos;
      };
      if (says("weights")) p.weights = t, p.math = arithmetic_of(t), ++said;
      if (says("kv")) p.kv = t, ++said;
    }
    EXPECT_EQ(said, 2) << instead;
    return out;
  }
  const bool weights = instead.starts_with("weights all of ");
  const std::string names = instead.substr(weights ? 15 : 0, instead.find(',') - (weights ? 15 : 0));
  for (const Dtype t : {Dtype::fp8, Dtype::bf16, Dtype::fp4, Dtype::int4}) {
    if ((" " + names + " ").find(" " + std::string(to_string(t)) + " ") == std::string::npos) continue;
    Case& one = out.emplace_back(c);
    (weights ? one.precision.weights : one.precision.kv) = t;
    if (weights) one.precision.math = arithmetic_of(t);
  }
  return out;
}

// Following an offer once is enough, of every engine, device, kind of attention, weights and cache.
TEST(LaunchRules, P21CachesThatAreOfferedStart) {
  int offers = 0, refusals = 0;
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    for (const char* system : {kA100, kH100, "h200-hgx", kGb}) {
      for (const char* model : {"llama-3.1-8b", kR1, kOss, kQwen}) {
        for (const Dtype weights : {Dtype::bf16, Dtype::fp8, Dtype::fp8_block, Dtype::fp4, Dtype::int4}) {
          for (const Dtype kv : {Dtype::bf16, Dtype::fp8, Dtype::fp4, Dtype::fp32}) {
            for (const bool named : {false, true}) {
              Case c = case_of(engine, {model, system, ""});
              c.precision.weights = weights;
              c.precision.math = arithmetic_of(weights);
              c.precision.kv = kv;
              if (named) checkpoint_caches_in_fp8(c);
              auto refusal = does_not_start(c);
              if (!refusal) refusal = has_no_price(c);
              if (!refusal || refusal->key != "precision.kv") continue;
              ++refusals;
              for (const Case& one : offered(c, refusal->instead)) {
                ++offers;
                const auto again = does_not_start(one);
                EXPECT_FALSE(again) << engine << " " << system << " " << model << " " << to_string(weights)
                                    << ", cache " << to_string(kv) << ": " << refusal->instead
                                    << "\n  then: " << again->text;
                EXPECT_FALSE(has_no_price(one)) << refusal->instead;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(refusals, 100);
  EXPECT_GT(offers, 50);
}

// A cache in NVFP4 beside projections that bring no scales for it, which the other engines do not ask of
// them.
TEST(LaunchRules, P21CachesInFp4NeedScalesUnderTensorrtLlm) {
  Case c = case_of("trtllm", {kL70, kGb, "", cached_in_fp4});
  ASSERT_TRUE(does_not_start(c));
  EXPECT_EQ(does_not_start(c)->rule, std::string("kv_type"));
  EXPECT_NE(does_not_start(c)->text.find("bring no scales"), std::string::npos);
  all_in_fp4(c);
  EXPECT_FALSE(does_not_start(c));
  all_in_fp8(c);
  EXPECT_FALSE(does_not_start(c));
  for (const char* engine : {"vllm", "sglang"})
    EXPECT_FALSE(does_not_start(case_of(engine, {kL70, kGb, "", cached_in_fp4}))) << engine;
}

}  // namespace
}  // namespace shardline
