// KV-Runahead (arXiv 2405.05329): a chain of ranks, each with one interval of the tokens. Per layer a rank
// receives the keys and values of all tokens before its own, joins them with its own, sends both on without
// waiting, and attends; under MLA what travels are latents, and each rank expands its prefix. Intervals may
// be of unequal length, for the later ones see more keys. Ignores: tokens that are cached already.
#include <fmt/format.h>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr const char* kPartitionWords[]{"even"};
constexpr OptionOf<Parts> kPartition({
    .key = "partition",
    .help = "tokens of each rank; without it the best ones are searched for",
    .absent = static_cast<int>(Parts::searched),
    .words = kPartitionWords,
    .lists = true,
    .decodes = false,
});
constexpr const Option* kOptions[]{&kPartition};

// Rows of one request in the KV of rank k: those of all ranks up to it.
struct Prefix {
  long long row = 0, rows = 0;
};

std::vector<Prefix> prefixes(const ContextStep& s, int k) {
  std::vector<Prefix> list;
  long long row = 0;
  for (int b = 0; b < s.layout.requests; ++b) {
    const auto i = static_cast<std::size_t>(k * s.layout.requests + b);
    const long long end = s.layout.first_key[i] + s.layout.fresh_count[i];
    list.push_back({row, end - row});
    row = end;
  }
  return list;
}

long long prefix_rows(const ContextStep& s, int k) { return rows(s.keys(k)); }

OpIndex send_prefix(ContextStep& s, int from) {
  const double width = s.heads.held_width();
  const OpIndex op = s.b.hop("send prefix", Part::exchange, {s.p.cp, s.p.tpa}, from);
  s.vary([&](int k) {
    ExchangeShape shape;
    if (k == from) shape.bytes = Bytes(static_cast<double>(prefix_rows(s, k)) * width * s.kv_bytes());
    return Shape(shape);
  });
  if (Dataflow* f = s.flow()) {
    const std::vector<Prefix> source = prefixes(s, from), target = prefixes(s, from + 1);
    const auto columns = static_cast<std::int64_t>(width);
    for (std::size_t b = 0; b < source.size(); ++b) {
      for (int t = 0; t < s.p.tpa; ++t)
        f->move(op, {s.rank(from, t),
                     s.rank(from + 1, t),
                     {s.held, source[b].row, source[b].rows, 0, columns},
                     {s.held, target[b].row, source[b].rows, 0, columns}});
    }
  }
  return op;
}

// Engines without room for the whole cache copy both parts into a new tensor.
OpIndex concatenate(ContextStep& s, int rank, OpIndex received) {
  s.b.after({&received, 1});
  const OpIndex op = s.b.elementwise("concatenate KV", Part::exchange, OpKind::elementwise, {});
  s.b.only({s.p.cp, s.p.tpa}, rank);
  const double n = static_cast<double>(prefix_rows(s, rank)), width = s.heads.held_width();
  s.vary([&](int k) {
    return Shape(k == rank
                     ? ElementwiseShape{count_of(n), count_of(width), Bytes(2 * n * width * s.kv_bytes())}
                     : ElementwiseShape{});
  });
  return op;
}

void attention(ContextStep& s) {
  const bool copies = s.c.kernels.attention == AttentionKernel::eager;
  const OpIndex own = s.b.previous();
  std::vector<OpIndex> joined{own};  // own, then on each rank what it received
  for (int k = 0; k + 1 < s.p.cp; ++k) {
    const OpIndex ready[2] = {own, joined.back()};
    s.b.after({ready, k == 0 ? 1u : 2u});
    const OpIndex received = send_prefix(s, k);
    joined.push_back(copies ? concatenate(s, k + 1, received) : received);
  }
  std::vector<Tokens> keys(static_cast<std::size_t>(s.p.cp));
  for (int k = 0; k < s.p.cp; ++k) {
    const std::vector<Prefix> list = prefixes(s, k);
    for (std::size_t b = 0; b < list.size(); ++b) {
      if (list[b].rows > 0)
        keys[static_cast<std::size_t>(k)].push_back({static_cast<std::int32_t>(b), 0, list[b].rows});
    }
  }
  s.b.after(joined);
  s.expand(s.held, s.kv, [&](int k) -> const Tokens& { return keys[static_cast<std::size_t>(k)]; });
  const OpIndex computed = s.attend_lists(
      "attend", [&](int k) -> const Tokens& { return s.queries(k); },
      [&](int k) -> const Tokens& { return keys[static_cast<std::size_t>(k)]; }, s.heads,
      [&](int k) {
        return std::vector<Region>{s.all_queries(s.q, k, s.heads.q * s.heads.qk),
                                   s.whole(s.kv, prefix_rows(s, k), s.heads.kv_width()),
                                   s.all_queries(s.out, k, s.heads.q * s.heads.v),
                                   s.all_queries(s.out_lse, k, s.heads.q)};
      });
  s.end_iteration({&computed, 1});
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kKvRunahead), out);
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (!one_attention(c.model))  // parts are searched by what a prefix costs a layer, any layer
    return "kv_runahead is for models whose layers have one kind of attention";
  for (const Segment& r : c.batch.prefill) {
    if (r.cached > 0)
      return "kv_runahead needs an empty cache: a rank sees the keys of the ranks before it alone";
  }
  const std::vector<long long>& parts = p.options.list(kPartition);
  if (parts.empty()) return std::nullopt;
  if (static_cast<int>(parts.size()) != p.cp)
    return fmt::format("partition has {} parts but cp is {}", parts.size(), p.cp);
  long long sum = 0;
  for (const long long part : parts) {
    if (part < 1) return "every part of a partition has a token at least";
    sum += part;
  }
  for (const Segment& r : c.batch.prefill) {
    if (r.fresh != sum) return fmt::format("partition sums to {} tokens but a sequence has {}", sum, r.fresh);
  }
  return std::nullopt;
}

ContextLayout layout(const Plan& p, const std::vector<Segment>& requests) {
  return chain_layout(requests, p.cp, p.options.list(kPartition));
}

// The last rank also expands the latents of all.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  return token_buffers(c, a, p) + expanded_message(c, a, p) * p.cp;
}

// The last rank ends with all of it.
double chain_cache_shards(const Attention&, const Plan&) { return 1; }

// Parts in the ratio of ranks : ranks - 1 : ... : 1; the first takes the rest.
std::vector<long long> falling_partition(long long tokens, int ranks) {
  std::vector<long long> parts;
  for (int k = 0; k < ranks; ++k) parts.push_back(tokens * 2 * (ranks - k) / (ranks * (ranks + 1)));
  for (int k = 1; k < ranks; ++k) tokens -= parts[static_cast<std::size_t>(k)];
  parts.front() = tokens;
  return parts;
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  Plan p = trial.base;
  out.push_back(p);
  if (trial.study.batch.prefill.size() > 1) return;
  p.options.set_list(kPartition, falling_partition(trial.study.batch.prefill.front().fresh, p.cp));
  out.push_back(p);
}

}  // namespace

const Strategy kKvRunahead{
    .name = "kv_runahead",
    .summary = "context parallelism: a chain of ranks over intervals, each sending its KV on",
    .source = "arXiv 2405.05329",
    .prefills = true,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .eager = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attention,
    .layout = layout,
    .cache_shards = chain_cache_shards,
    .prefill_buffers = buffers,
    .parts = &kPartition,
    .verify = verify,
};

}  // namespace shardline
