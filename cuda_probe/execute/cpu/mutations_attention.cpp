#include <algorithm>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

/// Whether lists do not say what an attend sees, key by key: an index chose, or keys are rows of several
/// tokens.
bool of_rows(const Action& a) { return a.chosen || a.ratio > 1; }

/// Changes the lists of one attend; change(queries, keys) keeps the number of rows, or returns false. What
/// leaves the mask as it was is no mutation.
template <class Change>
bool change_lists(Schedule& s, Random& random, Change change) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != Function::attend || of_rows(a)) return false;
    Tokens queries = copy(flow, a.queries), keys = copy(flow, a.keys);
    const std::vector<bool> before = mask(queries, keys, a.reach);
    if (!change(queries, keys) || mask(queries, keys, a.reach) == before) return false;
    a.queries = flow.tokens(queries);
    a.keys = flow.tokens(keys);
    return true;
  });
}

void shift(Tokens& tokens, std::int64_t by) {
  for (Interval& i : tokens) {
    i.begin += by;
    i.end += by;
  }
}

bool to_padding(Tokens& tokens, Random& random) {
  return at_random(tokens.size(), random, [&](std::size_t i) {
    if (tokens[i].request == kPadding) return false;
    tokens[i].request = kPadding;
    return true;
  });
}

/// change(action, its regions), where the regions are a copy that replaces the old ones if it returns true.
template <class Change>
bool change_regions(Schedule& s, Random& random, Function function, Change change) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    Action& a = flow.actions[i];
    if (a.function != function || of_rows(a)) return false;
    const auto old = flow.regions_of(a);
    std::vector<Region> regions(old.begin(), old.end());
    if (!change(i, a, regions)) return false;
    a.first_region = static_cast<std::uint32_t>(flow.regions.size());
    a.regions = static_cast<std::uint32_t>(regions.size());
    flow.regions.insert(flow.regions.end(), regions.begin(), regions.end());
    return true;
  });
}

/// Whether a row of this log-sum-exp has an effect on what a merge gives.
bool weighs(const Dataflow& flow, OpIndex op, const Action& merge, const Region& lse) {
  for (std::int64_t row = 0; row < lse.rows; ++row) {
    if (contributes(flow, op, merge.rank, {lse.slot, lse.row + row, 1, lse.column, lse.columns}) &&
        sees_some(flow, op, merge, merge.regions - 2, row, 1))
      return true;
  }
  return false;
}

/// Two partial results of one merge, the first of which has an effect.
template <class Change>
bool change_merge(Schedule& s, Random& random, Change change) {
  return change_regions(s, random, Function::merge,
                        [&](std::size_t i, Action& a, std::vector<Region>& regions) {
                          const std::size_t partials = regions.size() / 2 - 1;
                          if (partials < 2) return false;
                          const OpIndex op = op_of_action(*s.flow, i);
                          return at_random(partials, random, [&](std::size_t one) {
                            if (!weighs(*s.flow, op, a, regions[2 * one + 1])) return false;
                            const std::size_t other = (one + 1 + random() % (partials - 1)) % partials;
                            change(regions, 2 * one, 2 * other);
                            return true;
                          });
                        });
}

}  // namespace

bool query_positions_shifted(Schedule& s, Random& random) {
  return change_lists(s, random, [](Tokens& queries, Tokens&) {
    shift(queries, 1);
    return true;
  });
}

bool key_positions_shifted(Schedule& s, Random& random) {
  return change_lists(s, random, [](Tokens&, Tokens& keys) {
    shift(keys, 1);
    return true;
  });
}

bool mask_lost(Schedule& s, Random& random) {
  return change_lists(s, random, [](Tokens& queries, Tokens&) {
    shift(queries, std::int64_t{1} << 40);
    return true;
  });
}

bool padding_as_real(Schedule& s, Random& random) {
  return change_lists(s, random, [&](Tokens& queries, Tokens& keys) {
    return at_random(keys.size(), random, [&](std::size_t i) {
      if (keys[i].request != kPadding || queries.empty()) return false;
      keys[i] = {queries.front().request, 0, keys[i].size()};
      return true;
    });
  });
}

bool keys_as_padding(Schedule& s, Random& random) {
  return change_lists(s, random, [&](Tokens&, Tokens& keys) { return to_padding(keys, random); });
}

bool queries_as_padding(Schedule& s, Random& random) {
  return change_lists(s, random, [&](Tokens& queries, Tokens&) { return to_padding(queries, random); });
}

bool wrong_request(Schedule& s, Random& random) {
  return change_lists(s, random, [&](Tokens& queries, Tokens& keys) {
    return at_random(keys.size(), random, [&](std::size_t i) {
      if (keys[i].request == kPadding || queries.empty()) return false;
      const std::int32_t other = queries[random() % queries.size()].request;
      if (other == keys[i].request || other == kPadding) return false;
      keys[i].request = other;
      return true;
    });
  });
}

bool keys_reordered(Schedule& s, Random& random) {
  return change_lists(s, random, [&](Tokens&, Tokens& keys) {
    if (keys.size() < 2) return false;
    std::swap(keys.front(), keys.back());
    return true;
  });
}

bool kv_owners_swapped(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    return at_random(flow.actions.size(), random, [&](std::size_t j) {
      Action &a = flow.actions[i], &b = flow.actions[j];
      if (a.function != Function::attend || b.function != Function::attend || of_rows(a) || of_rows(b))
        return false;
      const TokenView mine = flow.token_list(a.keys), theirs = flow.token_list(b.keys);
      const TokenView queries = flow.token_list(a.queries);
      if (rows(mine) != rows(theirs) || mask(queries, mine, a.reach) == mask(queries, theirs, a.reach))
        return false;
      std::swap(a.keys, b.keys);
      return true;
    });
  });
}

bool key_forgotten(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::attend,
                        [&](std::size_t, Action& a, std::vector<Region>& regions) {
                          Tokens keys = copy(flow, a.keys);
                          if (keys.empty() || keys.back().size() == 0) return false;
                          Interval last = keys.back();
                          last.begin = last.last();
                          if (sees_nothing(flow.token_list(a.queries), {&last, 1}, a.reach)) return false;
                          keys.back().end = last.begin;
                          --regions[1].rows;
                          a.keys = flow.tokens(keys);
                          return true;
                        });
}

bool kv_row_offset(Schedule& s, Random& random) {
  const Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::attend,
                        [&](std::size_t, Action& a, std::vector<Region>& regions) {
                          if (sees_nothing(flow, a)) return false;
                          ++regions[1].row;
                          if (!fits(flow, a.rank, regions[1])) regions[1].row -= 2;
                          return true;
                        });
}

namespace {

/// Whether each query sees at most one key, and no sink: what it sees has all weight, whatever its score.
bool sees_one_key(const Dataflow& flow, const Action& a) {
  const std::vector<bool> seen = mask(flow, a);
  const auto keys = static_cast<std::ptrdiff_t>(rows(flow.token_list(a.keys)));
  for (auto row = seen.begin(); row != seen.end(); row += keys) {
    if (std::count(row, row + keys, true) > 1) return false;
  }
  return !has_sinks(a);
}

}  // namespace

bool head_offset(Schedule& s, Random& random) {
  const Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::attend,
                        [&](std::size_t, Action& a, std::vector<Region>& regions) {
                          if (sees_nothing(flow, a) || (a.reach.local() && sees_one_key(flow, a)))
                            return false;
                          regions[0].column += a.qk_dim;
                          if (!fits(flow, a.rank, regions[0])) regions[0].column -= 2 * a.qk_dim;
                          return true;
                        });
}

bool kv_head_count(Schedule& s, Random& random) {
  return change_regions(s, random, Function::attend, [&](std::size_t, Action& a, std::vector<Region>&) {
    const bool to_latents = a.cache == CacheRows::heads && a.kv_heads == a.heads;
    a.kv_heads = to_latents || a.cache == CacheRows::latent ? 1 : a.heads;
    a.cache = to_latents ? CacheRows::latent : CacheRows::heads;
    return true;
  });
}

namespace {

std::vector<std::pair<std::int32_t, std::int64_t>> one_by_one(TokenView tokens) {
  std::vector<std::pair<std::int32_t, std::int64_t>> out;
  for (const Interval& i : tokens) {
    for (std::int64_t t = i.begin; t < i.end; t += i.stride) out.emplace_back(i.request, t);
  }
  return out;
}

/// Whether a list of keys begins with those that the queries of an attend see, where they stand. Another
/// chunk of a prefill holds the same keys first; what no query sees there, padding or a later token, may be
/// anything.
bool holds_what_is_seen(const Dataflow& flow, const Action& a, TokenView list) {
  const auto mine = one_by_one(flow.token_list(a.keys)), other = one_by_one(list);
  const std::vector<bool> seen = mask(flow, a);
  for (std::size_t at = 0; at < seen.size(); ++at) {
    const std::size_t key = at % mine.size();
    if (seen[at] && (key >= other.size() || other[key] != mine[key])) return false;
  }
  return true;
}

}  // namespace

bool other_buffer(Schedule& s, Random& random) {
  const Dataflow& flow = *s.flow;
  return change_regions(s, random, Function::attend,
                        [&](std::size_t i, Action& a, std::vector<Region>& regions) {
                          if (sees_nothing(flow, a)) return false;
                          return at_random(flow.actions.size(), random, [&](std::size_t j) {
                            const Action& b = flow.actions[j];
                            if (j == i || b.function != Function::attend || b.rank != a.rank || of_rows(b))
                              return false;
                            const bool chunk = flow.regions_of(b)[1].slot != regions[1].slot;
                            if (chunk && holds_what_is_seen(flow, a, flow.token_list(b.keys))) return false;
                            Region other = flow.regions_of(b)[1];
                            other.rows = regions[1].rows;
                            if (other == regions[1] || !fits(flow, a.rank, other)) return false;
                            regions[1] = other;
                            return true;
                          });
                        });
}

bool merge_forgets(Schedule& s, Random& random) {
  return change_merge(s, random, [](std::vector<Region>& regions, std::size_t one, std::size_t) {
    const auto at = regions.begin() + static_cast<std::ptrdiff_t>(one);
    regions.erase(at, at + 2);
  });
}

bool merge_twice(Schedule& s, Random& random) {
  return change_merge(s, random, [](std::vector<Region>& regions, std::size_t one, std::size_t other) {
    regions[one] = regions[other];
    regions[one + 1] = regions[other + 1];
  });
}

bool merge_wrong_lse(Schedule& s, Random& random) {
  return change_merge(s, random, [](std::vector<Region>& regions, std::size_t one, std::size_t other) {
    regions[one + 1] = regions[other + 1];
  });
}

}  // namespace shardline::mutation
