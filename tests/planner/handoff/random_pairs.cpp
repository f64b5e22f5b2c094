#include "tests/planner/handoff/random_pairs.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline::testing {
namespace {

int pick(std::mt19937& random, std::initializer_list<int> of) {
  return of.begin()[std::uniform_int_distribution<std::size_t>(0, of.size() - 1)(random)];
}

bool chance(std::mt19937& random, int of) { return random() % static_cast<unsigned>(of) == 0; }

// Degrees and options of a plan of this strategy.
Plan draw(std::mt19937& random, const Strategy& s, long long tokens, int kv_block) {
  const std::string name = s.name;
  Plan p;
  p.strategy = id_of(s);
  p.tpa = pick(random, {1, 2, 4, 8});
  if (name == "pipeline") p.pp = pick(random, {2, 3});
  if (name == "dp_ep") p.dp = pick(random, {2, 3});
  if (name == "kv_shard" || name == "helix") p.kvp = pick(random, {2, 3, 4});
  if (name == "helix") (chance(random, 2) ? p.dp : p.pp) = pick(random, {1, 2});
  if (name == "dcp") {
    p.tpa = pick(random, {4, 8});
    (chance(random, 2) ? p.dp : p.pp) = pick(random, {1, 2});
    set_option(p, "dcp", pick(random, {2, 4}));
    set_option(p, "interleave", chance(random, 2) ? 1 : kv_block);
  }
  if (s.context_parallel()) {
    p.tpa = pick(random, {1, 2});
    p.cp = pick(random, {2, 3, 4});
    p.pp = pick(random, {1, 1, 2});
    if (name == "usp") {
      p.cp = 4;
      set_option(p, "ulysses", 2);
    }
    if (name == "ring_pass_kv" && chance(random, 3)) set_option(p, "layout", "contiguous");
    if (s.reads(kPrefillChunk) && chance(random, 3)) p.set(kPrefillChunk, pick(random, {5, 8, 16}));
    if (name == "kv_runahead" && tokens >= p.cp) {
      std::vector<long long> parts(static_cast<std::size_t>(p.cp), 1);
      for (long long left = tokens - p.cp; left > 0; --left) ++parts[random() % parts.size()];
      list_parts(p, parts);
    }
  }
  return p;
}

bool may(const Case& c, const Plan& p, CacheSide side) {
  const Strategy& s = strategy(p.strategy);
  if (no_handoff(p, side) || p.pp > c.model.layers()) return false;
  if (!s.compressed && has_compression(c.model)) return false;
  if (!s.local_attention && has_local_attention(c.model)) return false;
  if (!s.chosen_keys && has_sparse(c.model)) return false;
  if (!s.states && has_recurrence(c.model)) return false;
  // Rules of heads and parts; not those of experts, which a cache knows nothing of.
  if (s.check == nullptr || std::string_view(s.name) == "dp_ep" || p.dp > 1) {
    for (const Attention& a : c.model.attentions) {
      if (std::string_view(s.name) == "dcp" && !a.recurrent() && !has_latents(a) &&
          (p.tpa <= a.kv_heads || p.tpa / a.kv_heads % p.options.of(option_of(p, "dcp")) != 0))
        return false;
    }
    return true;
  }
  Plan checked = p;
  if (std::string_view(s.name) == "helix" && has_latents(c.model)) set_option(checked, "value_up", "before");
  if (std::string_view(s.name) == "ring_decode") return true;
  return !s.check(c, checked);
}

Plan draw_side(std::mt19937& random, Case& c, CacheSide side, long long tokens) {
  for (;;) {
    const auto all = strategies();
    const Strategy& s = *all[random() % all.size()];
    if (!s.exact) continue;
    c.batch = side == CacheSide::prefilled ? prefill_batch({{0, tokens}}) : decode_batch(tokens + 1);
    const Plan p = draw(random, s, tokens, c.kv_block);
    if (may(c, p, side)) return p;
  }
}

CachePages draw_pages(std::mt19937& random) {
  return {pick(random, {1, 2, 3, 4, 8, 16}),
          chance(random, 2) ? PageOrder::tokens_first : PageOrder::heads_first};
}

// Modules of a kind that some layer has, on both sides.
void draft(std::mt19937& random, RandomPair& pair) {
  Model& m = pair.study.model;
  const LayerRun& run = m.runs[random() % m.runs.size()];
  const Attention& a = m.attentions[static_cast<std::size_t>(run.attention)];
  if (a.none() || a.recurrent() || a.compression || !chance(random, 3)) return;
  m.drafts = DraftModules{pick(random, {1, 3}), a, m.ffns[static_cast<std::size_t>(run.ffn)]};
  pair.prefill.set(kDrafts, 2);
  pair.decode.set(kDrafts, 2);
}

}  // namespace

RandomPair random_pair(std::mt19937& random, int most_tokens) {
  RandomPair out;
  const auto layers = cli::verify_layers();
  const cli::Layers& chosen = layers[random() % layers.size()];
  out.study = cli::small_case(chosen, {});
  for (LayerRun& run : out.study.model.runs) run.count = pick(random, {1, 2, 3});
  out.study.kv_block = pick(random, {1, 2, 4, 8});
  out.tokens = 1 + static_cast<long long>(random() % static_cast<unsigned>(most_tokens));
  out.prefill = draw_side(random, out.study, CacheSide::prefilled, out.tokens);
  out.decode = draw_side(random, out.study, CacheSide::to_decode, out.tokens);
  draft(random, out);
  out.prefill_group = static_cast<int>(random() % static_cast<unsigned>(out.prefill.dp));
  out.decode_group = static_cast<int>(random() % static_cast<unsigned>(out.decode.dp));
  out.pages.source = draw_pages(random);
  out.pages.target = chance(random, 2) ? out.pages.source : draw_pages(random);
  out.what = fmt::format(
      "{}, {} layers, kv_block {}, {} tokens, {} group {} (pages of {}, order {}) -> {} "
      "group {} (pages of {}, order {})",
      chosen.name, out.study.model.layers(), out.study.kv_block, out.tokens, to_string(out.prefill),
      out.prefill_group, out.pages.source.block, static_cast<int>(out.pages.source.order),
      to_string(out.decode), out.decode_group, out.pages.target.block,
      static_cast<int>(out.pages.target.order));
  return out;
}

Handoff handoff_of(const RandomPair& p) {
  return hand_over(cache_layout(p.study, p.prefill, CacheSide::prefilled, p.tokens, p.prefill_group),
                   cache_layout(p.study, p.decode, CacheSide::to_decode, p.tokens, p.decode_group), p.pages,
                   p.decode_group);
}

}  // namespace shardline::testing
