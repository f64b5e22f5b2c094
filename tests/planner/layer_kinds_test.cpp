// Layers with windows and chunks: pairs, rows and layouts against counting, and memory by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/layers/memory.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stages.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"
#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

const char* const kModels[] = {"gpt-oss-120b",  "gpt-oss-20b",      "gemma-3-27b",
                               "llama-4-scout", "llama-4-maverick", "mimo-v2-flash"};

Reach some_reach(std::mt19937_64& random, long long far) {
  Reach reach{static_cast<ReachKind>(draw(random, 0, kReachKinds - 1)), 0};
  if (reach.sized()) reach.tokens = draw(random, 1, far + 5);
  return reach;
}

CacheShare some_share(std::mt19937_64& random) {
  CacheShare share{1, 1, {1, 1}, 1, ValueUp::before};
  share.sharers.size = static_cast<int>(draw(random, 1, 6));
  share.block = static_cast<int>(draw(random, 1, 9));
  return share;
}

// [P1] in words.
bool holds(const CacheShare& share, int member, long long position) {
  return position / share.block % share.sharers.size == member;
}

TEST(LayerKinds, PairsAndTokensOfASharerAgreeWithCounting) {
  std::mt19937_64 random(21);
  long long local = 0, several = 0;
  for (int round = 0; round < 2000; ++round) {
    const CacheShare share = some_share(random);
    const Segment s{draw(random, 0, 150), draw(random, 1, 60)};
    const Reach reach = some_reach(random, 200);
    SCOPED_TRACE(testing::Message() << round << ": " << share.sharers.size << " sharers, blocks of "
                                    << share.block << ", " << s.cached << " + " << s.fresh << ", reach "
                                    << static_cast<int>(reach.kind) << " of " << reach.tokens);
    const long long first = draw(random, 0, s.length());
    Count pairs = 0, cached_pairs = 0, most = 0;
    for (int m = 0; m < share.sharers.size; ++m) {
      Count own = 0, own_cached = 0, tokens = 0;
      for (long long k = 0; k < s.length(); ++k) {
        if (!holds(share, m, k)) continue;
        tokens += k >= first;
        for (long long q = s.cached; q < s.length(); ++q) {
          own += sees(reach, q, k);
          own_cached += k < s.cached && sees(reach, q, k);
        }
      }
      ASSERT_EQ(tokens_on_member(share, m, first, s.length()), tokens);
      ASSERT_EQ(pairs_on_member(share, m, reach, s), own);
      ASSERT_EQ(cached_pairs_on_member(share, m, reach, s), own_cached);
      pairs += own;
      cached_pairs += own_cached;
      most = std::max(most, own);
    }
    ASSERT_EQ(pairs_of(reach, s), pairs);
    ASSERT_EQ(cached_pairs_of(reach, s), cached_pairs);
    ASSERT_EQ(on_fullest(share, reach, [&](int m) { return pairs_on_member(share, m, reach, s); }), most);
    local += reach.local();
    several += reach.local() && share.sharers.size > 1;
  }
  EXPECT_GT(local, 1000);
  EXPECT_GT(several, 800);
}

// What a layer keeps is what the new tokens see, themselves, and what any query up to them ever saw at once:
// no request that decodes on from there needs more than it keeps then.
TEST(LayerKinds, KeptTokensAreThoseThatAreSeen) {
  std::mt19937_64 random(22);
  for (int round = 0; round < 3000; ++round) {
    const Segment s{draw(random, 0, 150), draw(random, 1, 60)};
    const Reach reach = some_reach(random, 200);
    long long first = s.cached;
    while (first > 0 && sees(reach, s.cached, first - 1)) --first;
    long long fullest = 0;
    for (long long q = 0; q < s.length(); ++q) {
      long long seen = 0;
      for (long long k = 0; k <= q; ++k) seen += sees(reach, q, k);
      fullest = std::max(fullest, seen);
    }
    ASSERT_EQ(first_seen(reach, s), first);
    ASSERT_EQ(kept_tokens(reach, s), std::max(s.length() - first, fullest));
    for (long long next = 0; next < 70; ++next) {
      const Segment decoding{s.length() + next, 1};
      ASSERT_LE(decoding.length() - first_seen(reach, decoding), kept_tokens(reach, decoding));
    }
  }
}

// As many rows of memory as the fullest sharer ever needs while a request grows, and no more.
TEST(LayerKinds, KeptTokensOnTheFullestAreTheMostThatASharerEverNeeds) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 300; ++round) {
    const CacheShare share = some_share(random);
    const Reach reach = some_reach(random, 80);
    long long most = 0;
    for (long long length = 1; length < 250; ++length) {
      const Segment s{length - 1, 1};
      for (int m = 0; m < share.sharers.size; ++m)
        most = std::max(most, tokens_on_member(share, m, first_seen(reach, s), length));
      ASSERT_EQ(tokens_on_fullest(share, kept_tokens(reach, s)), most) << round << " at " << length;
    }
  }
}

// Keys of a rank that are no padding, in any order.
std::multiset<std::pair<std::int32_t, long long>> real_keys(const Tokens& keys) {
  std::multiset<std::pair<std::int32_t, long long>> real;
  for (const auto& key : one_by_one(keys)) {
    if (key.first != kPadding) real.insert(key);
  }
  return real;
}

PrefillLayout some_layout(std::mt19937_64& random) {
  const auto ranks = static_cast<int>(draw(random, 1, 5)), count = static_cast<int>(draw(random, 1, 3));
  PrefillLayout layout;
  Placement before(ranks, count);
  for (int i = 0; i < count; ++i) {
    // Turns before: a prefill, an answer, both or neither.
    if (draw(random, 0, 2) > 0) before.prefill(i, draw(random, 1, 150));
    if (draw(random, 0, 2) > 0) before.decode(i, draw(random, 1, 60));
    layout.requests.push_back({before.length(i), draw(random, 1, 70)});
  }
  const bool striped = draw(random, 0, 1) == 1;
  layout.dealt =
      dealt_layout(layout.requests, ranks, &before, [&](Placement& to, int request, long long fresh) {
        striped ? to.stripe(request, fresh) : to.prefill(request, fresh);
      });
  for (int i = 0; draw(random, 0, 1) == 1 && i < count; ++i) layout.names.push_back(7 + 2 * i);
  if (static_cast<int>(layout.names.size()) != count) layout.names.clear();
  return layout;
}

TEST(LayerKinds, ALayoutWithinReachHasTheSamePairsAndNoMoreKeys) {
  std::mt19937_64 random(24);
  long long dropped = 0, named = 0;
  for (int round = 0; round < 1500; ++round) {
    const PrefillLayout layout = some_layout(random);
    const Reach reach = some_reach(random, 150);
    const ContextLayout whole = layout.within({}), local = layout.within(reach);
    const auto name = [&](int request) {
      return layout.names.empty() ? request : layout.names[static_cast<std::size_t>(request)];
    };
    ASSERT_EQ(local.fresh, whole.fresh);
    ASSERT_EQ(local.queries, whole.queries);
    ASSERT_EQ(local.fresh_count, whole.fresh_count);
    for (int k = 0; k < whole.ranks; ++k) {
      const auto rank = static_cast<std::size_t>(k);
      for (const Tokens& queries : whole.fresh) {
        ASSERT_EQ(causal_pairs(queries, local.keys[rank], reach),
                  causal_pairs(queries, whole.keys[rank], reach))
            << round;
      }
      auto wanted = real_keys(whole.keys[rank]);
      for (int b = 0; b < whole.requests; ++b) {
        const long long first = first_seen(reach, layout.requests[static_cast<std::size_t>(b)]);
        dropped += static_cast<long long>(std::erase_if(
            wanted, [&](const auto& key) { return key.first == name(b) && key.second < first; }));
        const auto cached = static_cast<std::size_t>(k * whole.requests + b);
        ASSERT_EQ(
            local.cached_count[cached], std::count_if(wanted.begin(), wanted.end(), [&](const auto& key) {
              return key.first == name(b) && key.second < layout.requests[static_cast<std::size_t>(b)].cached;
            }));
      }
      ASSERT_EQ(real_keys(local.keys[rank]), wanted) << round;
      ASSERT_EQ(rows(local.keys[rank]), local.key_message);
    }
    ASSERT_LE(local.key_message, whole.key_message);
    named += !layout.names.empty();
  }
  EXPECT_GT(dropped, 1000);
  EXPECT_GT(named, 100);
}

// However the tokens of a step are dealt out and cut, each layer's ranks have its pairs together.
TEST(LayerKinds, RoundsAndMixedStepsHaveAllPairs) {
  const Segment long_one{3'000, 517}, whole{0, 260, 2};
  for (const char* model : {"gpt-oss-120b", "llama-4-maverick"}) {
    Case c = decode_case(model, "gb200-nvl72", 100);
    if (model == std::string("llama-4-maverick")) {
      for (Attention& a : c.model.attentions) a.reach.tokens = a.reach.local() ? 256 : 0;
    }
    const auto pairs_in = [&](const PrefillLayout& layout, const Reach& reach) {
      const ContextLayout l = layout.within(reach);
      Count pairs = 0;
      for (const Tokens& queries : l.fresh) {
        for (const Tokens& keys : l.keys) pairs += causal_pairs(queries, keys, reach);
      }
      return pairs;
    };
    for (const Attention& a : c.model.attentions) {
      const Count all = 2 * (pairs_of(a.reach, long_one) + 2 * pairs_of(a.reach, whole));
      c.batch = prefill_batch({long_one, whole});
      for (const char* plan : {"tensor:tpa=4,tpf=4,batch=2,prefill_chunk=100",
                               "allgather_kv:cp=3,tpa=1,tpf=1,batch=2,prefill_chunk=100",
                               "allgather_kv:cp=4,tpa=2,tpf=2,batch=2,prefill_chunk=256"}) {
        const Plan p = parse_plan(plan);
        ASSERT_EQ(check_plan(c, p).value_or(""), "") << plan;
        ChunkLayouts chunks(c, p);
        EXPECT_GE(chunks.count(), 3u);
        std::size_t rounds = 0;
        Count pairs = 0;
        for (; const auto round = chunks.next(); ++rounds) pairs += pairs_in(*round, a.reach);
        EXPECT_EQ(rounds, chunks.count()) << plan;
        EXPECT_EQ(pairs, all) << plan;
      }
      EXPECT_EQ(pairs_in(step_layout(c, parse_plan("allgather_kv:cp=4,tpa=2,tpf=2,batch=2")), a.reach), all);
      c.batch.decode = {{99, 1, 3}};
      const PrefillLayout mixed = step_layout(c, parse_plan("tensor:tpa=4,tpf=4,batch=2"));
      EXPECT_EQ(mixed.names, (std::vector<std::int32_t>{6, 7, 8, 9, 10, 11}));
      EXPECT_EQ(pairs_in(mixed, a.reach), all);
    }
  }
}

// Layer by layer, as Model::runs is read.
TEST(LayerKinds, StagesHoldTheLayersOneByOne) {
  int handing = 0;
  std::vector<const char*> models(std::begin(kModels), std::end(kModels));
  models.push_back("glm-5.2");
  for (const char* name : models) {
    const Case c = decode_case(name, "gb200-nvl72", 100);
    const Model& m = c.model;
    std::vector<std::pair<int, int>> layers;
    for (const LayerRun& run : m.runs) layers.insert(layers.end(), run.count, {run.attention, run.ffn});
    for (int stages = 1; stages <= m.layers(); ++stages) {
      std::vector<StageLayers> out;
      stage_layers(c, stages, out);
      std::size_t at = 0;
      int stage = 0;
      for (const StageLayers& s : out) {
        for (int copy = 0; copy < s.copies; ++copy, ++stage) {
          std::map<std::pair<int, int>, int> want, have;
          const std::size_t end = at + layers.size() / stages + (stage < m.layers() % stages ? 1 : 0);
          const std::size_t begin = at;
          for (; at < end; ++at) ++want[layers[at]];
          const auto takes = [&](std::size_t layer) {
            const auto& index = m.attentions[static_cast<std::size_t>(layers[layer].first)].index;
            return index && index->shared;
          };
          ASSERT_EQ(s.takes_choice, stage > 0 && takes(begin)) << name << " stage " << stage;
          ASSERT_EQ(s.hands_choice, stage < stages - 1 && takes(end)) << name << " stage " << stage;
          handing += s.hands_choice;
          for (const LayerRun& run : s.kinds) have[{run.attention, run.ffn}] += run.count;
          ASSERT_EQ(have, want) << name << " stage " << stage << " of " << stages;
          ASSERT_EQ(s.kinds.size(), want.size());
          ASSERT_EQ(s.first, stage == 0);
          ASSERT_EQ(s.last, stage == stages - 1);
        }
      }
      ASSERT_EQ(stage, stages);
      ASSERT_EQ(at, layers.size());
      ASSERT_EQ(hands_choices(c, stages),
                std::any_of(out.begin(), out.end(), [](const StageLayers& s) { return s.hands_choice; }));
    }
  }
  EXPECT_GT(handing, 1000);  // of GLM-5.2
}

// The fullest stage, its layers counted one by one.
TEST(LayerKinds, MemoryIsThatOfTheLayersOfAStage) {
  for (const char* name : kModels) {
    const Case c = decode_case(name, "gb200-nvl72", 50'000);
    const Model& m = c.model;
    std::vector<LayerRun> layers;
    for (const LayerRun& run : m.runs)
      layers.insert(layers.end(), static_cast<std::size_t>(run.count), {run.attention, run.ffn, 1});
    const auto stored = [&](Module module, double elements) {
      return elements * bytes_per_element(c.precision.of(module).weights);
    };
    for (const int stages : {1, 2, 5, 7}) {
      Plan p = parse_plan("pipeline:pp=2,tpa=4,tpf=4,batch=3");
      p.strategy = strategy_id(stages == 1 ? "tensor" : "pipeline");
      p.pp = p.in_flight = stages;
      ASSERT_EQ(check_plan(c, p).value_or(""), "") << to_string(p);
      double weights = 0, kv = 0;
      std::size_t at = 0;
      for (int s = 0; s < stages; ++s) {
        double own = 0, own_kv = 0;
        const int tables = (s == 0) + (s == stages - 1 && !(s == 0 && m.tied_embeddings));
        own += stored(Module::head, tables * std::ceil(m.vocab / 4.0) * m.hidden);
        const std::size_t end =
            at + static_cast<std::size_t>(m.layers() / stages + (s < m.layers() % stages));
        for (; at < end; ++at) {
          const Attention& a = m.attentions[static_cast<std::size_t>(layers[at].attention)];
          const FfnWeights f = ffn_weights(c, m.ffns[static_cast<std::size_t>(layers[at].ffn)], p);
          const AttentionWeights w = attention_weights(c, a, p);
          own += stored(Module::attention, w.projections) + stored(Module::out_proj, w.out_proj) +
                 stored(Module::dense_ffn, f.dense) + stored(Module::experts, f.experts) +
                 stored(Module::shared_experts, f.shared) + stored(Module::router, f.router);
          const long long kept = a.reach.local() ? std::min<long long>(50'000, a.reach.tokens) : 50'000;
          own_kv += 3.0 * stages * static_cast<double>(kept) * (a.kv_heads / 4.0) *
                    (key_width(a) + value_width(a)) * bytes_per_element(c.precision.kv);
        }
        if (own + own_kv > weights + kv) {
          weights = own;
          kv = own_kv;
        }
      }
      const MemoryUse use = memory_use(c, p);
      EXPECT_NEAR(use.weights.value / weights, 1, 1e-12) << to_string(p);
      EXPECT_NEAR(use.kv.value / kv, 1, 1e-12) << to_string(p);
    }
  }
}

struct KvRow {
  const char *model, *plan;
  Batch batch;
  double elements;  // of the cache on one GPU
};

TEST(LayerKinds, CachesByHand) {
  const Batch decode = decode_batch(100'000), prefill = prefill_batch({{50'000, 4'096}});
  // gpt-oss: 18 layers of each kind; keys and values of 8 heads of 64, one on each of 8 ranks: 128 numbers.
  // Maverick: 36 chunked layers and 12 full ones; 8 heads of 128: 256 numbers.
  for (const KvRow& row : std::vector<KvRow>{
           {"gpt-oss-120b", "tensor:tpa=8,tpf=8,batch=3", decode, 3 * 128. * 18 * (100'000 + 128)},
           {"gpt-oss-120b", "tensor:tpa=8,tpf=8,batch=1", decode_batch(100), 128. * 36 * 100},
           // Of 1562 rounds of 64 tokens and 32 more the first of 4 has 16 each; of the window 2 rounds' 16.
           {"gpt-oss-120b", "helix:kvp=4,tpa=8,tpf=32,batch=1", decode, 128. * 18 * (1562 * 16 + 16 + 32)},
           // The new tokens and the 127 before the first of them.
           {"gpt-oss-120b", "tensor:tpa=8,tpf=8,batch=1", prefill, 128. * 18 * (54'096 + 4'096 + 127)},
           // Halves of a full cache; of a window what one rank may hold of it: all.
           {"gpt-oss-120b", "allgather_kv:cp=2,tpa=8,tpf=8,batch=1", prefill,
            128. * 18 * (27'048 + 4'096 + 127)},
           {"gpt-oss-120b", "allgather_kv:cp=16,tpa=4,tpf=4,batch=1", prefill, 2 * 128. * 36 * 3'381},
           {"llama-4-maverick", "tensor:tpa=8,tpf=8,batch=2", decode, 2 * 256. * (12 * 100'000 + 36 * 8'192)},
           {"llama-4-maverick", "tensor:tpa=8,tpf=8,batch=1", decode_batch(5'000), 256. * 48 * 5'000},
           // Chunks begin at 49,152: new tokens see 848 cached ones, and 4,944 rows are less than a chunk
           // was.
           {"llama-4-maverick", "tensor:tpa=8,tpf=8,batch=1", prefill, 256. * (12 * 54'096 + 36 * 8'192)},
           // Behind 8,000 cached tokens of the first chunk 1,000 new ones see all.
           {"llama-4-maverick", "tensor:tpa=8,tpf=8,batch=1", prefill_batch({{8'000, 1'000}}),
            256. * 48 * 9'000},
       }) {
    Case c = decode_case(row.model, "gb200-nvl72", 100);
    c.batch = row.batch;
    const Plan p = parse_plan(row.plan);
    ASSERT_EQ(check_plan(c, p).value_or(""), "") << row.plan;
    EXPECT_DOUBLE_EQ(memory_use(c, p).kv.value, row.elements * bytes_per_element(c.precision.kv))
        << row.model << " " << row.plan;
  }
}

}  // namespace
}  // namespace shardline
