// Pieces, descriptors and bytes of a hand-off against an enumeration of every number of every cache.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/handoff/random_pairs.hpp"

namespace shardline {
namespace {

using testing::handoff_of;
using testing::random_pair;
using testing::RandomPair;

// Who has what, token by token, from the definitions of the strategies. Ranks are those of a stage.
class Owners {
 public:
  Owners(const Case& c, const Plan& p, int kind, long long tokens, int group)
      : c_(c), p_(p), a_(c.model.attentions[static_cast<std::size_t>(kind)]), tokens_(tokens), group_(group) {
    if (p.cp == 1) return;
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
    if (p_.cp > 1) {
      const int k = r / p_.tpa, exchanged = head_ranks();
      return owner_[static_cast<std::size_t>(t)] / exchanged == k / exchanged;
    }
    const int index = a_.index ? a_.index->block : 1;
    if (name == "dcp") {
      const int dcp = p_.options.of(option_of(p_, "dcp"));
      return t / whole(p_.options.of(option_of(p_, "interleave")), index) % dcp == r % dcp;
    }
    return t / whole(c_.kv_block, index) % p_.kvp == r / p_.tpa;
  }
  bool has_unit(int r, CachePart part, int unit) const {
    r %= p_.group();
    if (part == CachePart::latent || part == CachePart::index_key) return true;
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
    return a_.reach.first(side == CacheSide::prefilled ? tokens_ - 1 : tokens_);
  }

 private:
  static int whole(int block, int of) { return (block + of - 1) / of * of; }
  int head_ranks() const {
    const std::string name = strategy(p_.strategy).name;
    if (has_latents(a_)) return 1;
    return name == "ulysses" ? p_.cp : name == "usp" ? p_.options.of(option_of(p_, "ulysses")) : 1;
  }

  const Case& c_;
  const Plan& p_;
  const Attention& a_;
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

// Every number of one part, to the pair of ranks that it goes between.
void enumerate(const RandomPair& p, const PartShape& part, std::map<std::pair<int, int>, RankPair>& out) {
  const Owners from(p.study, p.prefill, part.kind, p.tokens, p.prefill_group),
      to(p.study, p.decode, part.kind, p.tokens, p.decode_group);
  const Side source(from, p.prefill, p.pages.source, part, p.tokens),
      target(to, p.decode, p.pages.target, part, p.tokens);
  std::map<std::pair<int, int>, Elements> elements;
  // Modules that draft are on the last stage, behind the model's layers.
  const int layers = p.study.model.layers();
  const auto stage = [&](std::size_t layer, int pp) {
    return stage_of(std::min(static_cast<int>(layer), layers - 1), layers, pp);
  };
  const auto kinds = cache_layout(p.study, p.decode, CacheSide::to_decode, p.tokens).kind_of;
  const long long first = of_tokens(part.part) ? to.first(CacheSide::to_decode) : -1;
  const long long end = of_tokens(part.part) ? p.tokens : 0;
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

TEST(Handoff, D4ClosedFormsAreTheEnumerationOfTenThousandPairs) {
  std::mt19937 random(38);
  std::map<std::string, int> strategies_seen;
  int drafting = 0;
  for (int i = 0; i < 10000; ++i) {
    const RandomPair pair = random_pair(random, 40);
    drafting += pair.decode[kDrafts] > 0 ? 1 : 0;
    ++strategies_seen[strategy(pair.prefill.strategy).name];
    ++strategies_seen[strategy(pair.decode.strategy).name];
    std::map<std::pair<int, int>, RankPair> want;
    for (const PartShape& part : part_shapes(pair.study)) enumerate(pair, part, want);
    const Handoff h = handoff_of(pair);
    const std::vector<RankPair> got = rank_pairs(h);
    ASSERT_EQ(got.size(), want.size()) << pair.what;
    for (const RankPair& g : got) {
      ASSERT_TRUE(want.count({g.from, g.to})) << pair.what;
      const RankPair& w = want[{g.from, g.to}];
      ASSERT_EQ(g.descriptors, w.descriptors) << pair.what << ": " << g.from << " to " << g.to;
      ASSERT_NEAR(g.bytes.value, w.bytes.value, 1e-9 * w.bytes.value) << pair.what;
    }
  }
  for (const Strategy* s : strategies()) {
    if (s->exact) {
      EXPECT_GT(strategies_seen[s->name], 100) << s->name;
    }
  }
  EXPECT_GT(drafting, 1000);
}

Plan tensor(int ranks, int groups = 1) {
  Plan p;
  p.strategy = strategy_id(groups > 1 ? "dp_ep" : "tensor");
  p.tpa = ranks;
  p.dp = groups;
  return p;
}

Case of_layers(const char* name) {
  for (const cli::Layers& layers : cli::verify_layers()) {
    if (std::string_view(layers.name) == name) return cli::small_case(layers, {});
  }
  return {};
}

// Llama-3.1-70B, TP 8 to TP 8: 80 layers x keys and values x 118 pages, as ai-dynamo/nixl#1514 counts the
// descriptors of a transfer.
TEST(Handoff, D4PublishedDescriptorsOfATransfer) {
  Case c = of_layers("MHA 8/8 heads");
  c.model.runs.front().count = 80;
  const Handoff h = hand_over(cache_layout(c, tensor(8), CacheSide::prefilled, 118 * 16),
                              cache_layout(c, tensor(8), CacheSide::to_decode, 118 * 16), {});
  const std::vector<RankPair> pairs = rank_pairs(h);
  ASSERT_EQ(pairs.size(), 8U);
  for (const RankPair& p : pairs) EXPECT_EQ(p.descriptors, 18880);
}

// What copies send: as many receivers each as any other, up to one; and those of n / m copies that requests
// of different groups take.
TEST(Handoff, D3CopiesShareTheReceivers) {
  const Case latents = of_layers("MLA 8 heads");
  for (const int n : {1, 2, 4, 8}) {
    for (const int m : {1, 2, 4, 8}) {
      std::map<int, int> senders;
      for (int group = 0; group < 4; ++group) {
        const Handoff h =
            hand_over(cache_layout(latents, tensor(n), CacheSide::prefilled, 40),
                      cache_layout(latents, tensor(m, 4), CacheSide::to_decode, 40, group), {}, group);
        std::map<int, int> of_group;
        for (const RankPair& p : rank_pairs(h)) {
          ++of_group[p.from];
          ++senders[p.from];
          EXPECT_EQ(p.to / m, group);
        }
        EXPECT_EQ(static_cast<int>(of_group.size()), std::min(n, m));
        for (const auto& [rank, receivers] : of_group) EXPECT_EQ(receivers, std::max(1, m / n));
      }
      EXPECT_EQ(static_cast<int>(senders.size()), std::min(n, 4 * m)) << n << " to " << m;
    }
  }
}

// A rank of a chain has the prefix before its own tokens too, which it need not send.
TEST(Handoff, D3ChainsSendWhatTheyComputed) {
  Case c = of_layers("MHA 8/8 heads");
  c.batch = prefill_batch({{0, 40}});
  Plan chain;
  chain.strategy = strategy_id("kv_runahead");
  chain.cp = 4;
  list_parts(chain, {16, 12, 8, 4});
  const CacheLayout source = cache_layout(c, chain, CacheSide::prefilled, 40);
  const Handoff h = hand_over(source, cache_layout(c, tensor(1), CacheSide::to_decode, 40), {});
  const std::vector<RankPair> pairs = rank_pairs(h);
  ASSERT_EQ(pairs.size(), 4U);
  const Bytes token = h.bytes() / 40;
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    EXPECT_DOUBLE_EQ(pairs[k].bytes / token, 16.0 - 4 * static_cast<double>(k));
    // Its cache holds the prefix beside that.
    const double held[] = {16, 28, 36, 40};
    EXPECT_DOUBLE_EQ(box_bytes(source, source.boxes[k]) / token, held[k]);
  }
}

HeldTokens draw_held(std::mt19937& random, std::int64_t end) {
  const auto number = [&](int most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  HeldTokens h{0, end};
  if (number(3) > 0) {
    h.block = 1 + number(6);
    h.period = h.block * (1 + number(5));
    h.phase = number(static_cast<int>(h.period));
  }
  return h.from(number(static_cast<int>(end)));
}

// Lists of cycles over hundreds of periods, against tokens one by one.
TEST(Handoff, D4RunsOfLongListsAreThoseOfTheirTokens) {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const HeldList a{draw_held(random, 3000)}, b{draw_held(random, 2000 + static_cast<int>(random() % 1500))};
    const int page_a = 1 + static_cast<int>(random() % 9), page_b = 1 + static_cast<int>(random() % 9);
    RunCount want;
    std::int64_t length = 0, row_a = -1, row_b = -1;
    // Of each pair of pages whether it has both first rows as one token, and both last ones.
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<bool, bool>> pages;
    const auto close = [&] {
      want.whole += length > 0 && length == page_a && length == page_b ? 1 : 0;
      length = 0;
    };
    for (std::int64_t t = 0; t < 3500; ++t) {
      if (!a[0].holds(t) || !b[0].holds(t)) continue;
      const std::int64_t x = a[0].row_of(t), y = b[0].row_of(t);
      if (x != row_a + 1 || y != row_b + 1 || x % page_a == 0 || y % page_b == 0 || want.runs == 0) {
        close();
        ++want.runs;
      }
      ++want.tokens;
      ++length;
      std::pair<bool, bool>& ends = pages[{x / page_a, y / page_b}];
      ends.first = ends.first || (x % page_a == 0 && y % page_b == 0);
      ends.second = ends.second || (x % page_a == page_a - 1 && y % page_b == page_b - 1);
      row_a = x;
      row_b = y;
    }
    close();
    for (const auto& [page, ends] : pages) want.around += ends.first && ends.second ? 1 : 0;
    want.around -= want.whole;
    ASSERT_EQ(count_runs(a, b, page_a, page_b), want) << i;
    std::int64_t listed = 0;
    for (const PageRun& r : list_runs(a, b, page_a, page_b)) listed += r.rows;
    ASSERT_EQ(listed, want.tokens);
  }
}

}  // namespace
}  // namespace shardline
