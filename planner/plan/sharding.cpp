#include "planner/plan/sharding.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "sim/base/error.hpp"

namespace shardline {

Placement::Placement(int ranks, int requests)
    : ranks_(ranks),
      lengths_(static_cast<std::size_t>(requests), 0),
      held_(static_cast<std::size_t>(requests) * static_cast<std::size_t>(ranks)),
      counts_(held_.size(), 0) {
  SL_CHECK(ranks >= 1 && requests >= 0, "a placement has ranks");
}

void Placement::prefill(int request, long long fresh) {
  const auto first = static_cast<std::size_t>(request) * static_cast<std::size_t>(ranks_);
  // Nobody to share work with, and nothing to cut the tokens for.
  const long long chunks = ranks_ == 1 ? 1 : 2LL * ranks_;
  const long long size = fresh / chunks;
  // Longer chunks: one token each, to whoever holds least; among equals to whoever got fewer.
  std::vector<int> extra(static_cast<std::size_t>(ranks_), 0);
  for (long long rest = fresh % chunks; rest > 0; --rest) {
    int best = -1;
    for (int r = 0; r < ranks_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (extra[i] == 2) continue;
      const auto key = [&](int rank) {
        const auto k = static_cast<std::size_t>(rank);
        return std::pair(counts_[first + k] + extra[k], extra[k]);
      };
      if (best < 0 || key(r) < key(best)) best = r;
    }
    ++extra[static_cast<std::size_t>(best)];
  }
  long long at = lengths_[static_cast<std::size_t>(request)];
  for (long long chunk = 0; chunk < chunks; ++chunk) {
    const auto rank = static_cast<std::size_t>(chunk < ranks_ ? chunk : chunks - 1 - chunk);
    const bool longer = chunk < ranks_ ? extra[rank] >= 1 : extra[rank] == 2;
    const long long end = at + size + (longer ? 1 : 0);
    Tokens& held = held_[first + rank];
    // Chunks that meet in the middle stay apart: kernels tile each by itself.
    if (at < end) held.push_back({request, at, end});
    counts_[first + rank] += end - at;
    at = end;
  }
  lengths_[static_cast<std::size_t>(request)] = at;
}

void Placement::stripe(int request, long long fresh) {
  const auto first = static_cast<std::size_t>(request) * static_cast<std::size_t>(ranks_);
  std::vector<std::size_t> turn(static_cast<std::size_t>(ranks_));
  std::iota(turn.begin(), turn.end(), std::size_t{0});
  std::stable_sort(turn.begin(), turn.end(),
                   [&](std::size_t a, std::size_t b) { return counts_[first + a] < counts_[first + b]; });
  long long& length = lengths_[static_cast<std::size_t>(request)];
  for (long long i = 0; i < std::min<long long>(ranks_, fresh); ++i) {
    const std::size_t rank = first + turn[static_cast<std::size_t>(i)];
    const long long count = (fresh - i + ranks_ - 1) / ranks_, begin = length + i;
    held_[rank].push_back({request, begin, begin + (count - 1) * ranks_ + 1, ranks_});
    counts_[rank] += count;
  }
  length += fresh;
}

void Placement::append(int request, const std::vector<long long>& counts) {
  SL_CHECK(static_cast<int>(counts.size()) == ranks_, "every rank has a count");
  const auto first = static_cast<std::size_t>(request) * static_cast<std::size_t>(ranks_);
  long long& at = lengths_[static_cast<std::size_t>(request)];
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) held_[first + r].push_back({request, at, at + counts[r]});
    counts_[first + r] += counts[r];
    at += counts[r];
  }
}

void Placement::decode(int request, long long tokens) {
  const auto first = static_cast<std::size_t>(request) * static_cast<std::size_t>(ranks_);
  long long& at = lengths_[static_cast<std::size_t>(request)];
  std::vector<std::size_t> turn;  // ranks that hold least: each takes every turn.size()-th token
  while (tokens > 0) {
    const auto counts = std::span(counts_).subspan(first, static_cast<std::size_t>(ranks_));
    const long long least = *std::min_element(counts.begin(), counts.end());
    long long level = std::numeric_limits<long long>::max();  // at which the next rank joins them
    turn.clear();
    for (std::size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] == least) turn.push_back(r);
      if (counts[r] > least) level = std::min(level, counts[r]);
    }
    const auto sharers = static_cast<long long>(turn.size());
    const long long full = tokens / sharers,
                    given = full < level - least ? tokens : (level - least) * sharers;
    for (long long i = 0; i < std::min(sharers, given); ++i) {
      const std::size_t rank = turn[static_cast<std::size_t>(i)];
      const long long count = (given - i + sharers - 1) / sharers, begin = at + i;
      held_[first + rank].push_back(
          {request, begin, begin + (count - 1) * sharers + 1, count == 1 ? 1 : sharers});
      counts[rank] += count;
      compact(held_[first + rank]);
    }
    at += given;
    tokens -= given;
  }
}

void Placement::forget_positions() {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const auto request = static_cast<std::int32_t>(i / static_cast<std::size_t>(ranks_));
    held_[i].clear();
    if (counts_[i] > 0) held_[i].push_back({request, 0, counts_[i]});
  }
}

Placement Placement::of(const std::vector<std::int32_t>& requests) const {
  Placement some(ranks_, static_cast<int>(requests.size()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    some.lengths_[i] = length(requests[i]);
    for (int r = 0; r < ranks_; ++r) {
      const std::size_t at = i * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(r);
      some.held_[at] = held(r, requests[i]);
      for (Interval& interval : some.held_[at]) interval.request = static_cast<std::int32_t>(i);
      some.counts_[at] = count(r, requests[i]);
    }
  }
  return some;
}

namespace {

// Appends `tokens` and padding up to `padded` rows.
void append(Tokens& list, const Tokens& tokens, long long padded) {
  list.insert(list.end(), tokens.begin(), tokens.end());
  const long long missing = padded - rows(tokens);
  if (missing > 0) list.push_back({kPadding, 0, missing});
}

ContextLayout lay_out(int ranks, int requests, const std::vector<Tokens>& fresh,
                      const std::vector<Tokens>& keys, const std::vector<long long>& cached) {
  ContextLayout l;
  l.ranks = ranks;
  l.requests = requests;
  l.cached_count = cached;
  for (int b = 0; b < requests; ++b) {
    long long most_fresh = 0, most_keys = 0, most_cached = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r * requests + b);
      most_fresh = std::max(most_fresh, static_cast<long long>(rows(fresh[i])));
      most_keys = std::max(most_keys, static_cast<long long>(rows(keys[i])));
      most_cached = std::max(most_cached, cached[i]);
    }
    l.query_rows.push_back(most_fresh);
    // Lengths are known before the ranks' sums are: the paper pads to the sum of both maxima.
    l.key_rows.push_back(std::max(most_keys, most_cached + most_fresh));
    l.query_message += l.query_rows.back();
    l.key_message += l.key_rows.back();
  }
  l.fresh.resize(static_cast<std::size_t>(ranks));
  l.queries.resize(l.fresh.size());
  l.keys.resize(l.fresh.size());
  for (std::size_t r = 0; r < l.fresh.size(); ++r) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(requests); ++b) {
      const std::size_t i = r * static_cast<std::size_t>(requests) + b;
      l.fresh_count.push_back(rows(fresh[i]));
      append(l.fresh[r], fresh[i], 0);
      append(l.queries[r], fresh[i], l.query_rows[b]);
      append(l.keys[r], keys[i], l.key_rows[b]);
    }
  }
  return l;
}

}  // namespace

ContextLayout dealt_layout(const std::vector<Segment>& requests, int ranks, const Placement* before,
                           const std::function<void(Placement&, int, long long)>& deal) {
  const auto count = static_cast<int>(requests.size());
  Placement after(ranks, count);
  if (before) {
    SL_CHECK(before->ranks() == ranks && before->requests() == count, "the placement is of this case");
    after = *before;
  }
  std::vector<Tokens> fresh, keys;
  std::vector<long long> cached;
  for (int b = 0; b < count; ++b) {
    const Segment& r = requests[static_cast<std::size_t>(b)];
    if (!before && r.cached > 0) deal(after, b, r.cached);
    SL_CHECK(after.length(b) == r.cached, "the placement holds the cached tokens");
  }
  Placement joined = after;
  for (int b = 0; b < count; ++b) deal(joined, b, requests[static_cast<std::size_t>(b)].fresh);
  for (int r = 0; r < ranks; ++r) {
    for (int b = 0; b < count; ++b) {
      const long long first = requests[static_cast<std::size_t>(b)].cached;
      Tokens own;  // no interval holds tokens of two turns
      for (const Interval& i : joined.held(r, b)) {
        if (i.begin >= first) own.push_back(i);
      }
      Tokens all = after.held(r, b);
      all.insert(all.end(), own.begin(), own.end());
      cached.push_back(after.count(r, b));
      fresh.push_back(std::move(own));
      keys.push_back(std::move(all));
    }
  }
  return lay_out(ranks, count, fresh, keys, cached);
}

ContextLayout context_layout(const std::vector<Segment>& requests, int ranks, const Placement* before) {
  return dealt_layout(requests, ranks, before,
                      [](Placement& p, int request, long long fresh) { p.prefill(request, fresh); });
}

std::vector<long long> interval_counts(long long fresh, int ranks, const std::vector<long long>& partition) {
  if (!partition.empty()) return partition;
  std::vector<long long> counts(static_cast<std::size_t>(ranks), fresh / ranks);
  for (std::size_t r = 0; r < static_cast<std::size_t>(fresh % ranks); ++r) ++counts[r];
  return counts;
}

ContextLayout interval_layout(const std::vector<Segment>& requests, int ranks, const Placement* before,
                              const std::vector<long long>& partition) {
  return dealt_layout(requests, ranks, before, [&](Placement& p, int request, long long fresh) {
    p.append(request, interval_counts(fresh, ranks, partition));
  });
}

ContextLayout chain_layout(const std::vector<Segment>& requests, int ranks,
                           const std::vector<long long>& partition) {
  ContextLayout l = interval_layout(requests, ranks, nullptr, partition);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    Tokens& keys = l.keys[r];
    keys.clear();
    long long row = 0;
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const long long fresh = l.fresh_count[r * requests.size() + b];
      long long before = 0;
      for (std::size_t earlier = 0; earlier < r; ++earlier)
        before += l.fresh_count[earlier * requests.size() + b];
      l.first_key.push_back(row + before);
      if (before > 0) keys.push_back({kPadding, 0, before});
      if (fresh > 0) keys.push_back({static_cast<std::int32_t>(b), before, before + fresh});
      row += before + fresh;
    }
  }
  return l;
}

Tokens cached_tokens(const ContextLayout& l, int rank, int request) {
  Tokens kept;
  long long left = l.cached_count[static_cast<std::size_t>(rank * l.requests + request)];
  for (const Interval& i : l.keys[static_cast<std::size_t>(rank)]) {
    if (i.request != request || left == 0) continue;
    kept.push_back(i);
    left -= i.size();
  }
  SL_CHECK(left == 0, "cached tokens stand in front of new ones");
  return kept;
}

ContextLayout without_cached_before(const ContextLayout& l, const std::vector<long long>& first) {
  SL_CHECK(l.first_key.empty() && l.results.empty(), "a layout of tokens that are dealt out");
  std::vector<Tokens> fresh, keys;
  std::vector<long long> cached;
  for (int k = 0; k < l.ranks; ++k) {
    for (int b = 0; b < l.requests; ++b) {
      Tokens own, all;
      for (Interval i : cached_tokens(l, k, b)) {
        const long long skip = first[static_cast<std::size_t>(b)] - i.begin;
        if (skip > 0) i.begin += (skip + i.stride - 1) / i.stride * i.stride;
        if (i.begin < i.end) all.push_back(i);
      }
      for (const Interval& i : l.fresh[static_cast<std::size_t>(k)]) {
        if (i.request == b) own.push_back(i);
      }
      cached.push_back(rows(all));
      all.insert(all.end(), own.begin(), own.end());
      fresh.push_back(std::move(own));
      keys.push_back(std::move(all));
    }
  }
  return lay_out(l.ranks, l.requests, fresh, keys, cached);
}

ContextLayout grouped_layout(const ContextLayout& l, int size) {
  SL_CHECK(l.ranks % size == 0 && l.first_key.empty() && l.results.empty(), "a layout of whole groups");
  std::vector<Tokens> fresh, keys;
  std::vector<long long> cached;
  for (int k = 0; k < l.ranks; ++k) {
    for (int b = 0; b < l.requests; ++b) {
      Tokens own, all;
      for (int member = k - k % size; member < k - k % size + size; ++member) {
        for (const Interval& i : l.fresh[static_cast<std::size_t>(member)]) {
          if (i.request == b) own.push_back(i);
        }
        const Tokens kept = cached_tokens(l, member, b);
        all.insert(all.end(), kept.begin(), kept.end());
      }
      cached.push_back(rows(all));
      all.insert(all.end(), own.begin(), own.end());
      fresh.push_back(std::move(own));
      keys.push_back(std::move(all));
    }
  }
  return lay_out(l.ranks, l.requests, fresh, keys, cached);
}

ContextLayout decode_layout(const std::vector<long long>& contexts, int ranks, int offset) {
  const auto batch = static_cast<int>(contexts.size());
  Placement cache(ranks, batch);
  for (int b = 0; b < batch; ++b) cache.prefill(b, contexts[static_cast<std::size_t>(b)]);
  std::vector<std::size_t> order(contexts.size()), turn(order);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return contexts[a] > contexts[b]; });
  for (std::size_t i = 0; i < order.size(); ++i) turn[order[i]] = i;
  const auto last = static_cast<std::int32_t>(order.back());
  std::vector<Tokens> fresh, keys;
  std::vector<long long> cached;
  for (int r = 0; r < ranks; ++r) {
    for (int b = 0; b < batch; ++b) {
      const long long context = contexts[static_cast<std::size_t>(b)];
      keys.push_back(cache.held(r, b));
      cached.push_back(rows(keys.back()));
      fresh.emplace_back();
      if ((static_cast<int>(turn[static_cast<std::size_t>(b)]) + offset) % ranks == r)
        fresh.back().push_back({b, context - 1, context});
    }
  }
  ContextLayout l = lay_out(ranks, batch, fresh, keys, cached);
  // Queries are padded to a multiple of the ranks over the whole batch, not request by request; keys are all
  // cached already. A kernel attends to the padding as well (Table 8: one request on two ranks takes two
  // kernels of one request), so it is a query like any: the shortest request's, which no rank without a share
  // in the last round has.
  l.query_message = (batch + ranks - 1) / ranks;
  for (std::size_t r = 0; r < l.queries.size(); ++r) {
    l.queries[r] = l.fresh[r];
    if (rows(l.queries[r]) < l.query_message)
      l.queries[r].push_back({last, contexts[order.back()] - 1, contexts[order.back()]});
  }
  l.key_message = 0;
  for (std::size_t b = 0; b < l.key_rows.size(); ++b) {
    l.query_rows[b] = 1;
    l.key_rows[b] = (contexts[b] + ranks - 1) / ranks;
    l.key_message += l.key_rows[b];
  }
  for (std::size_t r = 0; r < l.keys.size(); ++r) {
    l.keys[r].clear();
    for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b)
      append(l.keys[r], keys[r * static_cast<std::size_t>(batch) + b], l.key_rows[b]);
  }
  return l;
}

}  // namespace shardline
