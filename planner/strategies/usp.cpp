// USP, unified sequence parallelism (arXiv 2405.07719; package yunchang 0.6.4, hybrid/attn_layer.py): an
// all-to-all from tokens to heads within groups of `ulysses` consecutive ranks, keys and values round rings
// of the ranks of equal heads, an all-to-all back. The first is short-ranged and grows with the queries, the
// second goes far and shrinks with the ring. Its load balance cuts a sequence in two chunks per rank of a
// ring and deals each ring rank's pair to its group; so the tokens of a group here (those of [C1] on all
// ranks) are the same wherever 2 cp divides them, which that package asks for. Not modelled: queries, keys
// and values in three all-to-alls (yunchang) instead of one (xDiT, where their shapes are equal); one
// all-gather in place of the hops (torch's ring attention, in xDiT and SGLang's diffusion); the basic ring,
// whose last rank has most work. Under MLA expanded heads travel in both exchanges, as the attention layer is
// given them; latents gathered within a group would be fewer, but nobody has it.
#include <fmt/format.h>

#include "planner/layers/head_exchange.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr OptionOf<int> kInner({
    .key = "ulysses",
    .help = "neighbouring ranks that exchange tokens for heads; cp over it are in each ring",
    .least = 2,
    .absent = 1,
    .decodes = false,
});

int inner_ranks(const Plan& p) { return p[kInner]; }

void attention(ContextStep& s) {
  s.expand_own();
  HeadExchange heads(s, inner_ranks(s.p));
  heads.to_heads();
  attend_pass_kv(heads.inner);
  heads.to_tokens();
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kUsp), out, [&](Plan p, std::vector<Plan>& with) {
    for (const int inner : space.tried(kInner, divisors(p.cp))) {
      p.set(kInner, inner);
      with.push_back(p);
    }
  });
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  const int inner = p[kInner];
  if (inner == 1) return "usp with ulysses=1 is ring_pass_kv";
  if (inner == p.cp) return fmt::format("usp with ulysses={} of {} ranks is ulysses", inner, p.cp);
  if (p.cp % inner != 0) return fmt::format("usp needs ulysses to divide cp: {} and {}", inner, p.cp);
  for (const Attention& a : c.model.attentions) {
    if (a.q_heads % (inner * p.tpa) != 0) return "usp needs ulysses*tpa to divide the query heads";
    if (!has_latents(a) && a.kv_heads % (inner * p.tpa) != 0)
      return "usp needs ulysses*tpa to divide the KV heads, of which it makes no copies";
  }
  return std::nullopt;
}

// A rank has its heads of its group's tokens; all heads share MLA's latents.
double cache_spread(const Attention& a, const Plan& p) { return has_latents(a) ? p.cp / p[kInner] : p.cp; }

// Both sides of an exchange, two messages of the ring and one partial output. A group has `ulysses` times the
// tokens of a rank, and a rank of it as much less of the heads.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  const Bytes message = key_message(c, a, p) * (h.kv_width() / h.held_width());
  return head_exchange_buffers(c, a, p) + 2 * message + partial_output(c, a, p);
}

// Rings of two to four ranks, and heads over two and four.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  for (const int inner : {2, 4}) {
    Plan p = trial.base;
    p.cp = trial.base.cp * inner;
    p.set(kInner, inner);
    out.push_back(p);
  }
}

constexpr const Option* kOptions[]{&kInner};

}  // namespace

const Strategy kUsp{
    .name = "usp",
    .summary = "sequence parallelism: heads exchanged among neighbours, KV round rings",
    .source = "arXiv 2405.07719",
    .prefills = true,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .states = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attention,
    .cache_shards = cache_spread,
    .head_ranks = inner_ranks,
    .prefill_buffers = buffers,
    .verify = verify,
};

}  // namespace shardline
