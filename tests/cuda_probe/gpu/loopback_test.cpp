#include "cuda_probe/transport/loopback.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "cuda_probe/execute/cuda/memory.hpp"
#include "cuda_probe/gpu/emulated_gpu.hpp"
#include "tests/cuda_probe/gpu/collective_cases.hpp"
#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {
namespace {

constexpr std::uint64_t kSeeds = 20;

TEST(Loopback, ExchangesRandomMessagesBackToBack) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      EmulatedGpu gpu({.seed = seed});
      LoopbackTransport transport(gpu, ranks);
      EXPECT_EQ(exchange_fault(transport, seed), "") << ranks << " ranks, seed " << seed;
    }
  }
}

TEST(Loopback, CollectivesOfSubsetsBackToBackOnTheSameBuffers) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      EmulatedGpu gpu({.seed = seed});
      LoopbackTransport transport(gpu, ranks);
      EXPECT_EQ(collectives_fault(transport, seed), "") << ranks << " ranks, seed " << seed;
    }
  }
}

TEST(Loopback, WorksInTheExtremeOrdersToo) {
  for (const StreamOrder order :
       {StreamOrder::by_stream, StreamOrder::latest_stream_first, StreamOrder::as_enqueued}) {
    EmulatedGpu gpu({.order = order});
    LoopbackTransport transport(gpu, 5);
    EXPECT_EQ(exchange_fault(transport, 1), "");
    EXPECT_EQ(collectives_fault(transport, 1), "");
  }
}

/// Leaves out every wait of one kind.
class Broken : public LoopbackTransport {
 public:
  Broken(Gpu& gpu, int ranks, std::string left_out)
      : LoopbackTransport(gpu, ranks), left_out_(std::move(left_out)) {}

 protected:
  void wait(Stream stream, Event event, const char* why) override {
    if (why != left_out_) LoopbackTransport::wait(stream, event, why);
  }

 private:
  std::string left_out_;
};

TEST(Loopback, AnEventLeftOutIsFoundForEverySeed) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const std::string left_out : {"ready", "taken"}) {
      for (const auto fault : {exchange_fault, collectives_fault}) {
        EmulatedGpu gpu({.seed = seed});
        Broken transport(gpu, 4, left_out);
        EXPECT_TRUE(fault(transport, seed).starts_with("race: ")) << left_out;
      }
    }
  }
}

TEST(Loopback, ResultsShowAnEventLeftOutWithoutTheRaceCheckToo) {
  for (const std::string left_out : {"ready", "taken"}) {
    for (const auto fault : {exchange_fault, collectives_fault}) {
      int found = 0;
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        EmulatedGpu gpu({.seed = seed, .race_check = false});
        Broken transport(gpu, 4, left_out);
        found += fault(transport, seed) != "" ? 1 : 0;
      }
      EXPECT_GT(found, 10) << left_out;
    }
  }
}

TEST(Loopback, ScratchOfARankIsSafeAcrossItsStreams) {
  for (const bool broken : {false, true}) {
    EmulatedGpu gpu;
    Broken transport(gpu, 1, broken ? "scratch" : "");
    const Stream a = gpu.stream(), b = gpu.stream();
    OnDevice<Bf16> x(gpu, random_bf16(8, 1)), y(gpu, random_bf16(8, 2)), x_out(gpu, 8), y_out(gpu, 8);
    const std::vector<int> group = {0};
    transport.all_reduce(group, std::vector<Buffers>{{x.p, x_out.p}}, 8, Number::bf16, std::vector{a});
    transport.all_reduce(group, std::vector<Buffers>{{y.p, y_out.p}}, 8, Number::bf16, std::vector{b});
    EXPECT_EQ(error_of([&] { gpu.synchronize(); }).starts_with("race: "), broken);
  }
}

TEST(Loopback, ASumIsRoundedAfterEachRankInOrder) {
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, 3);
  std::vector<Stream> streams = {gpu.stream(), gpu.stream(), gpu.stream()};
  // 256 + 1 rounds to 256 twice; 1 + 1 + 256 would give 258.
  OnDevice<Bf16> a(gpu, bf16({256})), b(gpu, bf16({1})), c(gpu, bf16({1}));
  const std::vector<Buffers> in_place = {{a.p, a.p}, {b.p, b.p}, {c.p, c.p}};
  transport.all_reduce(std::vector{0, 1, 2}, in_place, 1, Number::bf16, streams);
  for (const auto& rank : {a, b, c}) EXPECT_EQ(floats(rank.get()), std::vector<float>{256});
}

TEST(Loopback, RefusesWhatTheInterfaceExcludes) {
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, 2);
  const std::vector<Stream> streams = {gpu.stream(), gpu.stream()};
  OnDevice<Bf16> a(gpu, 16), b(gpu, 16);
  const auto exchange = [&](Message m) {
    return error_of([&] { transport.exchange(std::vector{m}, streams); });
  };
  EXPECT_EQ(exchange({0, 2, a.p, b.p, 2}), "exchange: message 0 goes from rank 0 to rank 2 of 2");
  EXPECT_EQ(exchange({0, 1, nullptr, b.p, 2}), "exchange: message 0 from rank 0 to rank 1 has no source");
  EXPECT_EQ(exchange({0, 1, a.p, nullptr, 2}), "exchange: message 0 from rank 0 to rank 1 has no target");
  EXPECT_EQ(exchange({0, 1, nullptr, nullptr, 0}), "");
  EXPECT_EQ(error_of([&] { transport.exchange({}, std::vector{streams[0]}); }),
            "exchange: 1 streams for 2 ranks");
  const auto reduce = [&](std::vector<int> group, Number number, const Bf16* send, Bf16* receive) {
    const std::vector<Buffers> buffers = {{send, receive}, {b.p, b.p + 8}};
    return error_of([&] { transport.reduce_scatter(group, buffers, 8, number, streams); });
  };
  EXPECT_EQ(reduce({0, 1}, Number::fp32, a.p, a.p), "loopback: reduce_scatter sums bfloat16 only");
  EXPECT_EQ(reduce({1, 0}, Number::bf16, a.p, a.p), "reduce_scatter: ranks must ascend");
  EXPECT_EQ(reduce({0, 2}, Number::bf16, a.p, a.p), "reduce_scatter: rank 2 of 2");
  EXPECT_EQ(reduce({0}, Number::bf16, a.p, a.p), "reduce_scatter: 2 buffers and 2 streams for 1 ranks");
  EXPECT_EQ(reduce({0, 1}, Number::bf16, a.p, a.p + 8),
            "reduce_scatter: a receive buffer overlaps a send buffer");
  EXPECT_EQ(reduce({0, 1}, Number::bf16, a.p, b.p),
            "reduce_scatter: a receive buffer overlaps a send buffer");
  EXPECT_EQ(reduce({0, 1}, Number::bf16, a.p, nullptr), "reduce_scatter: rank 0 has no buffer");
  EXPECT_EQ(reduce({0, 1}, Number::bf16, a.p, a.p), "");  // in place
}

TEST(Loopback, GathersFloat32) {
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, 2);
  const std::vector<Stream> streams = {gpu.stream(), gpu.stream()};
  OnDevice<float> a(gpu, std::vector<float>{1, 2, 3}), b(gpu, std::vector<float>{4, 5, 6}), x(gpu, 6),
      y(gpu, 6);
  transport.all_gather(std::vector{0, 1}, std::vector<Buffers>{{a.p, x.p}, {b.p, y.p}}, 3, Number::fp32,
                       streams);
  EXPECT_EQ(x.get(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(y.get(), x.get());
}

// A device that failed refuses to free, too; what it said first must reach the user.
TEST(RankMemory, GoesQuietlyWhereTheDeviceRefuses) {
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, 2);
  {
    RankMemory memory(transport);
    void* const lost = memory.allocate(1, 64);
    memory.allocate(0, 64);
    gpu.release(lost);
    EXPECT_THROW(gpu.release(lost), GpuError);
  }
  EXPECT_NO_THROW(gpu.synchronize());
}

}  // namespace
}  // namespace shardline
