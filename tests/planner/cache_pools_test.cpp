// Pools of caches as engines lay them out [P3] [P30], against their own allocation played request by request:
// what is priced is what the engine takes, and what its launch files say makes it so.
#include "planner/engines/cache_pools.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "models/model/cache.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/cache_sizes.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/cache_pools.hpp"
#include "tests/planner/support.hpp"
#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

const char* const kWindowed[] = {"gpt-oss-120b", "llama-4-scout", "mimo-v2-flash", "gemma-4-31b"};
const char* const kHybrid[] = {"qwen3.5-397b-a17b", "nemotron-3-super-120b-a12b"};

// The kinds of attention of all layers, in order.
std::vector<int> kinds_of(const Model& m) {
  std::vector<int> out;
  for (const LayerRun& run : m.runs)
    out.insert(out.end(), static_cast<std::size_t>(run.count), run.attention);
  return out;
}

const Attention& kind(const Model& m, int i) { return m.attentions[static_cast<std::size_t>(i)]; }

// --- SGLang, windows -------------------------------------------------------------------------------------

// Most tokens of the windows' pool that one request holds while it is answered: nodes of its prompt, one for
// each of the pieces, from the last one until they are as long as a window, and what decoding has added
// behind the prompt, of which what is out of the window and a page is dropped every 128 steps, in pages.
long long most_held(const std::vector<long long>& pieces, long long answer, long long window, long long page,
                    long long phase) {
  long long locked = 0, prompt = 0, most = 0;
  for (const long long piece : pieces) prompt += piece;
  for (std::size_t i = pieces.size(); i-- > 0 && locked < window;) locked += pieces[i];
  long long dropped = prompt;  // what the prefix cache holds is not the request's to drop
  for (long long length = prompt + 1; length <= prompt + answer; ++length) {
    if ((length + phase) % 128 == 0) dropped = std::max(dropped, (length - 1 - window - page) / page * page);
    most = std::max(most, locked + length - dropped);
  }
  return most;
}

// Pieces of a prompt that shares its first step with others.
std::vector<long long> cut(long long prompt, long long first, long long chunk) {
  std::vector<long long> out{std::min(prompt, first)};
  for (long long done = out[0]; done < prompt; done += out.back())
    out.push_back(std::min(chunk, prompt - done));
  return out;
}

// The priced pools hold whatever requests do, and some request needs all that is priced of it.
TEST(CachePools, P3SglangsWindowsAreHeldByThePrefixCache) {
  std::mt19937_64 random(5);
  for (const long long page : {1LL, 64LL}) {
    double nearest = 0;
    for (int round = 0; round < 60; ++round) {
      const long long prompt = draw(random, 200, 40'000), answer = draw(random, 300, 3000);
      const Case c = served("sglang", "gpt-oss-120b", prompt, answer);
      const Plan p = tensor(1, 1);
      const long long chunk = prompt_budget(*c.engine, c.system.device, p);
      ASSERT_GT(window_thousandths(c, p), 0);
      // A request of an endless server: less what is under way, which is capped for one request alone.
      const Plan many = tensor(1, 400);
      const double all = static_cast<double>(prompt + answer);
      const int part = window_thousandths(c, many);
      const double under_way = 2.0 * static_cast<double>(chunk),
                   each = part == 1000 ? all : (part / 1000.0 * 400 * all - under_way) / 400;
      for (int i = 0; i < 20; ++i) {
        const long long first = i == 0 ? std::max(1LL, (prompt - 127) % chunk) : draw(random, 1, chunk);
        const long long held = most_held(cut(prompt, first, chunk), answer, 128, page, draw(random, 0, 127));
        EXPECT_LE(held, each + 1) << prompt << " in pieces, the first of " << first << ", and " << answer;
        nearest = std::max(nearest, static_cast<double>(held) / each);
      }
    }
    EXPECT_GT(nearest, 0.97) << "nothing comes near what is priced";
  }
}

// pool_configurator.py, HybridSWAPoolConfigurator: of the memory that is priced, with the part that the
// launch file names, both pools have room for what is priced.
TEST(CachePools, P3SglangsPartServesWhatIsPriced) {
  for (const char* model : kWindowed) {
    for (const long long input : {500LL, 5'000LL, 60'000LL}) {
      for (const int batch : {1, 3, 40}) {
        const Case c = served("sglang", model, input, 1000);
        const Plan p = tensor(4, batch);
        SCOPED_TRACE(fmt::format("{}: {} of {}", model, batch, input));
        double full = 0, windows = 0;
        for (const int i : kinds_of(c.model)) {
          const Attention& a = kind(c.model, i);
          (a.reach.local() ? windows : full) += kv_bytes_per_token(c, a, p);
        }
        const double part = window_thousandths(c, p) / 1000.0;
        ASSERT_GT(part, 0);
        ASSERT_LE(part, 1);
        const double tokens = std::floor(memory_use(c, p).kv.value / (full + part * windows) + 1e-6);
        const double all = batch * static_cast<double>(input + 1000);
        EXPECT_GE(tokens, all);
        // Each request's window at least, and the prompt's pieces; two steps' prompts beside them, where
        // there are as many tokens at all.
        double seen = 0;
        for (const Attention& a : c.model.attentions)
          if (a.reach.local()) seen = std::max(seen, static_cast<double>(kept_tokens(a.reach, input + 1000)));
        const double steps = 2.0 * static_cast<double>(prompt_budget(*c.engine, c.system.device, p));
        EXPECT_GE(std::floor(tokens * part), std::min(batch * seen + steps, all) - 1);
        // And is no larger than that asks for: all of it in both pools is the most.
        EXPECT_LE(memory_use(c, p).kv.value, all * (full + windows) * (1 + 1e-9));
      }
    }
  }
}

// The example of the review: all layers of Gemma 3 keep all tokens.
TEST(CachePools, P3SglangAndTensorRtLlmKeepGemma3Whole) {
  for (const char* name : {"sglang", "trtllm"}) {
    const Case c = served(name, "gemma-3-27b", 30'720, 2'048);
    double token = 0;
    for (const int i : kinds_of(c.model)) token += kv_bytes_per_token(c, kind(c.model, i), tensor(1, 1));
    EXPECT_EQ(memory_use(c, tensor(1, 5)).kv, Bytes(5 * 32'768 * token)) << name;
    EXPECT_EQ(window_thousandths(c, tensor(1, 5)), 0) << name;
  }
  // 62 layers of 16 heads of a key and a value of 128 numbers of two bytes each, in five requests: 83 GB.
  Case c = served("sglang", "gemma-3-27b", 30'720, 2'048);
  c.precision = all_bf16();
  EXPECT_EQ(memory_use(c, tensor(1, 5)).kv, Bytes(5.0 * 32'768 * 62 * 16 * 2 * 128 * 2));
  // Bare kernels keep what is seen.
  c.engine = nullptr;
  EXPECT_EQ(memory_use(c, tensor(1, 1)).kv, Bytes((32'768.0 * 10 + 1024 * 52) * 16 * 2 * 128 * 2));
}

// Servers that answer alone have no prefix cache, and a pool of windows by their requests
// (SWAChunkCapPoolConfigurator): window, 128 steps, and two pages of 64; two more windows of each request
// whose cache is on its way, of up to 32.
TEST(CachePools, P3SglangsAnswersAloneHaveWindowsByRequests) {
  Case c = served("sglang", "gpt-oss-120b", 8'000, 1'000);
  c.disaggregated = true;
  for (const int batch : {8, 40}) {
    const Plan p = tensor(1, batch);
    EXPECT_EQ(window_thousandths(c, p), 0);
    const double token = kv_bytes_per_token(c, kind(c.model, 0), p);
    const double windows = batch * (128.0 + 256) + 2 * std::min(batch, 32) * (128.0 + 64);
    EXPECT_EQ(memory_use(c, p).kv, Bytes(18 * token * (windows + batch * 9'000.0)));
  }
}

// Searches bisect: more requests never take less memory, whatever is rounded.
TEST(CachePools, P3MoreRequestsTakeNoLess) {
  for (const char* name : {"sglang", "vllm", "trtllm"}) {
    for (const char* model : {"gpt-oss-120b", "mimo-v2-flash", "qwen3.5-397b-a17b"}) {
      for (const bool pair : {false, true}) {
        Case c = served(name, model, 3'001, 777);
        c.disaggregated = pair;
        Bytes last;
        for (int batch = 1; batch <= 1200; batch += batch < 300 ? 1 : 7) {
          const Bytes kv = memory_use(c, tensor(1, batch)).kv;
          EXPECT_GE(kv, last) << name << " " << model << " " << batch << (pair ? " alone" : "");
          last = kv;
        }
      }
    }
  }
}

// --- vLLM ------------------------------------------------------------------------------------------------

struct VllmLayer {
  bool state = false;
  double token = 0;  // bytes; of a state, all of it
  long long window = 0, chunk = 0;
  auto key() const { return std::tuple(state, token, window, chunk); }
};

// v1/core/kv_cache_utils.py in a few loops: one size of page, layers dealt to groups, a table of pages per
// request and group, one pool that all tables take from.
double vllm_pool(const std::vector<VllmLayer>& layers, int requests, long long length) {
  double state = 0, page = 0;
  for (const VllmLayer& l : layers)
    if (l.state) state = std::max(state, l.token);
  for (const VllmLayer& l : layers) {
    if (l.state) continue;
    long long block = 16;
    while (static_cast<double>(block) * l.token < state) block += 16;
    page = std::max(page, static_cast<double>(block) * l.token);
  }
  std::map<decltype(VllmLayer().key()), int> counts;
  for (const VllmLayer& l : layers) ++counts[l.key()];
  int least = 1 << 30, most = 0, longest = 0;
  for (const auto& [key, n] : counts) {
    least = std::min(least, n);
    most = std::max(most, n);
  }
  const int size = most < 1.5 * least ? most : least;
  double pages = 0;
  for (const auto& [key, n] : counts) {
    const auto& [is_state, token, window, chunk] = key;
    const int groups = (n + size - 1) / size;
    for (int g = 0; g < groups; ++g) {
      int in_group = 0;
      for (int i = g; i < n; i += groups) ++in_group;
      longest = std::max(longest, in_group);
      std::set<long long> held;
      const auto block = static_cast<long long>(page / token) / 16 * 16;
      long long first = 0;
      if (window > 0) first = std::max(0LL, length - window);
      if (chunk > 0) first = (length - 1) / chunk * chunk;
      for (long long t = first; !is_state && t < length; ++t) held.insert(t / block);
      pages += requests * (is_state ? 1.0 : static_cast<double>(held.size()));
    }
  }
  return page * longest * pages;
}

std::vector<VllmLayer> vllm_layers(const Case& c, const Plan& p) {
  std::vector<VllmLayer> out;
  for (const int i : kinds_of(c.model)) {
    const Attention& a = kind(c.model, i);
    if (a.none()) continue;
    VllmLayer l{a.recurrent(), a.recurrent() ? rank_state_bytes(a, p).value : kv_bytes_per_token(c, a, p)};
    if (a.reach.kind == ReachKind::window) l.window = a.reach.tokens;
    if (a.reach.kind == ReachKind::chunk) l.chunk = a.reach.tokens;
    out.push_back(l);
  }
  return out;
}

// States: exactly as the pool is dealt out.
TEST(CachePools, P30VllmsStatesArePagesOfTheCache) {
  for (const char* model : kHybrid) {
    for (const int tpa : {1, 2, 4}) {
      for (const long long length : {300LL, 4'500LL, 70'001LL}) {
        Case c = served("vllm", model, length - 100, 100);
        c.precision = all_bf16();
        const Plan p = tensor(tpa, 7);
        EXPECT_DOUBLE_EQ(memory_use(c, p).kv.value, vllm_pool(vllm_layers(c, p), 7, length))
            << model << " " << tpa << " " << length;
        Case bare = c;
        bare.engine = nullptr;
        EXPECT_GT(memory_use(c, p).kv, memory_use(bare, p).kv) << "padding is never free";
      }
    }
  }
}

// Windows: as the pool is dealt out, up to the block that a window begins in, and a step's prompts beside it.
TEST(CachePools, P3VllmsWindowsAreGroupsOfLayers) {
  for (const char* model : {"gpt-oss-120b", "gemma-3-27b", "llama-4-scout", "mimo-v2-flash", "gemma-4-31b"}) {
    for (const int tpa : {1, 4}) {
      Case c = served("vllm", model, 40'000, 1'000);
      c.precision = all_bf16();
      c.disaggregated = true;  // nobody's prompts are under way
      const Plan p = tensor(tpa, 7);
      const double dealt = vllm_pool(vllm_layers(c, p), 7, 41'000), priced = memory_use(c, p).kv.value;
      EXPECT_GE(priced, dealt) << model << " " << tpa;
      // A block more in each request and group.
      double token = 0;
      for (const VllmLayer& l : vllm_layers(c, p)) token += l.window + l.chunk > 0 ? l.token : 0;
      EXPECT_LE(priced, dealt + 1.2 * 7 * 64 * token +
                            (std::string(model).starts_with("llama") ? 7 * 8192 * token : 0))
          << model << " " << tpa;
      c.disaggregated = false;
      const double budget = static_cast<double>(prompt_budget(*c.engine, c.system.device, p));
      EXPECT_GE(memory_use(c, p).kv.value, priced + 0.9 * budget * token)
          << model << " " << tpa << ": a step's prompts are kept in all of these layers";
    }
  }
}

// 10 layers are full and 52 are not: groups of 10, of which the last six hold 52 and 8 that are nothing.
TEST(CachePools, P3VllmsGroupsOfGemma3WasteEightLayers) {
  Case c = served("vllm", "gemma-3-27b", 30'000, 1'000);
  c.disaggregated = true;
  const Plan p = tensor(1, 1);
  const double token = kv_bytes_per_token(c, kind(c.model, 0), p);
  EXPECT_DOUBLE_EQ(memory_use(c, p).kv.value, token * 16 * 10 * (std::ceil(31'000 / 16.0) + 6 * 65));
}

// --- SGLang, states ----------------------------------------------------------------------------------------

// model_runner_kv_cache_mixin.py, handle_max_mamba_cache and _resolve_max_num_reqs, of the memory that is
// priced: as many requests start as the plan has, and one place less starts fewer.
TEST(CachePools, P30SglangsPlacesServeThePlan) {
  for (const char* model : kHybrid) {
    for (const int batch : {1, 9}) {
      const Case c = served("sglang", model, 3'000, 1'000);
      const Plan p = tensor(2, batch);
      double token = 0, state = 0;
      for (const int i : kinds_of(c.model)) {
        const Attention& a = kind(c.model, i);
        if (a.recurrent()) state += rank_state_bytes(a, p).value;
        if (!a.none() && !a.recurrent()) token += kv_bytes_per_token(c, a, p);
      }
      const long long places = state_places(c, p);
      EXPECT_EQ(places / 5, batch) << model;
      EXPECT_LT((places - 1) / 5, batch) << model;
      EXPECT_DOUBLE_EQ(memory_use(c, p).kv.value,
                       static_cast<double>(places) * state + batch * 4'000.0 * token)
          << model;
    }
  }
}

// By architecture: with buffers and overlap 5, in stages, where nothing overlaps, 4, without buffers 3. In
// servers that answer alone prefixes are not looked for.
TEST(CachePools, P30SglangsPlacesAndItsHostFollowTheArchitecture) {
  Case c = served("sglang", "qwen3.5-397b-a17b", 3'000, 1'000);
  const Plan p = tensor(1, 40), staged = parse_plan("pipeline:pp=2,batch=20,in_flight=2");
  EXPECT_EQ(state_places(c, p), 200);
  EXPECT_FALSE(waits_for_host(c, p));
  EXPECT_TRUE(waits_for_host(c, staged));
  EXPECT_EQ(state_places(c, staged), 160);
  c.model.architecture = "KimiLinearForCausalLM";
  EXPECT_EQ(state_places(c, p), 120);
  EXPECT_TRUE(waits_for_host(c, p));
  c.disaggregated = true;
  EXPECT_EQ(state_places(c, p), 40 + 2 * 32) << "and two places for requests that arrive";
  EXPECT_EQ(state_places(c, tensor(1, 10)), 30);
  EXPECT_FALSE(waits_for_host(c, p));
  // Engines that say nothing have a state of each request.
  for (const char* name : {"vllm", "trtllm"}) {
    const Case other = served(name, "qwen3.5-397b-a17b", 3'000, 1'000);
    EXPECT_EQ(state_places(other, p), 40) << name;
    EXPECT_FALSE(waits_for_host(other, p)) << name;
  }
  EXPECT_EQ(state_places(served("sglang", "llama-3.1-8b", 3'000, 1'000), p), 0);
  EXPECT_FALSE(waits_for_host(served("sglang", "llama-3.1-8b", 3'000, 1'000), p));
}

// A stage's keys and values have what the states of all layers leave.
TEST(CachePools, P30SglangsStagesSetAsideAllStates) {
  Case c = served("sglang", "qwen3.5-397b-a17b", 3'000, 1'000);
  const Plan p = parse_plan("pipeline:pp=2,batch=2,in_flight=2");
  const Attention& state = kind(c.model, 0);
  ASSERT_TRUE(state.recurrent());
  const std::vector<KindLayers> stage{{0, 22}, {1, 8}};
  EXPECT_EQ(cache_pools(c, p, stage),
            rank_state_bytes(state, p) * (4.0 * 4 * 45) +
                Bytes(4 * 4'000.0 * kv_bytes_per_token(c, kind(c.model, 1), p)) * 8);
}

// Pools hold what attentions keep: a layer with a network of its own is no other pool.
TEST(CachePools, P30NetworksBehindLayersChangeNoPool) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    for (const char* model : {"qwen3.5-397b-a17b", "gpt-oss-120b"}) {
      Case c = served(engine, model, 3'000, 1'000);
      Case other = c;
      std::vector<LayerRun>& runs = other.model.runs;
      LayerRun first = runs.front();
      first.count = 1;
      first.ffn = static_cast<int>(other.model.ffns.size());
      other.model.ffns.push_back(other.model.ffns[static_cast<std::size_t>(runs.front().ffn)]);
      if (--runs.front().count == 0) runs.erase(runs.begin());
      runs.insert(runs.begin(), first);
      set_routing(c, {}), set_routing(other, {});
      for (const char* plan : {"tensor:tpa=2,tpf=2,batch=4", "pipeline:pp=2,batch=2,in_flight=2"}) {
        const Plan p = parse_plan(plan);
        EXPECT_NEAR(memory_use(other, p).kv / memory_use(c, p).kv, 1, 1e-12) << engine << " " << model;
      }
    }
  }
}

}  // namespace
}  // namespace shardline
