// Requests counted together, against a list that is gone through.
#include "planner/requests/steady_requests.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

struct One {
  SteadyRequests::Id id;
  std::uint32_t cached;  // now
  std::uint64_t end;
};

TEST(SteadyRequests, R4AsAListOfThem) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "steady");
    const auto block = static_cast<std::uint32_t>(1 + random.below(20));
    SteadyRequests steady(block);
    std::vector<One> list;
    SteadyRequests::Id next = 0;
    for (std::uint64_t step = 0; step < 400; ++step) {
      for (std::uint64_t n = random.below(4) == 0 ? random.below(3) : 0; n > 0; --n) {
        const One one{next++, static_cast<std::uint32_t>(random.below(5000)), step + random.below(60)};
        list.push_back(one);
        steady.add(one.id, step, one.cached, one.end);
      }
      if (random.below(100) == 0) {
        std::vector<SteadyRequests::Id> all, want;
        steady.clear(all);
        for (const One& o : list) want.push_back(o.id);
        std::sort(all.begin(), all.end());
        ASSERT_EQ(all, want);
        list.clear();
      }
      ASSERT_EQ(steady.count(), list.size());
      if (list.empty()) continue;
      std::uint64_t cached = 0, begin = 0, ahead = 0, end = ~std::uint64_t{0};
      std::uint32_t longest = 0;
      const std::uint64_t steps = random.below(50);
      for (const One& o : list) {
        cached += o.cached;
        longest = std::max(longest, o.cached);
        begin += o.cached % block == 0 ? 1 : 0;
        ahead += (o.cached + steps + block - 1) / block - (o.cached + block - 1) / block;
        end = std::min(end, o.end);
      }
      ASSERT_EQ(steady.cached(step), cached);
      ASSERT_EQ(steady.longest(step), longest);
      ASSERT_EQ(steady.begin_blocks(step), begin);
      ASSERT_EQ(steady.begin_blocks(step, steps), ahead);
      ASSERT_EQ(steady.next_end(), end);
      if (end == step) {
        std::vector<SteadyRequests::Id> ended, want;
        steady.end(ended);
        for (const One& o : list) {
          if (o.end == step) want.push_back(o.id);
        }
        std::sort(ended.begin(), ended.end());
        ASSERT_EQ(ended, want);
        std::erase_if(list, [&](const One& o) { return o.end == step; });
      }
      for (One& o : list) ++o.cached;
    }
  }
}

}  // namespace
}  // namespace shardline
