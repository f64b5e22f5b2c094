// Rows of the table whose traits do not go together, and attention that such a row would make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "planner/layers/cache_attention.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// Of ranks that project all heads of their attention, each needs all of them merged: no common exchange of
// partial outputs but the all-gather brings that about.
TEST(Strategies, RowsThatMergeSlicesOfHeadsShareTheOutputProjection) {
  Strategy sliced = strategy("kv_shard");
  ASSERT_EQ(sliced.weights, WeightSharing::attention_tp);
  sliced.partials = PartialOutputs::all_to_all;
  EXPECT_THAT(check_row(sliced),
              ::testing::ElementsAre("kv_shard: an all-to-all leaves slices of heads, and TP ranks project "
                                     "all of theirs"));
  // An attention of its own may gather them behind the exchange.
  sliced.decode_attention = strategy("dcp").decode_attention;
  EXPECT_THAT(check_row(sliced), ::testing::IsEmpty());
}

// The same where the data flow of an attention ends: it holds a slice of the heads, of which the ranks of
// kv_shard project all.
TEST(Strategies, AttentionThatEndsWithTooFewHeadsIsRefused) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 1'000);
  const Plan p = parse_plan("kv_shard:kvp=4,tpa=8,tpf=8,batch=1");
  ASSERT_EQ(check_plan(c, p).value_or(""), "");
  const auto attend = [&](OpKind exchange) {
    Schedule s;
    s.flow = std::make_shared<Dataflow>();
    ScheduleBuilder b(s);
    s.ranks_per_stage = p.ranks_per_stage();
    b.begin_block("attention");
    b.elementwise("rope", Part::qkv, OpKind::elementwise, {1, 1, Bytes(0)});
    add_kvp_attention(b, c, c.model.attentions.front(), p, exchange, 1);
  };
  EXPECT_NO_THROW(attend(OpKind::all_gather));
  EXPECT_THROW(attend(OpKind::all_to_all), std::logic_error);
}

}  // namespace
}  // namespace shardline
