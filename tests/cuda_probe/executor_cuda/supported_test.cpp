// What the device executor refuses, which kernel it chooses, and what its tolerance is made of.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda_probe/execute/cuda/kernel_limits.hpp"
#include "cuda_probe/transport/loopback.hpp"
#include "tests/cuda_probe/executor_cuda/cases.hpp"
#include "tests/cuda_probe/schedules.hpp"

namespace shardline::testing {
namespace {

cli::VerifyCase some_case(const std::string& name) { return sampled(name, 1).front(); }

TEST(DeviceSupported, HandWrittenSchedulesOfOddWidthsAreRefusedAndNeverRun) {
  for (const Made& made : all_made()) {
    const auto why = unsupported(made.schedule);
    ASSERT_TRUE(why) << made.name;
    EXPECT_NE(why->find("op '"), std::string::npos) << *why;
    EmulatedGpu gpu;
    LoopbackTransport transport(gpu, ranks_of(made.schedule));
    const Tensors<float> inputs = rounded_to_bf16(reference(made.problem));
    Lanes lanes(transport);
    EXPECT_THROW(DeviceExecutor(made.schedule, inputs, lanes), ExecutionError);
  }
}

TEST(DeviceSupported, NamesTheOpAndTheWidths) {
  cli::CaseSizes sizes = device_sizes();
  sizes.head_dim = 32;
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_pass_kv"), sizes)) {
    if (has_latents(c.study.model)) continue;
    const auto why = unsupported(cli::verify_schedule(c));
    ASSERT_TRUE(why);
    EXPECT_EQ(*why, "op 'attend' has heads of 32 and 32, the kernels 64 and 64, 128 and 128, or 192 and 128");
    break;
  }
}

TEST(DeviceSupported, EveryCaseOfFullAttentionHasKernels) {
  for (const std::string& name : strategy_names()) {
    for (const cli::VerifyCase& c : cli::verify_cases(strategy(name), device_sizes()))
      EXPECT_EQ(unsupported(cli::verify_schedule(c)).has_value(), !has_kernels(c)) << name << ": " << c.what;
  }
}

TEST(DeviceSupported, RefusesToChooseRows) {
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("apb"), device_sizes()))
    EXPECT_EQ(unsupported(cli::verify_schedule(c)).value_or(""),
              "op 'retaining activation' scores or compresses KV, which this executor does not do")
        << c.what;
}

TEST(DeviceSupported, RefusesRegionsOutsideSlotsAndOutputsOverInputs) {
  const Schedule whole = cli::verify_schedule(some_case("ring_pass_kv"));
  Schedule s = whole;
  const auto spoil = [&](auto change) {
    s.flow = std::make_shared<Dataflow>(*whole.flow);
    for (Action& a : s.flow->actions) {
      if (a.function != Function::attend) continue;
      change(s.flow->regions.data() + a.first_region, a);
      break;
    }
    return unsupported(s).value_or("");
  };
  EXPECT_EQ(spoil([](Region*, Action&) {}), "");
  EXPECT_EQ(spoil([](Region* r, Action&) { ++r[1].row; }), "op 'attend' has a region outside its slot");
  EXPECT_EQ(spoil([](Region* r, Action&) { --r[0].rows; }),
            "op 'attend' has regions that do not fit each other");
  EXPECT_EQ(spoil([](Region* r, Action&) { r[2] = r[0]; }), "op 'attend' overwrites what it reads");
  for (const int kv_heads : {0, 3}) {
    EXPECT_EQ(spoil([&](Region*, Action& a) { a.kv_heads = kv_heads; }),
              "op 'attend' has KV heads that do not divide its query heads");
  }
}

// No kernel has a window, a chunk, sinks or an index: none may run as if it saw everything.
TEST(DeviceSupported, RefusesWindowsChunksSinksIndicesAndSeveralKinds) {
  const Schedule whole = cli::verify_schedule(some_case("ring_pass_kv"));
  Schedule s = whole;
  const auto spoil = [&](auto change) {
    s.flow = std::make_shared<Dataflow>(*whole.flow);
    for (Action& a : s.flow->actions) {
      if (a.function != Function::attend) continue;
      change(*s.flow, a);
      break;
    }
    return unsupported(s).value_or("");
  };
  ASSERT_EQ(spoil([](Dataflow&, Action&) {}), "");
  for (int kind = 0; kind < kReachKinds; ++kind) {
    Reach reach{static_cast<ReachKind>(kind), 0};
    if (!reach.local()) continue;
    if (reach.sized()) reach.tokens = 1 << 20;
    EXPECT_EQ(
        spoil([&](Dataflow&, Action& a) { a.reach = reach; }),
        "op 'attend' sees a window or a chunk of its keys, the attention kernels see all before the query");
  }
  EXPECT_EQ(spoil([](Dataflow& f, Action& a) {
              const auto old = f.regions_of(a);
              std::vector<Region> regions(old.begin(), old.end());
              const SlotId sinks = f.slot("sinks", 2);
              f.size(sinks, a.rank, 1, a.heads);
              regions.push_back({sinks, 0, 1, 0, a.heads});
              a.first_region = static_cast<std::uint32_t>(f.regions.size());
              a.regions = 5;
              f.regions.insert(f.regions.end(), regions.begin(), regions.end());
            }),
            "op 'attend' has sinks, which the attention kernels do not");
  const std::string index =
      "op 'attend' attends to keys that an index chooses, which this executor does not do";
  EXPECT_EQ(spoil([](Dataflow&, Action& a) { a.chosen = true; }), index);
  for (const Function f : {Function::index_scores, Function::choose, Function::choose_among})
    EXPECT_EQ(spoil([f](Dataflow&, Action& a) { a.function = f; }), index);
  const std::string linear = "op 'attend' is of linear attention, which this executor does not do";
  for (const Function f : {Function::convolve, Function::delta_rule, Function::gated_norm})
    EXPECT_EQ(spoil([f](Dataflow&, Action& a) { a.function = f; }), linear);
  const std::string kinds = "layers are of several kinds of attention, this executor has the inputs of one";
  EXPECT_EQ(spoil([](Dataflow& f, Action&) { f.inputs.back().kind = 1; }), kinds);
  EXPECT_EQ(spoil([](Dataflow& f, Action&) { f.outputs.back().kind = 1; }), kinds);
}

TEST(DeviceSupported, RefusesTransportsOfTooFewRanks) {
  const cli::VerifyCase c = some_case("ring_pass_kv");
  const Schedule s = cli::verify_schedule(c);
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, 1);
  const Inputs inputs(c.kinds.front());
  Lanes lanes(transport);
  EXPECT_THROW(DeviceExecutor(s, inputs.tensors, lanes), ExecutionError);
}

TEST(DeviceKernels, CacheRowsOfOneQueryPerRequest) {
  const Tokens keys{{1, 0, 4}, {1, 8, 12}, {kPadding, 0, 2}, {0, 0, 5}};
  const auto rows = cache_rows(Tokens{{0, 4, 5}, {kPadding, 0, 2}, {1, 12, 13}, {7, 0, 1}}, keys);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->begin, (std::vector<std::int64_t>{10, 0, 0, 0, 0}));
  EXPECT_EQ(rows->count, (std::vector<std::int32_t>{5, 0, 0, 8, 0}));
  EXPECT_FALSE(cache_rows(Tokens{{0, 3, 4}}, keys)) << "a key is ahead of the query";
  EXPECT_FALSE(cache_rows(Tokens{{0, 4, 6}}, keys)) << "two queries";
  EXPECT_FALSE(cache_rows(Tokens{{0, 4, 5}, {0, 4, 5}}, keys)) << "two queries";
  EXPECT_FALSE(cache_rows(Tokens{{0, 9, 10}}, Tokens{{0, 0, 4}, {1, 0, 1}, {0, 4, 8}})) << "two places";
}

// Counted by hand: the attends give 2, each merge of the ring one more.
TEST(DeviceTolerance, CountsRoundingsAlongTheRing) {
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_pass_kv"), device_sizes())) {
    if (c.study.batch.prefill.front().cached == 0 || c.plan.cp != 3) continue;  // attention only
    const Schedule s = cli::verify_schedule(c);
    const std::vector<int> all = roundings(s);
    for (const Binding& b : s.flow->outputs)
      EXPECT_EQ(all[static_cast<std::size_t>(b.slot) * static_cast<std::size_t>(ranks_of(s)) +
                    static_cast<std::size_t>(b.rank)],
                2 + 2)
          << c.what;
    break;
  }
}

TEST(DeviceTolerance, NotANumberIsAFaultAndErrorsCountAgainstTheRow) {
  const cli::VerifyCase c = some_case("tensor");
  const Schedule s = cli::verify_schedule(c);
  const Inputs inputs(c.kinds.front());
  const RunResult<float> want = inputs.on_cpu(s);
  DeviceResult got = on_emulated(s, inputs);
  ASSERT_TRUE(compare(s, got, want).passed());
  DeviceResult broken = got;
  broken.outputs[0].values(0, 1) = std::nanf("");
  EXPECT_EQ(compare(s, broken, want).faults.size(), 1u);
  broken = got;
  const float largest = want.outputs[0].values.row(0).cwiseAbs().maxCoeff();
  const double allowed = compare(s, got, want).outputs[0].allowed;
  broken.outputs[0].values(0, 1) =
      want.outputs[0].values(0, 1) + 1.1f * static_cast<float>(allowed) * largest;
  EXPECT_FALSE(compare(s, broken, want).passed());
  broken.outputs[0].values(0, 1) =
      want.outputs[0].values(0, 1) + 0.9f * static_cast<float>(allowed) * largest;
  EXPECT_TRUE(compare(s, broken, want).passed());
}

}  // namespace
}  // namespace shardline::testing
