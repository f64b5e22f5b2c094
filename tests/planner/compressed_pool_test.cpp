// vLLM's pool of caches under compressed attention [P34]: by hand, and against its groups of layers made as
// the engine makes them, of requests whose blocks are listed one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "models/model/cache.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/cache_pools.hpp"

namespace shardline {
namespace {

Case answers(const char* model, long long length) {
  Case c = served("vllm", model, length - 100, 100);
  c.disaggregated = true;  // nobody's prompts are under way
  c.precision.kv = Dtype::fp8;
  return c;
}

// 43 layers, of which 21 have rows of 4 tokens with an index, 20 rows of 128, and all a window. A tuple is a
// page of 64 rows of 584 bytes, one of 64 keys of 132, and one of two rows, in multiples of 576: 37,440 +
// 8,640 + 1,728 bytes. Groups of 22 tuples waste 1 + 1 + 1 + 2 of them, of 21 20: blocks are of 22, and the
// windows take two groups. A request of 102,400 tokens has 400 blocks of rows, three of either group of
// windows (128 tokens in pages of 64, begun inside one), three of the 8 tokens that rows of 4 are made of, in
// pages of 4, and 17 of the 128 tokens of the others, in pages of 8.
TEST(CompressedPool, P34AsVllmDealsItOut) {
  const Case c = answers("deepseek-v4-flash", 102'400);
  EXPECT_DOUBLE_EQ(memory_use(c, tensor(1, 1)).kv.value, 22.0 * 47'808 * (400 + 2 * 3 + 3 + 17));
  EXPECT_DOUBLE_EQ(memory_use(c, tensor(4, 7)).kv.value, 7 * 22.0 * 47'808 * (400 + 2 * 3 + 3 + 17))
      << "every rank of a TP group has all of it";
}

// What 8,192 tokens of a step's prompts take beside it, until the step has ended.
TEST(CompressedPool, P34AStepOfPromptsIsKeptBesideIt) {
  Case c = answers("deepseek-v4-flash", 102'400);
  const double alone = memory_use(c, tensor(1, 1)).kv.value;
  c.disaggregated = false;
  const auto budget = prompt_budget(*c.engine, c.system.device, tensor(1, 1));
  ASSERT_EQ(budget, 8192);
  EXPECT_DOUBLE_EQ(memory_use(c, tensor(1, 1)).kv.value - alone,
                   22.0 * 47'808 * (2 * 8192 / 64 + 8192 / 4 + 8192 / 8));
}

// ---- the engine's own way

struct Layer {
  long long page_bytes = 0, page_tokens = 0, window = 0;  // window 0: all tokens
};

long long up_to(long long x, long long of) { return (x + of - 1) / of * of; }

// Every cache that a layer registers.
std::vector<Layer> caches(const Model& m) {
  std::vector<Layer> out;
  for (const LayerRun& run : m.runs) {
    const Attention& a = m.attentions[static_cast<std::size_t>(run.attention)];
    for (int i = 0; i < run.count; ++i) {
      out.push_back({up_to(64 * 584, 576), 64, 128});
      if (a.compression->ratio == 4) {
        out.push_back({up_to(64 * 584, 576), 256, 0});
        out.push_back({up_to(64 * 132, 576), 256, 0});
        out.push_back({up_to(4 * 2 * 2 * 512 * 4, 576), 4, 8});
        out.push_back({up_to(4 * 2 * 2 * 128 * 4, 576), 4, 8});
      } else if (a.compression->ratio == 128) {
        out.push_back({up_to(2 * 584, 576), 256, 0});
        out.push_back({up_to(8 * 2 * 512 * 4, 576), 8, 128});
      }
    }
  }
  return out;
}

// Tuples of a list of layers: as many as the commonest size of page has.
long long tuples(const std::vector<Layer>& layers) {
  std::map<long long, long long> of_size;
  for (const Layer& l : layers) ++of_size[l.page_bytes];
  long long most = 0;
  for (const auto& [size, count] : of_size) most = std::max(most, count);
  return most;
}

double dealt_out(const Model& m, int requests, long long length) {
  std::vector<Layer> full;
  std::map<std::pair<long long, long long>, std::vector<Layer>> windows;
  for (const Layer& l : caches(m)) (l.window == 0 ? full : windows[{l.page_tokens, l.window}]).push_back(l);
  std::vector<long long> counts{tuples(full)};
  for (const auto& [key, layers] : windows) counts.push_back(tuples(layers));
  long long best = 0, fewest = -1;
  for (long long d = counts.front(); d <= *std::max_element(counts.begin(), counts.end()); ++d) {
    long long padded = 0;
    for (const long long n : counts) padded += up_to(n, d) - n;
    if (fewest < 0 || padded <= fewest) {
      fewest = padded;
      best = d;
    }
  }
  std::set<long long> sizes;
  for (const Layer& l : full) sizes.insert(l.page_bytes);
  long long tuple = 0;
  for (const long long s : sizes) tuple += s;
  // Blocks of a request: those of a window from the one on that its next query's first key lies in, wherever
  // the window begins.
  long long blocks = 0;
  for (int r = 0; r < requests; ++r) {
    blocks += up_to(length, 256) / 256;
    for (const auto& [key, layers] : windows) {
      const auto [page, window] = key;
      long long most = 0;
      for (long long at = std::max(1LL, length - page); at <= length; ++at) {
        std::set<long long> held;
        for (long long t = std::max(0LL, at - window); t < at; ++t) held.insert(t / page);
        most = std::max(most, static_cast<long long>(held.size()));
      }
      blocks += up_to(tuples(layers), best) / best * most;
    }
  }
  return static_cast<double>(best * tuple * blocks);
}

TEST(CompressedPool, P34AsItsGroupsOfLayersTakeBlocks) {
  for (const char* model : {"deepseek-v4-flash", "deepseek-v4-pro"}) {
    for (const long long length : {300LL, 5'000LL, 70'001LL, 1'000'000LL}) {
      for (const int batch : {1, 5}) {
        const Case c = answers(model, length);
        EXPECT_DOUBLE_EQ(memory_use(c, tensor(1, batch)).kv.value, dealt_out(c.model, batch, length))
            << model << " " << length << " " << batch;
      }
    }
  }
}

TEST(CompressedPool, P34MoreRequestsTakeNoLess) {
  for (const bool pair : {false, true}) {
    Case c = served("vllm", "deepseek-v4-flash", 3'001, 777);
    c.disaggregated = pair;
    Bytes last;
    for (int batch = 1; batch <= 1200; batch += batch < 300 ? 1 : 7) {
      const Bytes kv = memory_use(c, tensor(1, batch)).kv;
      EXPECT_GT(kv, last) << batch;
      last = kv;
    }
  }
}

// 78 layers of GLM-5.2, of which 21 choose: rows of 656 bytes in all, keys of 132 in those that choose, and
// under SGLang in all.
TEST(IndexPools, P3SglangHasRoomForKeysInAllLayers) {
  for (const auto& [engine, layers] : {std::pair{"sglang", 78}, {"vllm", 21}}) {
    Case c = served(engine, "glm-5.2", 100'000, 1'000);
    c.disaggregated = true;
    c.precision.kv = Dtype::fp8;
    EXPECT_DOUBLE_EQ(memory_use(c, tensor(1, 1)).kv.value, 101'000.0 * (78 * 656 + layers * 132)) << engine;
  }
}

}  // namespace
}  // namespace shardline
