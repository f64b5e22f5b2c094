// TensorRT-LLM's prompts that wait in front of one that has tokens of a step, where the cache has no room:
// the bound that spares a look at each of them, against the engine's own loop, which looks at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/plain_trtllm_drafts.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

constexpr std::uint32_t kText = 8;  // tokens that an id stands for

// Steps of few tokens and few blocks, so that long lines wait for room.
TrtllmKnobs line_knobs(RandomStream& random) {
  TrtllmKnobs k;
  k.capacity_scheduler_policy =
      random.below(8) == 0 ? TrtllmPolicy::static_batch : TrtllmPolicy::guaranteed_no_evict;
  k.disable_overlap_scheduler = random.below(2) == 0;
  k.enable_chunked_prefill = true;
  k.tokens_per_block = random.below(2) == 0 ? 4 : 8;
  k.max_num_tokens = 10 + static_cast<std::uint32_t>(random.below(random.below(2) == 0 ? 20 : 90));
  k.max_batch_size = random.below(4) == 0 ? 20 : 300;
  k.max_seq_len = 240;
  k.blocks = k.max_seq_len / k.tokens_per_block + static_cast<std::uint32_t>(random.below(90));
  return k;
}

// Long texts of a few families, of which many wait for each other's, and short ones that come again and again
// and are soon found up to their end; up to a whole block or not.
std::vector<TraceRequest> lines_of_texts(RandomStream& random) {
  std::vector<TraceRequest> out;
  std::uint64_t fresh = 1000;
  const std::uint64_t families = 1 + random.below(5), shorts = 1 + random.below(4), own = 1 + random.below(6);
  for (int i = 0; i < 90; ++i) {
    TraceRequest r{
        Seconds(0), 0, 1 + static_cast<std::int64_t>(random.below(random.below(2) == 0 ? 2 : 30)), {}};
    if (random.below(3) == 0) {
      const std::uint64_t text = random.below(shorts);
      for (std::uint64_t n = 0; n <= text; ++n) r.blocks.push_back(10 * text + n);
    } else {
      const std::uint64_t family = 100 * (1 + random.below(families));
      for (std::uint64_t n = random.below(20); n > 0; --n) r.blocks.push_back(family + r.blocks.size());
      for (std::uint64_t n = random.below(own) + (r.blocks.empty() ? 1 : 0); n > 0; --n)
        r.blocks.push_back(++fresh);
    }
    r.input = static_cast<std::int64_t>(kText * r.blocks.size());
    if (random.below(3) > 0) r.input -= static_cast<std::int64_t>(random.below(kText));
    out.push_back(std::move(r));
  }
  return out;
}

Steps steps_or_end(Scheduler& s, int most) {
  try {
    return steps_of(s, most);
  } catch (const UserError&) {
    return {"ends"};
  }
}

// Step by step, what each computes; requests come between, most of them at once.
std::uint64_t equals_the_executor(std::uint64_t seed) {
  RandomStream random(seed, "lines of trtllm");
  const TrtllmKnobs knobs = line_knobs(random);
  TrtllmScheduler fast(knobs);
  PlainTrtllmDrafts plain(knobs, {});
  const auto requests = lines_of_texts(random);
  for (std::size_t i = 0; i <= requests.size(); ++i) {
    const bool all = i == requests.size();
    if (!all && (fast.add(requests[i], kText) != plain.add(requests[i], kText))) {
      ADD_FAILURE() << "one of both refuses a request";
      return 0;
    }
    const int most = all ? 100'000 : static_cast<int>(random.below(8) == 0 ? random.below(30) : 0);
    for (int step = 0; step < most; ++step) {
      const Steps one = steps_or_end(fast, 1);
      EXPECT_EQ(one, steps_or_end(plain, 1));
      if (::testing::Test::HasFailure() || (!one.empty() && one.front() == "ends")) return fast.barred();
      if (one.empty()) break;
      EXPECT_EQ(fast.pool().available(), plain.pool().available());
      EXPECT_EQ(fast.pool().filled(), plain.pool().filled());
    }
  }
  EXPECT_EQ(fast.running(), plain.running());  // nobody, but where the engine stands still
  EXPECT_EQ(fast.waiting(), plain.waiting());
  return fast.barred();
}

// SHARDLINE_WHOLE=1 plays 20,000 loads.
TEST(TrtllmBound, R9LinesAreThoseOfTheExecutorsLoop) {
  std::uint64_t barred = 0, loads = 0;
  const std::uint64_t seeds = testing::loads(400, 20'000);
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const std::uint64_t decisions = equals_the_executor(seed);
    barred += decisions;
    loads += decisions > 0 ? 1 : 0;
  }
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GT(barred, 2000U);
  EXPECT_GT(loads, 100U);
}

}  // namespace
}  // namespace shardline
