#include "cuda_probe/gpu/emulated_gpu.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {
namespace {

Copy bytes_copy(const void* from, void* to, std::size_t bytes) {
  return {.source = from,
          .target = to,
          .rows = 1,
          .row_bytes = bytes,
          .source_pitch = bytes,
          .target_pitch = bytes};
}

TEST(EmulatedGpu, NothingRunsBeforeTheHostWaits) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream();
  auto* p = static_cast<std::uint8_t*>(gpu.allocate(4));
  gpu.fill(s, p, 7, 4);
  EXPECT_EQ(gpu.done(), 0u);
  EXPECT_EQ(p[0], 0xff);  // fresh memory
  gpu.synchronize();
  EXPECT_EQ(gpu.done(), 1u);
  EXPECT_EQ(p[0], 7);
  gpu.fill(s, p, 8, 2);
  std::uint8_t back[4];
  gpu.download(back, p, 4);
  EXPECT_EQ(back[1], 8);
  EXPECT_EQ(back[2], 7);
}

TEST(EmulatedGpu, AStreamIsInOrderForEverySeed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EmulatedGpu gpu({.seed = seed});
    const Stream s = gpu.stream(), other = gpu.stream();
    OnDevice<std::uint8_t> a(gpu, 1), b(gpu, 1);
    for (std::uint8_t i = 0; i < 10; ++i) {
      gpu.fill(s, a.p, i, 1);
      gpu.fill(other, b.p, static_cast<std::uint8_t>(2 * i), 1);
    }
    EXPECT_EQ(a.get()[0], 9);
    EXPECT_EQ(b.get()[0], 18);
  }
}

/// What is in a byte that two streams write without an event.
std::uint8_t last_writer(const EmulatedOptions& options) {
  EmulatedGpu gpu(options);
  const Stream s = gpu.stream(), t = gpu.stream();
  OnDevice<std::uint8_t> a(gpu, 1);
  gpu.fill(t, a.p, 2, 1);
  gpu.fill(s, a.p, 1, 1);
  return a.get()[0];
}

TEST(EmulatedGpu, RunsStreamsInTheOrderAskedFor) {
  const auto with = [](StreamOrder order, std::uint64_t seed = 0) {
    return last_writer({.seed = seed, .order = order, .race_check = false});
  };
  EXPECT_EQ(with(StreamOrder::by_stream), 2);
  EXPECT_EQ(with(StreamOrder::latest_stream_first), 1);
  EXPECT_EQ(with(StreamOrder::as_enqueued), 1);
  std::set<std::uint8_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    seen.insert(with(StreamOrder::random, seed));
    EXPECT_EQ(with(StreamOrder::random, seed), with(StreamOrder::random, seed));
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(EmulatedGpu, AWaitIsForTheRecordThatWasLatestWhenItWasEnqueued) {
  for (const StreamOrder order : {StreamOrder::by_stream, StreamOrder::latest_stream_first}) {
    EmulatedGpu gpu({.order = order});
    const Stream s = gpu.stream(), t = gpu.stream();
    const Event e = gpu.event();
    OnDevice<std::uint8_t> a(gpu, 1), b(gpu, 1);
    gpu.wait(t, e);  // never recorded: for nothing
    gpu.fill(s, a.p, 1, 1);
    gpu.record(e, s);
    gpu.wait(t, e);
    gpu.copy(t, bytes_copy(a.p, b.p, 1));
    gpu.record(e, t);  // recorded again: the wait above keeps the first
    gpu.wait(s, e);
    gpu.fill(s, a.p, 3, 1);
    gpu.synchronize();
    EXPECT_EQ(b.get()[0], 1);
    EXPECT_EQ(a.get()[0], 3);
  }
}

TEST(EmulatedGpu, NamesBothPiecesOfWorkOfARace) {
  EmulatedGpu gpu({.order = StreamOrder::as_enqueued});
  const Stream s = gpu.stream(), t = gpu.stream();
  OnDevice<std::uint8_t> a(gpu, 16), b(gpu, 16);
  gpu.fill(s, a.p, 1, 16);
  gpu.copy(t, bytes_copy(a.p + 4, b.p, 8));
  EXPECT_EQ(error_of([&] { gpu.synchronize(); }),
            "race: copy #1 on stream 1 reads 8 bytes that fill #0 on stream 0 writes, and no event orders "
            "them");
}

TEST(EmulatedGpu, FindsEveryKindOfRaceInEveryOrderAndAcceptsTheOrderedTwin) {
  struct Case {
    bool first_writes, second_writes, ordered, touching, race;
  };
  for (const Case c : {Case{true, true, false, true, true}, Case{true, false, false, true, true},
                       Case{false, true, false, true, true}, Case{false, false, false, true, false},
                       Case{true, true, true, true, false}, Case{true, false, true, true, false},
                       Case{false, true, true, true, false}, Case{true, true, false, false, false}}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      EmulatedGpu gpu({.seed = seed});
      const Stream s = gpu.stream(), t = gpu.stream(), via = gpu.stream();
      const Event e = gpu.event(), f = gpu.event();
      OnDevice<std::uint8_t> shared(gpu, 64), own(gpu, 128);
      const auto touch = [&](Stream stream, bool writes, std::size_t offset) {
        if (writes) {
          gpu.fill(stream, shared.p + offset, 1, 8);
        } else {
          gpu.copy(stream, bytes_copy(shared.p + offset, own.p + 64 * stream.id, 8));
        }
      };
      touch(s, c.first_writes, 0);
      if (c.ordered) {  // by way of a third stream
        gpu.record(e, s);
        gpu.wait(via, e);
        gpu.record(f, via);
        gpu.wait(t, f);
      }
      touch(t, c.second_writes, c.touching ? 7 : 8);
      EXPECT_EQ(error_of([&] { gpu.synchronize(); }).starts_with("race: "), c.race) << seed;
    }
  }
}

TEST(EmulatedGpu, AnEventRecordedTooEarlyDoesNotOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedGpu gpu({.seed = seed});
    const Stream s = gpu.stream(), t = gpu.stream();
    const Event e = gpu.event();
    OnDevice<std::uint8_t> a(gpu, 1);
    gpu.record(e, s);
    gpu.fill(s, a.p, 1, 1);
    gpu.wait(t, e);
    gpu.fill(t, a.p, 2, 1);
    EXPECT_TRUE(error_of([&] { gpu.synchronize(); }).starts_with("race: ")) << seed;
  }
}

TEST(EmulatedGpu, AWaitOfTheHostOrdersEverything) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream(), t = gpu.stream();
  OnDevice<std::uint8_t> a(gpu, 1);
  gpu.fill(s, a.p, 1, 1);
  gpu.synchronize();
  gpu.fill(t, a.p, 2, 1);
  EXPECT_EQ(a.get()[0], 2);
}

TEST(EmulatedGpu, StridedWorkInterleavedInOneMatrixIsNoRace) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream(), t = gpu.stream();
  OnDevice<std::uint8_t> from(gpu, 16), to(gpu, 16);
  from.set(std::vector<std::uint8_t>(16, 5));
  Copy even{
      .source = from.p, .target = to.p, .rows = 4, .row_bytes = 2, .source_pitch = 2, .target_pitch = 4};
  Copy odd = even;
  odd.target = to.p + 2;
  gpu.copy(s, even);
  gpu.copy(t, odd);
  EXPECT_EQ(to.get(), std::vector<std::uint8_t>(16, 5));
  odd.target = to.p + 1;
  gpu.copy(s, even);
  gpu.copy(t, odd);
  EXPECT_TRUE(error_of([&] { gpu.synchronize(); }).starts_with("race: "));
}

TEST(EmulatedGpu, FindsAccessesOutsideAllocations) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream();
  OnDevice<std::uint8_t> a(gpu, 100), b(gpu, 100);
  std::vector<std::uint8_t> host(200);
  const auto error = [&](auto enqueue) {
    enqueue();
    return error_of([&] { gpu.synchronize(); });
  };
  EXPECT_EQ(error([&] { gpu.fill(s, a.p + 96, 0, 5); }),
            "fill #0 on stream 0: target touches bytes [96, 101) of an allocation of 100");
  EXPECT_EQ(error([&] { gpu.copy(s, bytes_copy(a.p, host.data(), 8)); }),
            "copy #1 on stream 0: target is not memory of this device");
  EXPECT_EQ(error([&] { gpu.copy(s, bytes_copy(nullptr, a.p, 8)); }), "copy #2 on stream 0: source is null");
  EXPECT_EQ(error([&] { gpu.copy(s, bytes_copy(a.p, a.p + 7, 8)); }),
            "copy #3 on stream 0: source and target overlap");
  // Only the last row leaves the allocation.
  EXPECT_EQ(error([&] {
              gpu.copy(s, {.source = a.p,
                           .target = b.p,
                           .rows = 4,
                           .row_bytes = 10,
                           .source_pitch = 10,
                           .target_pitch = 31});
            }),
            "copy #4 on stream 0: target touches bytes [93, 103) of an allocation of 100");
  EXPECT_EQ(error_of([&] { gpu.upload(a.p, host.data(), 101); }),
            "upload: target touches bytes [0, 101) of an allocation of 100");
  EXPECT_EQ(error_of([&] { gpu.download(host.data(), host.data(), 1); }),
            "download: source is not memory of this device");
  EXPECT_EQ(error([&] { gpu.copy(s, bytes_copy(a.p, a.p + 50, 50)); }), "");
}

TEST(EmulatedGpu, FindsReleasedMemoryInUse) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream();
  OnDevice<std::uint8_t> a(gpu, 4);
  gpu.fill(s, a.p, 0, 4);
  gpu.release(a.p);
  EXPECT_EQ(error_of([&] { gpu.synchronize(); }), "fill #0 on stream 0: target uses released memory");
  EXPECT_EQ(error_of([&] { gpu.release(a.p); }), "release: memory released twice");
  EXPECT_EQ(error_of([&] { gpu.release(&gpu); }), "release: memory that was not allocated on this device");
}

TEST(EmulatedGpu, AWaitForDroppedWorkIsADeadlock) {
  EmulatedGpu gpu({.order = StreamOrder::by_stream});
  const Stream s = gpu.stream(), t = gpu.stream();
  const Event e = gpu.event();
  gpu.fill(s, nullptr, 0, 1);
  gpu.record(e, s);
  EXPECT_NE(error_of([&] { gpu.synchronize(); }), "");
  gpu.wait(t, e);
  EXPECT_EQ(error_of([&] { gpu.synchronize(); }),
            "deadlock: stream 1 waits for event 0, whose record was dropped");
  EXPECT_EQ(error_of([&] { gpu.wait(t, Event{7}); }), "event 7 does not exist");
  EXPECT_EQ(error_of([&] { gpu.record(e, Stream{7}); }), "stream 7 does not exist");
}

TEST(EmulatedGpu, TimesAddUpInAStreamAndAcrossEvents) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedGpu gpu({.seed = seed});
    const Stream s = gpu.stream(), t = gpu.stream();
    const Event begin = gpu.event(), middle = gpu.event(), free_end = gpu.event(), end = gpu.event();
    OnDevice<std::uint8_t> a(gpu, 1000), b(gpu, 1000);
    gpu.record(begin, s);
    gpu.fill(s, a.p, 1, 1000);  // 2 us
    gpu.fill(t, b.p, 1, 500);   // 1.5 us
    gpu.record(free_end, t);
    gpu.record(middle, s);
    gpu.wait(t, middle);
    gpu.copy(t, bytes_copy(a.p, b.p, 1000));  // 3 us after both
    gpu.record(end, t);
    EXPECT_EQ(error_of([&] { gpu.elapsed(begin, end); }), "elapsed: event 0 is not completed");
    gpu.synchronize();
    EXPECT_NEAR(gpu.elapsed(begin, middle).value, 2e-6, 1e-15);
    EXPECT_NEAR(gpu.elapsed(begin, free_end).value, 1.5e-6, 1e-15);
    EXPECT_NEAR(gpu.elapsed(begin, end).value, 5e-6, 1e-15);
    EXPECT_NEAR(gpu.elapsed(middle, begin).value, -2e-6, 1e-15);
  }
}

}  // namespace
}  // namespace shardline
