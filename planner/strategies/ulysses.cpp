// DeepSpeed-Ulysses (arXiv 2309.14509): an all-to-all turns shards of tokens into shards of heads, attention
// runs on whole sequences, and a second all-to-all turns its output back. Where there are fewer KV heads than
// ranks, a KV head goes to several of them; MLA's keys and values travel expanded, since latents have no
// heads to split. The cache is kept by heads, so cached tokens are not sent.
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

struct UlyssesHeads {
  LocalHeads own;  // of one rank after the exchange
  int first_kv(int rank, const LocalHeads& before) const { return rank * own.q * before.kv / before.q; }
};

UlyssesHeads split(const LocalHeads& h, int ranks) {
  return {{h.q / ranks, std::max(1, h.kv / ranks), h.qk, h.v}};
}

void attention(ContextStep& s) {
  s.expand_own();
  const int n = s.p.cp;
  const UlyssesHeads u = split(s.heads, n);
  const double q_width = u.own.q * u.own.qk, kv_width = u.own.kv_width(), out_width = u.own.q * u.own.v;
  const std::int64_t per_kv = u.own.qk + u.own.v;

  Tokens queries, keys;
  long long cached = 0;
  const std::vector<Request> requests = batch_requests(s.c, s.p);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].cached > 0) keys.push_back({static_cast<std::int32_t>(r), 0, requests[r].cached});
    cached += requests[r].cached;
  }
  std::vector<long long> first_row;  // of rank k's tokens among all queries
  for (int k = 0; k < n; ++k) {
    first_row.push_back(rows(queries));
    queries.insert(queries.end(), s.queries(k).begin(), s.queries(k).end());
  }
  keys.insert(keys.end(), queries.begin(), queries.end());
  const long long fresh = rows(queries);
  const auto own_rows = [&](int k) { return s.rows()[static_cast<std::size_t>(k)]; };

  const SlotId q = s.message("q of own heads", fresh, q_width, s.act_bytes());
  const SlotId kv = s.message("kv of own heads", cached + fresh, kv_width, s.kv_bytes());
  const SlotId out = s.message("out of own heads", fresh, out_width, s.act_bytes());
  const SlotId lse = s.message("lse of own heads", fresh, u.own.q, 4);
  Dataflow* f = s.flow();

  const OpIndex to_heads =
      s.b.exchange("tokens to heads", Part::exchange, OpKind::all_to_all, {n, s.p.tpa}, Bytes(0));
  s.vary([&](int k) {
    return Shape(
        ExchangeShape{Bytes(own_rows(k) * (n - 1) * (q_width * s.act_bytes() + kv_width * s.kv_bytes()))});
  });
  if (f && cached > 0) {
    const SlotId kept = s.message("cached kv", cached, kv_width, s.kv_bytes());
    const TokensId list = f->tokens({keys.data(), requests.size()});
    for (int k = 0; k < n; ++k) {
      for (int t = 0; t < s.p.tpa; ++t) {
        const std::int64_t g = s.first_kv(t) + u.first_kv(k, s.heads);
        f->inputs.push_back(
            {kept, s.rank(k, t), Whole::kv, list, f->range(g * per_kv, (g + u.own.kv) * per_kv)});
        f->move(to_heads,
                {s.rank(k, t), s.rank(k, t), s.whole(kept, cached, kv_width), s.whole(kv, cached, kv_width)});
      }
    }
  }
  for (int k = 0; f && k < n; ++k) {
    for (int d = 0; d < n; ++d) {
      for (int t = 0; t < s.p.tpa; ++t) {
        for (const RequestRows& r : s.request_rows(k)) {
          if (r.count == 0) continue;
          const long long row = first_row[static_cast<std::size_t>(k)] + r.query;
          const auto width = static_cast<std::int64_t>(q_width);
          f->move(to_heads, {s.rank(k, t),
                             s.rank(d, t),
                             {s.q, r.query, r.count, d * width, width},
                             {q, row, r.count, 0, width}});
          const std::int64_t column = u.first_kv(d, s.heads) * per_kv;
          f->move(to_heads, {s.rank(k, t),
                             s.rank(d, t),
                             {s.kv, r.key, r.count, column, u.own.kv * per_kv},
                             {kv, cached + row, r.count, 0, u.own.kv * per_kv}});
        }
      }
    }
  }
  const OpIndex computed = s.attend_lists(
      "attend", [&](int) -> const Tokens& { return queries; }, [&](int) -> const Tokens& { return keys; },
      u.own,
      [&](int) {
        return std::vector<Region>{s.whole(q, fresh, q_width), s.whole(kv, cached + fresh, kv_width),
                                   s.whole(out, fresh, out_width), s.whole(lse, fresh, u.own.q)};
      });
  const OpIndex ended = s.end_iteration({&computed, 1});
  s.b.after({&ended, 1});
  const OpIndex to_tokens =
      s.b.exchange("heads to tokens", Part::exchange, OpKind::all_to_all, {n, s.p.tpa}, Bytes(0));
  s.vary([&](int k) {
    return Shape(
        ExchangeShape{Bytes((static_cast<double>(fresh) - own_rows(k)) * out_width * s.act_bytes())});
  });
  for (int d = 0; f && d < n; ++d) {
    for (int k = 0; k < n; ++k) {
      for (int t = 0; t < s.p.tpa; ++t) {
        const auto width = static_cast<std::int64_t>(out_width);
        const auto count = static_cast<std::int64_t>(own_rows(k));
        f->move(to_tokens, {s.rank(d, t),
                            s.rank(k, t),
                            {out, first_row[static_cast<std::size_t>(k)], count, 0, width},
                            {s.out, 0, count, d * width, width}});
      }
    }
  }
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kUlysses), out);
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  if (c.model.attention.q_heads % p.tpa != 0 || h.q % p.cp != 0)
    return "ulysses needs cp*tpa to divide the query heads";
  if (h.kv % p.cp != 0 && p.cp % h.kv != 0)
    return "ulysses needs the KV heads of a TP rank to divide cp, or cp them";
  return std::nullopt;
}

void prefill(Schedule& s, const Case& c, const Plan& p) { build_prefill(s, c, p, false, attention); }

// Kept by heads: ranks beyond the KV heads hold copies, and all heads share MLA's latents.
double heads_cache_shards(const Case& c, const Plan& p) {
  if (c.model.attention.kind == AttentionKind::mla) return 1;
  return std::min(p.cp, prefill_heads(c, p).kv);
}

Bytes buffers(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  const double act = bytes_per_element(c.precision.activations), kv = bytes_per_element(c.precision.kv);
  return Bytes(2 * prefill_rows(c, p) * (h.q * (h.qk + h.v) * act + h.kv_width() * kv));
}

}  // namespace

const Strategy kUlysses{
    .name = "ulysses",
    .summary = "sequence parallelism: all-to-all from tokens to heads and back",
    .source = "arXiv 2309.14509",
    .prefills = true,
    .degrees = {Degree::pp, Degree::cp, Degree::tpa, Degree::ep, Degree::tpf, Degree::in_flight},
    .weights = WeightSharing::attention_tp,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .check = check,
    .prefill = prefill,
    .cache_shards = heads_cache_shards,
    .prefill_buffers = buffers,
};

}  // namespace shardline
