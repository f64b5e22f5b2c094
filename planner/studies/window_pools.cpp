#include "planner/studies/window_pools.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/share.hpp"
#include "planner/search/cache_sizes.hpp"
#include "planner/search/memory.hpp"
#include "planner/studies/service_room.hpp"

namespace shardline {

namespace {

// Of a token in all layers on a rank.
struct TokenBytes {
  double full = 0, windows = 0;
};

TokenBytes token_bytes(const Case& c, const Plan& plan) {
  TokenBytes out;
  for (int i = 0; i < static_cast<int>(c.model.attentions.size()); ++i) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(i)];
    if (a.none() || a.recurrent()) continue;
    (a.reach.local() ? out.windows : out.full) +=
        kv_bytes_per_token(c, a, plan) * layers_of_attention(c.model, i);
  }
  return out;
}

}  // namespace

bool has_window_pool(const Case& c) {
  return c.engine && c.engine->pools.windows.split &&
         !c.engine->pools.keeps_windows_whole(c.model.architecture) && has_local_attention(c.model);
}

std::optional<std::string> no_play_of_windows(const Case& c, const Plan& plan) {
  if (plan[kDrafts] > 0)
    return "its drafts take windows ahead of what is accepted, in a pool of their own, which is not played "
           "yet: sweep and plan have such drafts on average";
  for (const Attention& a : c.model.attentions) {
    if (!a.none() && cache_share(c, a, plan).sharers.size > 1)
      return "ranks share the cache of a request, whose windows are a pool of their own, which is not played "
             "yet";
  }
  return std::nullopt;
}

// models/gpt_oss.py, gemma4 and others: "HF's sliding window is inclusive of the last token, SGLang assumes
// exclusive"; MiMo-V2 has no such method, and its config's own number (model_runner.py, sliding_window_size).
std::uint32_t sliding_window(const Case& c) {
  const bool exclusive = !c.model.architecture.starts_with("MiMoV2");
  long long tokens = 0;
  for (const Attention& a : c.model.attentions) {
    if (a.reach.local()) tokens = std::max<long long>(tokens, a.reach.tokens - (exclusive ? 1 : 0));
  }
  return static_cast<std::uint32_t>(std::max(1LL, tokens));
}

WindowPools window_pools(const Case& c, const Plan& plan, std::uint32_t requests, long long mean,
                         double ratio) {
  Case one = c;
  one.batch = decode_batch(mean);
  Plan many = plan;
  const Bytes room = room_for_caches(c, plan, requests, mean);
  const auto fits = [&](long long batch) {
    many.batch = static_cast<int>(batch);
    return memory_use(one, many).kv <= room;
  };
  if (!fits(1)) return {};
  if (ratio == 0) {
    constexpr long long kMost = 4096;  // requests that a server runs at most
    long long good = 1, bad = std::min<long long>(kMost, requests) + 1;
    while (bad - good > 1) {
      const long long middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    many.batch = static_cast<int>(good);
    ratio = window_thousandths(one, many) / 1000.0;
  }
  const TokenBytes bytes = token_bytes(c, plan);
  // model_executor/pool_configurator.py, HybridSWAPoolConfigurator: _cell_size.
  const double tokens = std::floor(room.value / (bytes.full + ratio * bytes.windows));
  return {static_cast<std::uint64_t>(std::min(tokens, 2e9)), ratio};
}

}  // namespace shardline
