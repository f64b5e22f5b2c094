// Published tables of KV-Runahead: what is read, what counts, and that the report follows from its points.
#include <gtest/gtest.h>

#include "calibrate/validate/kv_runahead_gather.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/bad_input.hpp"

namespace shardline {
namespace {

Catalogs catalogs() {
  return {source_path("models/catalog"), source_path("hardware/catalog"), source_path("scenarios")};
}

TEST(ChainTruth, BadInput) {
  ::shardline::testing::expect_messages(
      "chain_truth", ".yaml", 5,
      [](const std::string& name, const std::string& text) { parse_chain_truth(name, text, catalogs()); });
}

constexpr const char* kMine = R"(
table1:
  unit: ms
  columns: [model, context, gpus, tsp, kvr_e, kvr_s, speedup]
  rows:
    - [llama-7b, 1024, 4, 107, 100, 97, 1.1]
    - [llama-13b, 4096, 8, 300, 300, null, 1.1]
    - [falcon-7b, 4096, 2, 300, 300, 280, 1.1]
    - [llama-30b, 8192, 4, 2000, 2000, 1500, 1.1]
table3:
  unit: s
  model: llama-7b
  columns: [context, base_1gpu, gpu2_10GBps, gpu4_1GBps]
  rows:
    - [4096, 0.65, 0.4, 0.9]
)";

TEST(ChainTruth, ValuesOfAnyModelAreReadAndMarked) {
  const ChainTruth shipped = chain_truth_of("", catalogs());
  EXPECT_EQ(shipped.values.size(), 2u * 20 + 2 * 6 + 5 * 2);
  std::size_t fitted = 0;
  for (const ChainValue& v : shipped.values) fitted += v.calibration;
  EXPECT_EQ(fitted, 6u);  // of 8 marks: two are of rows that are not in the file
  ChainTruth mine = parse_chain_truth("mine.yaml", kMine, catalogs());
  ASSERT_EQ(mine.values.size(), 3u + 2 + 3 + 3 + 3);
  EXPECT_EQ(mine.values[1].method, ChainMethod::kvr_even);
  EXPECT_DOUBLE_EQ(mine.values[0].time.value, 0.107);
  EXPECT_EQ(mine.values.back().gpus, 4);
  EXPECT_EQ(mine.values.back().network, 1);
  EXPECT_FALSE(mine.machine);
}

TEST(ChainTruth, ModelsOfAnyNameHaveCosts) {
  const ChainTruth shipped = chain_truth_of("", catalogs());
  EXPECT_EQ(shipped.machine->of("llama-13b"), shipped.machine->of("llama-7b"));
  EXPECT_NE(shipped.machine->of("falcon-7b"), shipped.machine->of("falcon-1b"));
  EXPECT_EQ(shipped.machine->of("deepseek-r1"), nullptr);
}

TEST(ChainPaper, SummariesFollowFromThePoints) {
  ChainTruth truth = parse_chain_truth("mine.yaml", kMine, catalogs());
  truth.machine = chain_truth_of("", catalogs()).machine;
  const PaperReport report = chain_paper(truth, catalogs());
  std::size_t points = 0;
  for (const PaperGroup& g : report.groups) {
    const ErrorSummary e = errors_of(report, g.name, g.counted);
    if (!g.finding.empty()) continue;
    EXPECT_EQ(e.count, g.errors.count) << g.name;
    EXPECT_EQ(e.median, g.errors.median) << g.name;
    EXPECT_EQ(e.largest, g.errors.largest) << g.name;
    points += g.errors.count + g.fitted;
  }
  EXPECT_EQ(points, report.points.size());
  // A searched partition is never slower than equal parts.
  double even = 0;
  for (const PaperPoint& p : report.points) {
    if (p.label.ends_with("kvr_e")) even = p.ours;
    if (p.label.ends_with("kvr_s")) {
      EXPECT_LE(p.ours, even) << p.label;
    }
  }
}

// The robustness experiment: goals follow from the losses, and no traffic is no loss.
TEST(ChainPaper, NoiseIsJudgedByItsLosses) {
  ChainTruth truth = parse_chain_truth("mine.yaml", kMine, catalogs());
  truth.machine = chain_truth_of("", catalogs()).machine;
  EXPECT_FALSE(chain_truth_of("", catalogs()).noise->speedups.empty());
  truth.noise = chain_truth_of("", catalogs()).noise;
  truth.noise->contexts = {8192};
  truth.noise->traffic.seeds = 2;
  const auto verdicts = [&] {
    std::vector<Verdict> out;
    for (const PaperGroup& g : chain_paper(truth, catalogs()).groups) {
      if (g.name == "Noise: what TSP loses" || g.name == "Noise: what KVR loses") out.push_back(g.verdict);
    }
    return out;
  };
  EXPECT_EQ(verdicts(), (std::vector{Verdict::explained, Verdict::met}));
  truth.noise->searched_most = 0.01;
  EXPECT_EQ(verdicts(), (std::vector{Verdict::explained, Verdict::missed}));
  truth.noise->traffic.load = 0;  // then KVR does not lose less than TSP either
  EXPECT_EQ(verdicts(), (std::vector{Verdict::missed, Verdict::missed}));
}

// A speedup leaves for TSP what KVR-S takes times it. A model with a KV head per query head has nothing to
// repeat.
TEST(ChainPaper, AFiguresSpeedupsSayWhatTspMisses) {
  ChainTruth t = chain_truth_of("", catalogs());
  ASSERT_TRUE(t.figure);
  t.figure->rows = {{8, 8192, 1.63}};
  ChainModel model(*t.machine, catalogs());
  const double tsp = model.ttft("falcon-7b", 8192, 8, 0, ChainMethod::tsp).value,
               searched = model.ttft("falcon-7b", 8192, 8, 0, ChainMethod::kvr_searched).value;
  const auto rows_of = [&](const ChainTruth& truth) {
    PaperReport report;
    const std::vector<double> none(truth.values.size(), 0.0);
    add_chain_figure(truth, none, model, report);
    EXPECT_EQ(report.groups.size(), 1u);
    EXPECT_EQ(report.groups.front().verdict, Verdict::open);
    return report.sections.at(0).items.at(0).rows;
  };
  const auto falcon = rows_of(t).at(1);
  EXPECT_NEAR(std::stod(falcon.at(6)), 1e6 * (1.63 * searched - tsp) / 8192 / 32, 0.005);
  // 70 more heads of 64 in K and V, 2 B each: 7/8 of them at 220 GB/s, and once written and read at 1.6 TB/s.
  const double bytes = 2.0 * 70 * 64 * 2;
  EXPECT_NEAR(std::stod(falcon.at(7)),
              1e6 * (bytes * 7 / 8 / (300e9 * 0.733) + 2 * bytes / (2.039e12 * 0.785)), 0.006);
  t.figure->model = "llama-7b";
  EXPECT_EQ(std::stod(rows_of(t).at(1).at(7)), 0);
}

TEST(ChainPaper, WhetherMoreGpusPayIsComparedStepByStep) {
  ChainTruth truth = chain_truth_of("", catalogs());
  truth.noise.reset();
  truth.partitions.clear();
  std::erase_if(truth.values, [](const ChainValue& v) { return v.table != "table3"; });
  const auto judged = [&] {
    for (const PaperGroup& g : chain_paper(truth, catalogs()).groups) {
      if (g.name == "More GPUs pay or not") return std::pair(g.finding, g.verdict);
    }
    return std::pair(std::string("no group"), Verdict::none);
  };
  EXPECT_EQ(judged(), std::pair(std::string("8 of 8 right"), Verdict::met));
  for (ChainValue& v : truth.values) {
    if (v.context == 8192 && v.gpus == 4 && v.network == 10) v.time = Seconds(1.5);  // slower than on 2
  }
  EXPECT_EQ(judged(), std::pair(std::string("7 of 8 right"), Verdict::missed));
}

TEST(ChainPaper, AnInterruptIsAnError) {
  EXPECT_THROW(chain_paper(chain_truth_of("", catalogs()), catalogs(), [] { return false; }), Cancelled);
}

TEST(Partition, TheSearchFindsTheBestOfAllPartitions) {
  Case c = decode_case("llama-7b", "a100-sxm", 0);
  c.system.calibration = {};
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.batch = prefill_batch({{0, 1}});
  cut_layers(c, 3, 3);
  for (const AttentionKernel kernel : {AttentionKernel::flash, AttentionKernel::eager}) {
    c.kernels.attention = kernel;
    c.kernels.score_traffic = Bytes(kernel == AttentionKernel::eager ? 27 : 0);
    c.batch = prefill_batch({{0, 30'000}});
    Plan plan;
    plan.strategy = strategy_id("kv_runahead");
    plan.cp = 3;
    Evaluator e(c);
    const PartitionResult found = searched_partition(e, plan);
    double best = 1e300;
    for (long long i = 250; i < 30'000; i += 250) {
      for (long long j = 250; i + j < 30'000; j += 250) {
        list_parts(plan, {i, j, 30'000 - i - j});
        best = std::min(best, e.simulate(plan).value);
      }
    }
    EXPECT_LE(found.ttft.value, best * 1.002);
    EXPECT_LT(found.evaluations, 1000u);
  }
}

}  // namespace
}  // namespace shardline
