// Background traffic beside plans: none changes nothing, seeds decide everything, gathers wait for the
// slowest link and chains do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "planner/search/noise.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case prefill_case(const std::string& model, const std::string& system, long long tokens) {
  Case c = decode_case(model, system, 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.batch = prefill_batch({{0, tokens}});
  cut_layers(c, 4, has_dense(c.model) ? 1 : 0);
  return c;
}

// The machine of arXiv 2405.05329.
Case paper_case(long long tokens) {
  Case c = prefill_case("llama-7b", "a100-hf-eager", tokens);
  c.kernels.attention = AttentionKernel::eager;
  c.kernels.score_traffic = Bytes(26.4);
  return c;
}

TEST(Noise, H58APassBesideNothingIsTheQuietOne) {
  std::size_t count = 0;
  for (const std::string& model : std::vector<std::string>{"deepseek-r1", "llama-3.1-405b", "llama-7b"}) {
    for (const std::string& system : std::vector<std::string>{"h100-gtt", "a100-sxm"}) {
      Case c = prefill_case(model, system, 50'001);
      CostModel cost(c.system);
      PassScratch scratch(cost);
      Schedule schedule;
      SearchSpace space;
      space.duplicate_kv = true;
      space.options = {{&kPrefillChunk, {7'000}}};
      for (const Strategy* s : strategies()) {
        for (const int n : {1, 4, 12}) {
          std::vector<Plan> plans;
          s->enumerate(c, n, space, plans);
          for (const Plan& p : plans) {
            SCOPED_TRACE(system + " " + model + " " + to_string(p));
            lower(schedule, c, p);
            const PassTime quiet = simulate_pass(schedule, cost, scratch);
            const PassTime played =
                NoisyPass(schedule, cost).run(Background(), scratch.engine, scratch.timeline);
            EXPECT_NEAR(played.latency / quiet.latency, 1, 1e-12);
            // With chunks a stage has gaps; as one request is in flight, they do not matter.
            if (schedule.rounds == 1) {
              EXPECT_NEAR(played.busiest / quiet.busiest, 1, 1e-12);
            }
            ++count;
          }
        }
      }
    }
  }
  EXPECT_GT(count, 100u);
}

TEST(Noise, H58NoLoadIsQuietBitForBit) {
  const Case c = paper_case(8192);
  Evaluator e(c);
  for (const char* text : {"tsp:cp=8", "kv_runahead:cp=8", "tensor:tpa=8,tpf=8", "ring_pass_kv:cp=8"}) {
    const Plan p = parse_plan(text);
    NoiseSpec noise;
    noise.load = 0;
    const NoiseEffect effect = noise_effect(e, p, noise);
    EXPECT_EQ(effect.quiet, Evaluator(c).simulate(p));
    EXPECT_EQ(effect.times, std::vector<Seconds>(16, effect.quiet));
    EXPECT_EQ(effect.loss(), 0);
    EXPECT_EQ(effect.deviation, Seconds(0));
  }
}

TEST(Noise, H58SameBitsForAnyThreadsAndSeedsCountOn) {
  const Case c = paper_case(8192);
  const Plan p = parse_plan("kv_runahead:cp=8,partition=1700/1300/1100/1000/900/800/700/692");
  NoiseSpec noise;
  Evaluator e(c);
  const NoiseEffect one = noise_effect(e, p, noise, 1);
  for (const int threads : {1, 2, 5}) EXPECT_EQ(noise_effect(e, p, noise, threads).times, one.times);
  std::set<double> different;
  for (const Seconds t : one.times) different.insert(t.value);
  EXPECT_EQ(different.size(), one.times.size());
  noise.seed = 5;
  noise.seeds = 3;
  const NoiseEffect later = noise_effect(e, p, noise);
  EXPECT_EQ(later.times, std::vector<Seconds>(one.times.begin() + 4, one.times.begin() + 7));
}

TEST(Noise, H58MoreTrafficCostsMore) {
  const Case c = paper_case(8192);
  Evaluator e(c);
  for (const char* text : {"tsp:cp=8", "kv_runahead:cp=8", "tensor:tpa=8,tpf=8", "ulysses:cp=8"}) {
    SCOPED_TRACE(text);
    const Plan p = parse_plan(text);
    double before = 0;
    for (const double load : {0.1, 0.3, 0.6, 0.95}) {
      NoiseSpec noise;
      noise.load = load;
      const NoiseEffect effect = noise_effect(e, p, noise);
      EXPECT_GE(effect.least, effect.quiet);
      EXPECT_GE(effect.loss(), before);
      before = effect.loss();
      noise.flows = 3;
      EXPECT_GE(noise_effect(e, p, noise).loss(), before);
    }
    EXPECT_GT(before, 0);
  }
}

// One busy pair of eight GPUs halves the pace of every gather of TSP; the loss is the time of the gathers.
TEST(Noise, H58AGatherWaitsForItsSlowestLink) {
  const Case c = paper_case(16384);
  Evaluator e(c);
  const Plan p = parse_plan("tsp:cp=8");
  NoiseSpec noise;
  noise.load = 0.99;
  noise.burst = Seconds(1000);  // on throughout, but for one seed in a hundred
  noise.pairs = 1;
  noise.seeds = 4;
  const NoiseEffect effect = noise_effect(e, p, noise);
  double gathers = 0;
  for (const Op& op : e.schedule().ops) {
    if (op.kind == OpKind::all_gather)
      gathers += (e.cost().time(op) - e.cost().price(op).latency).value * c.model.layers();
  }
  ASSERT_GT(gathers, 0);
  EXPECT_NEAR((effect.mean - effect.quiet).value / gathers, 1, 1e-9);
  // Where a chain waits is decided by when its data is late.
  const NoiseEffect chain = noise_effect(e, parse_plan("kv_runahead:cp=8"), noise);
  EXPECT_LT(chain.mean - chain.quiet, (effect.mean - effect.quiet) * 0.5);
}

TEST(Noise, H58PairsAreNeighboursOfTheLinksThatWereAskedFor) {
  FabricSpec fabric;
  fabric.nodes = 2;
  fabric.gpus_per_node = 4;
  NoiseSpec noise;
  const auto resource = [](int gpu, RankResource r) {
    return static_cast<ResourceId>(gpu) * static_cast<ResourceId>(RankResource::count) +
           static_cast<ResourceId>(r);
  };
  noise.links = NoiseLinks::nvlink;
  const Background nvlink = background_of(noise, fabric, 8, 1);
  ASSERT_EQ(nvlink.sources().size(), 6u);  // not between the nodes
  EXPECT_EQ(nvlink.sources()[3].resources,
            (std::vector{resource(4, RankResource::nvlink), resource(5, RankResource::nvlink)}));
  noise.links = NoiseLinks::network;
  const Background network = background_of(noise, fabric, 8, 1);
  ASSERT_EQ(network.sources().size(), 4u);
  EXPECT_EQ(network.sources()[1].resources,
            (std::vector{resource(1, RankResource::network), resource(5, RankResource::network)}));
  noise.links = NoiseLinks::all;
  EXPECT_EQ(background_of(noise, fabric, 8, 1).sources().size(), 10u);
  EXPECT_EQ(background_of(noise, fabric, 1, 1).sources().size(), 0u);
  // Drawn anew for every seed, without repetition.
  noise.pairs = 3;
  std::set<std::vector<std::vector<ResourceId>>> draws;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<std::vector<ResourceId>> pairs;
    const Background drawn = background_of(noise, fabric, 8, seed);
    for (const BurstSource& s : drawn.sources()) pairs.push_back(s.resources);
    EXPECT_EQ(std::set(pairs.begin(), pairs.end()).size(), 3u);
    draws.insert(pairs);
  }
  EXPECT_GT(draws.size(), 40u);
  noise.pairs = 100;
  EXPECT_EQ(background_of(noise, fabric, 8, 1).sources().size(), 10u);
}

TEST(Noise, H58StatisticsOfTheSample) {
  const NoiseEffect e = noise_effect(Seconds(2), {Seconds(2), Seconds(3), Seconds(4)});
  EXPECT_DOUBLE_EQ(e.mean.value, 3);
  EXPECT_DOUBLE_EQ(e.deviation.value, 1);
  EXPECT_EQ(e.least, Seconds(2));
  EXPECT_EQ(e.most, Seconds(4));
  EXPECT_DOUBLE_EQ(e.loss(), 0.5);
  EXPECT_EQ(noise_effect(Seconds(2), {Seconds(3)}).deviation, Seconds(0));
}

TEST(Noise, H58MoreBurstsThanCanBePlayedAreRefused) {
  Case c = paper_case(16384);
  c.batch = prefill_batch({{0, 4'000'000}});
  Evaluator e(c);
  NoiseSpec noise;
  noise.burst = Seconds(1e-6);
  try {
    noise_effect(e, parse_plan("tsp:cp=8"), noise);
    FAIL() << "played";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("million bursts"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace shardline
