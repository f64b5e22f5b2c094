#include "planner/layers/host_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

int requests_of(const ContextStep& s) { return s.layout.requests / 2; }

// Rows of `request`'s anchor and of its longest block, as the KV slot has room for.
long long key_rows(const ContextStep& s, int i) { return s.layout.key_rows[static_cast<std::size_t>(i)]; }
long long row_count(const ContextStep& s, int host, int i) {
  return s.layout.fresh_count[static_cast<std::size_t>(host * s.layout.requests + i)];
}

void add(Tokens& list, const Interval& i) {
  if (i.size() > 0) list.push_back(i);
}

}  // namespace

ContextLayout block_layout(const Plan& p, const std::vector<Segment>& requests) {
  const auto count = static_cast<int>(requests.size());
  ContextLayout l;
  l.ranks = p.cp;
  l.requests = 2 * count;  // anchors, then blocks
  for (const Segment& r : requests) l.key_rows.push_back(anchor_rows(r, p));
  for (int r = 0; r < count; ++r)
    l.key_rows.push_back(host_block(requests[static_cast<std::size_t>(r)], r, p.cp, 0).size());
  l.query_rows = l.key_rows;
  for (const long long n : l.key_rows) l.query_message += n;
  l.key_message = l.query_message + static_cast<long long>(count) * p.cp * p[kPassing];
  l.cached_count.assign(static_cast<std::size_t>(l.requests * p.cp), 0);
  for (int host = 0; host < p.cp; ++host) {
    Tokens fresh, keys, results;
    for (int r = 0; r < count; ++r) {
      const Segment& request = requests[static_cast<std::size_t>(r)];
      const long long anchor = anchor_rows(request, p), n = request.fresh;
      l.fresh_count.push_back(host == 0 ? 0 : anchor);
      if (host == 0) {
        add(keys, {kPadding, 0, anchor});
        continue;
      }
      for (Tokens* list : {&fresh, &keys}) {
        add(*list, {r, n, n + p[kQuery]});
        add(*list, {r, 0, anchor - p[kQuery]});
      }
      add(results, {count + r, 0, anchor});
    }
    for (int r = 0; r < count; ++r) {
      const Interval block = host_block(requests[static_cast<std::size_t>(r)], r, p.cp, host);
      l.fresh_count.push_back(block.size());
      for (Tokens* list : {&fresh, &keys, &results}) add(*list, block);
      add(keys, {kPadding, 0, l.key_rows[static_cast<std::size_t>(count + r)] - block.size()});
    }
    add(keys, {kPadding, 0, static_cast<long long>(count) * p.cp * p[kPassing]});
    l.fresh.push_back(fresh);
    l.queries.push_back(std::move(fresh));
    l.keys.push_back(std::move(keys));
    l.results.push_back(std::move(results));
  }
  return l;
}

Interval host_block(const Segment& r, int request, int hosts, int host) {
  const long long size = r.fresh / hosts, longer = r.fresh % hosts;
  const long long begin = host * size + std::min<long long>(host, longer);
  return {request, begin, begin + size + (host < longer ? 1 : 0)};
}

long long anchor_rows(const Segment& r, const Plan& p) { return strategy(p.strategy).extra_rows(r, p); }

std::optional<std::string> check_blocks(const Case& c, const Plan& p) {
  for (const Segment& r : c.batch.prefill) {
    if (r.cached > 0)
      return fmt::format("{} cuts whole documents into blocks: there must be no cached tokens",
                         to_string(p.strategy));
    const long long least = r.fresh / p.cp, first = host_block(r, 0, p.cp, 0).size();
    if (least < 1) return fmt::format("a document of {} tokens has none for some of {} hosts", r.fresh, p.cp);
    if (p[kAnchor] > first)
      return fmt::format("anchor {} exceeds the {} tokens of the first block", p[kAnchor], first);
    if (p[kPassing] > least)
      return fmt::format("passing {} exceeds the {} tokens of a block", p[kPassing], least);
  }
  return std::nullopt;
}

long long first_passed_row(const ContextStep& s) { return s.layout.query_message; }

long long first_local_query(const ContextStep& s, int host) {
  long long row = 0;
  for (int r = 0; r < requests_of(s); ++r) row += row_count(s, host, r);
  return row;
}

long long first_local_key(const ContextStep& s, int request) {
  long long row = 0;
  for (int i = 0; i < requests_of(s) + request; ++i) row += key_rows(s, i);
  return row;
}

OpIndex attend_blocks(ContextStep& s) {
  const int requests = requests_of(s);
  const LocalHeads& h = s.heads;
  const double q_width = h.q * h.qk, out_width = h.q * h.v;
  const auto rows_of = [](SlotId slot, long long row, long long count, double columns) {
    return Region{slot, row, count, 0, static_cast<std::int64_t>(columns)};
  };
  // Positions are those that the mask needs: an anchor, then what was passed, then the local block.
  return s.attend_parts("attend", [&](int host) {
    ContextStep::AttendPart anchors, local;
    long long padded = 0, own = 0;
    for (int r = 0; r < requests; ++r) {
      const long long anchor = row_count(s, host, r), before = key_rows(s, r) + s.p.cp * s.p[kPassing];
      add(anchors.queries, {r, 0, anchor});
      add(local.queries, {r, before, before + row_count(s, host, requests + r)});
      add(local.keys, {host == 0 ? kPadding : r, 0, key_rows(s, r)});
      padded += key_rows(s, r);
      own += anchor;
    }
    anchors.keys = anchors.queries;
    for (int r = 0; r < requests; ++r) {
      const long long before = key_rows(s, r) + s.p.cp * s.p[kPassing],
                      block = row_count(s, host, requests + r);
      add(local.keys, {r, before, before + block});
      add(local.keys, {kPadding, 0, key_rows(s, requests + r) - block});
    }
    for (int from = 0; from < s.p.cp; ++from) {
      for (int r = 0; r < requests; ++r) {
        const long long at = key_rows(s, r) + from * s.p[kPassing];
        add(local.keys, {from < host ? r : kPadding, at, at + s.p[kPassing]});
      }
    }
    const long long all = rows(s.queries(host));
    const auto regions = [&](long long row, long long count, long long keys) {
      return std::vector<Region>{rows_of(s.q, row, count, q_width), rows_of(s.kv, 0, keys, h.kv_width()),
                                 rows_of(s.out, row, count, out_width), rows_of(s.out_lse, row, count, h.q)};
    };
    local.regions = regions(own, all - own, s.layout.key_message);
    if (host == 0) return std::vector{local};
    anchors.regions = regions(0, own, padded);
    return std::vector{anchors, local};
  });
}

double blocks_computed(const Case& c, const Plan& p) {
  const auto triangle = [](double n) { return n * (n + 1) / 2; };
  double exact = 0, computed = 0;
  for (const Segment& r : c.batch.prefill) {
    exact += triangle(static_cast<double>(r.fresh)) * r.count;
    const auto anchor = static_cast<double>(anchor_rows(r, p) - p[kQuery]);
    for (int host = 0; host < p.cp; ++host) {
      const auto block = static_cast<double>(host_block(r, 0, p.cp, host).size());
      const double passed = static_cast<double>(host) * p[kPassing];
      computed += (triangle(block) + (host == 0 ? 0 : block * (anchor + passed))) * r.count;
    }
  }
  return computed / exact;
}

}  // namespace shardline
