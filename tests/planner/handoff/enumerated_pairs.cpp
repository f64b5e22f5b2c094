#include "tests/planner/handoff/enumerated_pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "planner/strategies/strategy.hpp"

namespace shardline::testing {

namespace {

// Tokens that a row of a part is made of.
int ratio_of(const Attention& a, CachePart part) {
  return a.compression && (part == CachePart::compressed || part == CachePart::index_key)
             ? a.compression->ratio
             : 1;
}

// Who has what, token by token, or row by row of several, from the definitions of the strategies. Ranks are
// those of a stage.
class Owners {
 public:
  Owners(const Case& c, const Plan& p, const PartShape& part, long long tokens, int group)
      : c_(c),
        p_(p),
        a_(c.model.attentions[static_cast<std::size_t>(part.kind)]),
        part_(part.part),
        tokens_(tokens),
        group_(group) {
    if (p.cp == 1 || a_.compression) return;
    Placement held(p.cp, 1);
    const Strategy& s = strategy(p.strategy);
    const std::string name = s.name;
    const bool chunks = s.reads(kPrefillChunk) && p[kPrefillChunk] > 0;
    for (long long at = 0; at < tokens;) {
      const long long some = chunks ? std::min<long long>(p[kPrefillChunk], tokens - at) : tokens;
      const bool apart =
          name == "tsp" || (name == "ring_pass_kv" && to_string(p).find("contiguous") != std::string::npos);
      if (name == "striped")
        held.stripe(0, some);
      else if (name == "kv_runahead" || apart)
        held.append(0, interval_counts(some, p.cp, listed_parts(p)));
      else
        held.prefill(0, some);
      at += some;
    }
    owner_.assign(static_cast<std::size_t>(tokens), 0);
    for (int k = 0; k < p.cp; ++k) {
      for (const Interval& i : held.held(k, 0)) {
        for (std::int64_t n = 0; n < i.size(); ++n) owner_[static_cast<std::size_t>(i.position(n))] = k;
      }
    }
  }

  bool in_group(int r) const { return r / p_.group() == group_; }
  // Of tokens, whatever a window leaves of them.
  bool has_token(int r, long long t) const {
    r %= p_.group();
    const std::string name = strategy(p_.strategy).name;
    // Every rank makes every row, and the first TP group hands them over.
    if (p_.cp > 1 && a_.compression) return r / p_.tpa == 0;
    if (part_ == CachePart::uncompressed) return true;
    if (p_.cp > 1) {
      const int k = r / p_.tpa, exchanged = head_ranks();
      return owner_[static_cast<std::size_t>(t)] / exchanged == k / exchanged;
    }
    const int index = a_.index ? a_.index->block : 1;
    if (name == "dcp") {
      const int dcp = p_.options.of(option_of(p_, "dcp"));
      return t / in_block(whole(p_.options.of(option_of(p_, "interleave")), index)) % dcp == r % dcp;
    }
    return t / in_block(whole(c_.kv_block, index)) % p_.kvp == r / p_.tpa;
  }
  bool has_unit(int r, CachePart part, int unit) const {
    r %= p_.group();
    if (part == CachePart::latent || part == CachePart::index_key || part == CachePart::compressed ||
        part == CachePart::uncompressed)
      return true;
    if (part == CachePart::heads) {
      // Query heads that it attends with; under dcp its own, whose KV head the group shares.
      int first = r % p_.tpa * (a_.q_heads / p_.tpa), count = a_.q_heads / p_.tpa;
      if (head_ranks() > 1) {
        count /= head_ranks();
        first += r / p_.tpa % head_ranks() * count;
      }
      for (int q = first; q < first + count; ++q) {
        if (q * a_.kv_heads / a_.q_heads == unit) return true;
      }
      return false;
    }
    const int values = a_.delta ? a_.delta->value_heads : a_.mamba->heads;
    const int keys = a_.delta ? a_.delta->key_heads : a_.mamba->groups;
    const bool copies = std::string_view(strategy(p_.strategy).name) == "kv_shard";
    const bool parts = p_.cp > 1;  // of the heads of a TP rank, in turn
    const int sharers = copies || parts ? p_.tpa : p_.group(), each = (values + sharers - 1) / sharers;
    int first = r % sharers * each, end = std::min(values, first + each);
    if (parts) {
      const int own = (end - first + p_.cp - 1) / p_.cp;
      first += r / p_.tpa * own;
      end = std::min(end, first + own);
    }
    for (int v = first; v < end; ++v) {
      if ((part == CachePart::conv_keys ? v * keys / values : v) == unit) return true;
    }
    return false;
  }
  // Tokens before `t` that it has: the row in its pages.
  long long row(int r, long long t) const {
    if (std::string_view(strategy(p_.strategy).name) == "kv_runahead") return t;
    long long n = 0;
    for (long long i = 0; i < t; ++i) n += has_token(r, i) ? 1 : 0;
    return n;
  }
  long long first(CacheSide side) const {
    if (ratio_of(a_, part_) > 1) return 0;
    if (part_ == CachePart::uncompressed) {
      for (long long t = 0; t < tokens_; ++t) {
        if (becomes_part(t)) return t;
      }
      return tokens_;
    }
    return a_.reach.first(side == CacheSide::prefilled ? tokens_ - 1 : tokens_);
  }

 private:
  // Of a row that is not made yet: row j is made when its last token, (j + 1) ratio - 1, is there. Of its
  // ratio tokens, or, where an index chooses among rows, of as many before them as well.
  bool becomes_part(long long t) const {
    const long long ratio = a_.compression->ratio, made_of = ratio * (a_.index ? 2 : 1);
    for (long long j = 0; j <= tokens_; ++j) {
      const long long end = (j + 1) * ratio;
      if (end > tokens_ && t < end && t >= end - made_of) return true;
    }
    return false;
  }
  int in_block(int tokens) const { return std::max(1, tokens / ratio_of(a_, part_)); }
  static int whole(int block, int of) { return (block + of - 1) / of * of; }
  int head_ranks() const {
    const std::string name = strategy(p_.strategy).name;
    if (has_latents(a_)) return 1;
    return name == "ulysses" ? p_.cp : name == "usp" ? p_.options.of(option_of(p_, "ulysses")) : 1;
  }

  const Case& c_;
  const Plan& p_;
  const Attention& a_;
  const CachePart part_;
  const long long tokens_;
  const int group_;
  std::vector<int> owner_;
};

// Stage by stage, the earlier ones a layer more.
int stage_of(int layer, int layers, int stages) {
  for (int s = 0, first = 0;; ++s) {
    first += layers / stages + (s < layers % stages ? 1 : 0);
    if (layer < first) return s;
  }
}

struct Address {
  std::tuple<int, int, long long> page;  // layer, plane, page
  long long place = 0;
  bool operator<(const Address& o) const { return std::tie(page, place) < std::tie(o.page, o.place); }
  bool before(const Address& o) const { return page == o.page && place + 1 == o.place; }
};
using Elements = std::vector<std::pair<Address, Address>>;

// One side of one part of one kind: addresses.
struct Side {
  const Owners* owners;
  const Plan* plan;
  CachePages pages;
  std::vector<std::vector<char>> token, unit;  // [rank]: whether it has it
  std::vector<std::vector<long long>> row;
  std::vector<int> first_unit, units;

  Side(const Owners& o, const Plan& p, CachePages pg, const PartShape& part, long long tokens)
      : owners(&o), plan(&p), pages(pg) {
    for (int r = 0; r < p.ranks_per_stage(); ++r) {
      std::vector<char> t, u;
      std::vector<long long> rows;
      for (long long i = 0; i < tokens; ++i) {
        t.push_back(o.in_group(r) && of_tokens(part.part) && o.has_token(r, i));
        rows.push_back(t.back() ? o.row(r, i) : 0);
      }
      for (int i = 0; i < part.units; ++i) u.push_back(o.in_group(r) && o.has_unit(r, part.part, i));
      first_unit.push_back(static_cast<int>(std::find(u.begin(), u.end(), 1) - u.begin()));
      units.push_back(static_cast<int>(std::count(u.begin(), u.end(), 1)));
      token.push_back(std::move(t));
      unit.push_back(std::move(u));
      row.push_back(std::move(rows));
    }
  }
  std::vector<int> holders(long long t, int u) const {
    std::vector<int> out;
    for (int r = 0; r < plan->ranks_per_stage(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (unit[i][static_cast<std::size_t>(u)] && (t < 0 || token[i][static_cast<std::size_t>(t)]))
        out.push_back(r);
    }
    return out;
  }
  Address at(int r, int layer, int plane, long long t, int u) const {
    const auto i = static_cast<std::size_t>(r);
    const long long local = u - first_unit[i];
    if (t < 0) return {{layer, plane, -1}, local};
    const long long n = row[i][static_cast<std::size_t>(t)], in_page = n % pages.block;
    return {
        {layer, plane, n / pages.block},
        pages.order == PageOrder::tokens_first ? in_page * units[i] + local : local * pages.block + in_page};
  }
};

// Pages of vLLM's caches of compressed attention: 64 tokens of a window, 4 or 8 of values and gates; of rows
// as many as a page's tokens make, one at least.
CachePages in_rows(const Attention& a, CachePart part, CachePages pages) {
  if (!a.compression) return pages;
  if (part == CachePart::latent) pages.block = 64;
  if (part == CachePart::uncompressed) pages.block = a.index ? 4 : 8;
  pages.block = std::max(1, pages.block / ratio_of(a, part));
  return pages;
}

// Every number of one part, to the pair of ranks that it goes between.
void enumerate(const RandomPair& p, const PartShape& part, std::map<std::pair<int, int>, RankPair>& out) {
  const Attention& a = p.study.model.attentions[static_cast<std::size_t>(part.kind)];
  const long long rows = p.tokens / ratio_of(a, part.part);
  const Owners from(p.study, p.prefill, part, p.tokens, p.prefill_group),
      to(p.study, p.decode, part, p.tokens, p.decode_group);
  const Side source(from, p.prefill, in_rows(a, part.part, p.pages.source), part, rows),
      target(to, p.decode, in_rows(a, part.part, p.pages.target), part, rows);
  std::map<std::pair<int, int>, Elements> elements;
  // Modules that draft are on the last stage, behind the model's layers.
  const int layers = p.study.model.layers();
  const auto stage = [&](std::size_t layer, int pp) {
    return stage_of(std::min(static_cast<int>(layer), layers - 1), layers, pp);
  };
  const auto kinds = cache_layout(p.study, p.decode, CacheSide::to_decode, p.tokens).kind_of;
  const long long first = of_tokens(part.part) ? to.first(CacheSide::to_decode) : -1;
  const long long end = of_tokens(part.part) ? rows : 0;
  for (long long t = first; t < end; ++t) {
    for (int u = 0; u < part.units; ++u) {
      const std::vector<int> have = source.holders(t, u), need = target.holders(t, u);
      const int n = static_cast<int>(have.size()), m = static_cast<int>(need.size());
      for (int i = 0; i < m; ++i) {
        ASSERT_GT(n, 0) << p.what;
        const int sender = have[static_cast<std::size_t>(i * n / m + p.decode_group % std::max(1, n / m))];
        const int receiver = need[static_cast<std::size_t>(i)];
        for (std::size_t layer = 0; layer < kinds.size(); ++layer) {
          if (kinds[layer] != part.kind) continue;
          const std::pair ranks(stage(layer, p.prefill.pp) * p.prefill.ranks_per_stage() + sender,
                                stage(layer, p.decode.pp) * p.decode.ranks_per_stage() + receiver);
          const int at = static_cast<int>(layer);
          for (int plane = 0; plane < part.planes; ++plane)
            elements[ranks].push_back(
                {source.at(sender, at, plane, t, u), target.at(receiver, at, plane, t, u)});
        }
      }
    }
  }
  for (auto& [ranks, list] : elements) {
    std::sort(list.begin(), list.end());
    RankPair& pair = out[ranks];
    pair.from = ranks.first;
    pair.to = ranks.second;
    pair.bytes += Bytes(static_cast<double>(list.size()) / part.planes * part.row_bytes);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool follows =
          i > 0 && list[i - 1].first.before(list[i].first) && list[i - 1].second.before(list[i].second);
      pair.descriptors += follows ? 0 : 1;
    }
  }
}

}  // namespace

std::map<std::pair<int, int>, RankPair> enumerated(const RandomPair& pair) {
  std::map<std::pair<int, int>, RankPair> out;
  for (const PartShape& part : part_shapes(pair.study)) enumerate(pair, part, out);
  return out;
}

}  // namespace shardline::testing
