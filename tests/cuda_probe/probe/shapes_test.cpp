// Shapes that the shipped sweeps visit, and how they are thinned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_probe/cli/commands.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Catalogs shipped() {
  const std::filesystem::path root = SHARDLINE_SOURCE_DIR;
  return {root / "models/catalog", root / "hardware/catalog", root / "scenarios", root / "planner/engines"};
}

Catalogs few() {
  Catalogs c = shipped();
  c.scenarios = std::filesystem::path(SHARDLINE_SOURCE_DIR) / "tests/golden";
  return c;
}

const ShapeLists& visited() {
  static const ShapeLists lists = probe_cli::visited_shapes(shipped());
  return lists;
}

const ShapeLists& chosen() {
  static const ShapeLists lists = probe_cli::chosen_shapes(visited());
  return lists;
}

// Farthest of `all` that runs from its nearest measured shape, in octaves.
template <class C>
double hole(const std::vector<C>& all, const std::vector<C>& measured) {
  double worst = 0;
  for (const C& c : all) {
    if (!runs(c)) continue;
    double nearest = 1e9;
    for (const C& m : measured) nearest = std::min(nearest, distance(place(c), place(m)));
    worst = std::max(worst, nearest);
  }
  return worst;
}

TEST(Shapes, FarthestPointsComeFirst) {
  const std::vector<GemmCase> cases{{1, 16, 16},  {2, 16, 16}, {4, 16, 16}, {8, 16, 16},
                                    {16, 16, 16}, {4, 16, 16}, {3, 17, 16}};
  EXPECT_THAT(spread(cases, 3), ElementsAre(GemmCase{1, 16, 16}, GemmCase{16, 16, 16}, GemmCase{4, 16, 16}));
  EXPECT_EQ(spread(cases, 100).size(), 5u);  // repetition and odd width left out
  EXPECT_TRUE(spread(std::vector<GemmCase>{}, 5).empty());
}

TEST(Shapes, OperationsAndBytesByHand) {
  EXPECT_EQ(flops_of(GemmCase{2, 3, 5}), 60);
  EXPECT_EQ(bytes_of(GemmCase{2, 3, 5}, 1), 1 * (10 + 15) + 2 * 6);
  // Two requests; queries of positions 3 and 4 see 4 and 5 keys.
  EXPECT_EQ(flops_of(PrefillCase{2, 2, 3, 4, 1, 64}), 4.0 * 2 * (4 + 5) * 4 * 64);
  EXPECT_EQ(bytes_of(PrefillCase{2, 2, 3, 4, 1, 64}), 2.0 * (2 * 4 * 4 * 64 + 2 * 2 * 5 * 64) + 4 * 4 * 4);
  EXPECT_EQ(flops_of(DecodeCase{3, 10, 8, 2, 128}), 4.0 * 3 * 10 * 8 * 128);
  EXPECT_EQ(bytes_of(DecodeCase{3, 10, 8, 2, 128}), 2.0 * 3 * (2 * 10 * 2 * 128 + 2 * 8 * 128));
  EXPECT_EQ(flops_of(MlaCase{2, 10, 16}), 2.0 * 2 * 10 * 16 * (576 + 512));
  EXPECT_EQ(bytes_of(MlaCase{2, 10, 16}), 2.0 * 2 * (10 * 576 + 16 * (576 + 512)));
  EXPECT_EQ(bytes_of(MergeCase{2, 3, 64, 4}), 2.0 * 3 * 5 * (2 * 64 + 4));
}

TEST(Shapes, WhatKernelsExcludeDoesNotRun) {
  EXPECT_TRUE(runs(DecodeCase{1, 100, 64, 1, 64}));
  EXPECT_FALSE(runs(DecodeCase{1, 100, 71, 1, 64}));  // query heads per KV head
  EXPECT_FALSE(runs(DecodeCase{1, 100, 8, 1, 96}));
  EXPECT_FALSE(runs(DecodeCase{4096, 1 << 20, 8, 8, 128}));  // 16 TB
  EXPECT_FALSE(runs(PrefillCase{1, 128, 0, 8, 3, 128}));
  EXPECT_FALSE(runs(PrefillCase{1, 1 << 20, 0, 16, 1, 128}));  // seconds
  EXPECT_FALSE(runs(MlaCase{1, 100, 129}));
  EXPECT_FALSE(runs(MergeCase{1, 1, 128, 65}));
  EXPECT_FALSE(runs(GemmCase{1, 24, 16}));
}

TEST(VisitedShapes, HoldTheModelsOwnMatrices) {
  // Llama-3.1-405B: hidden 16384, 128 query and 8 KV heads of 128, FFN 53248; TP 8: 16 + 1 + 1 heads.
  EXPECT_THAT(visited().gemm, Contains(GemmCase{8, (16 + 2) * 128, 16384}));
  EXPECT_THAT(visited().gemm, Contains(GemmCase{8, 16384, 16 * 128}));
  EXPECT_THAT(visited().gemm, Contains(GemmCase{8, 2 * 53248 / 8, 16384}));
  EXPECT_THAT(visited().gemm,
              Contains(GemmCase{131072, (16 + 2) * 128, 16384}));  // prefill of 128Ki on one node
  // Its attention on one of 8 ranks, and DeepSeek-R1's on one of 8 KV shards of 1M tokens.
  EXPECT_THAT(visited().prefill, Contains(PrefillCase{1, 131072, 0, 16, 1, 128}));
  EXPECT_TRUE(std::any_of(visited().mla.begin(), visited().mla.end(),
                          [](const MlaCase& c) { return c.kv == 125008 || c.kv == 125000; }));
  EXPECT_TRUE(std::any_of(visited().decode.begin(), visited().decode.end(), [](const DecodeCase& c) {
    return c.kv == 131072 && c.q_heads == 8 && c.kv_heads == 1;
  })) << "Llama-3.1-70B on 8 ranks";
  // A model that no scenario names.
  EXPECT_TRUE(std::any_of(visited().gemm.begin(), visited().gemm.end(), [](const GemmCase& c) {
    return c.k == 4544;
  })) << "Falcon-7B";
}

// Of the small scenarios of golden files: the shipped ones take seconds each time.
TEST(VisitedShapes, AreTheSameEveryTime) {
  const ShapeLists once = probe_cli::visited_shapes(few()), again = probe_cli::visited_shapes(few());
  EXPECT_GT(once.gemm.size(), 100u);
  EXPECT_EQ(again.gemm, once.gemm);
  EXPECT_EQ(again.prefill, once.prefill);
  EXPECT_EQ(again.decode, once.decode);
  EXPECT_EQ(again.mla, once.mla);
  EXPECT_EQ(again.merge, once.merge);
  const ShapeLists thinned = probe_cli::chosen_shapes(once), same = probe_cli::chosen_shapes(again);
  EXPECT_EQ(same.gemm, thinned.gemm);
  EXPECT_EQ(same.decode, thinned.decode);
}

TEST(ChosenShapes, RunAndStayWithinTheirNumber) {
  const probe_cli::ShapeBudget budget;
  const auto check = [](const auto& list, std::size_t most) {
    EXPECT_GE(list.size(), std::min<std::size_t>(most, 16));
    EXPECT_LE(list.size(), most);
    for (const auto& c : list) EXPECT_TRUE(runs(c)) << to_string(c);
  };
  check(chosen().gemm, budget.gemm);
  check(chosen().prefill, budget.prefill);
  check(chosen().decode, budget.decode);
  check(chosen().mla, budget.mla);
  check(chosen().merge, budget.merge);
}

// Every shape that a sweep visits is within a factor of a measured one, in every dimension.
TEST(ChosenShapes, CoverWhatSweepsVisit) {
  EXPECT_LE(hole(visited().gemm, chosen().gemm), 0.5);
  EXPECT_LE(hole(visited().prefill, chosen().prefill), 0.5);
  EXPECT_LE(hole(visited().decode, chosen().decode), 1);
  EXPECT_LE(hole(visited().mla, chosen().mla), 1);
  EXPECT_LE(hole(visited().merge, chosen().merge), 1);
}

// Of golden files' scenarios, for each text visits all shapes again.
TEST(List, ShowsProbesAndShapes) {
  const Catalogs catalogs = few();
  const ShapeLists all_shapes = probe_cli::visited_shapes(catalogs);
  const std::string all = probe_cli::list_text({}, catalogs);
  for (const Probe& p : probes()) EXPECT_THAT(all, HasSubstr(p.name));
  EXPECT_THAT(all, HasSubstr("batch, kv_len, heads_q, heads_kv, head_dim"));
  const std::string gemms = probe_cli::list_text({"gemm", false}, catalogs);
  EXPECT_EQ(static_cast<std::size_t>(std::count(gemms.begin(), gemms.end(), '\n')),
            probe_cli::chosen_shapes(all_shapes).gemm.size());
  EXPECT_THAT(gemms, HasSubstr("m=1 n="));
  const std::string every = probe_cli::list_text({"gemm", true}, catalogs);
  EXPECT_EQ(static_cast<std::size_t>(std::count(every.begin(), every.end(), '\n')), all_shapes.gemm.size());
  EXPECT_THROW(probe_cli::list_text({"gem", false}, catalogs), UserError);
}

}  // namespace
}  // namespace shardline
