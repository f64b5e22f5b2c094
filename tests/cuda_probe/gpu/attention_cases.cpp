#include "tests/cuda_probe/gpu/attention_cases.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "cuda_probe/kernels/attend_plan.hpp"
#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {

namespace {

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Attention of one query over keys 0, ..., keys - 1 that it sees, one at a time, appended to `result`.
void attend(Attended& result, std::int64_t keys, int qk_dim, int v_dim, double scale,
            const std::function<bool(std::int64_t)>& sees, const std::function<float(int)>& q,
            const std::function<float(std::int64_t, int)>& k,
            const std::function<float(std::int64_t, int)>& v) {
  double sum = 0;
  std::vector<double> values(size_of(v_dim));
  for (std::int64_t j = 0; j < keys; ++j) {
    if (!sees(j)) continue;
    double dot = 0;
    for (int d = 0; d < qk_dim; ++d) dot += static_cast<double>(q(d)) * static_cast<double>(k(j, d));
    const double weight = std::exp(scale * dot);
    sum += weight;
    for (int d = 0; d < v_dim; ++d) values[size_of(d)] += weight * static_cast<double>(v(j, d));
  }
  for (const double value : values) result.out.push_back(sum > 0 ? static_cast<float>(value / sum) : 0.0f);
  result.lse.push_back(static_cast<float>(std::log(sum)));
}

double scale_of(int width) { return static_cast<double>(1 / std::sqrt(static_cast<float>(width))); }

/// Segment and position of each row; padding: {kPadding, 0}.
std::vector<std::pair<std::int32_t, std::int64_t>> rows_of(const Tokens& tokens) {
  std::vector<std::pair<std::int32_t, std::int64_t>> result;
  for (const Interval& i : tokens) {
    for (std::int64_t p = i.begin; p < i.end; p += i.stride) result.emplace_back(i.request, p);
  }
  return result;
}

struct PrefillData {
  std::vector<Bf16> q, k, v;
};
PrefillData data_of(const PrefillCase& c) {
  const auto values = [](std::int64_t rows, int heads, int width, std::uint64_t seed) {
    return random_bf16(size_of(rows * heads * width), seed);
  };
  PrefillData d{values(rows(c.queries), c.q_heads, c.qk_dim, 1),
                values(rows(c.keys), c.kv_heads, c.qk_dim, 2), values(rows(c.keys), c.kv_heads, c.v_dim, 3)};
  for (Bf16& x : d.q) x = to_bf16(4 * to_float(x));  // weights far from equal
  return d;
}

/// Where each sequence's cache lies, and the cache as rows of one matrix with rows of nobody between.
struct Cache {
  std::vector<std::int64_t> row;  // of the sequences' rows one after the other
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> pages;
  int most_pages = 0;
  std::int64_t rows = 0;
};
Cache cache_of(const std::vector<int>& kv_rows, int page_rows) {
  Cache c;
  if (page_rows == 0) {
    for (const int n : kv_rows) {
      c.begin.push_back(c.rows + 1);
      for (int i = 0; i < n; ++i) c.row.push_back(c.begin.back() + i);
      c.rows += n + 2;
    }
    return c;
  }
  const auto pages_of = [&](int n) { return (n + page_rows - 1) / page_rows; };
  int total = 0;
  for (const int n : kv_rows) {
    c.most_pages = std::max(c.most_pages, pages_of(n));
    total += pages_of(n);
  }
  c.most_pages = std::max(c.most_pages, 1);
  int next = total;  // pages in falling order, page 0 nobody's
  for (const int n : kv_rows) {
    for (int p = 0; p < c.most_pages; ++p) c.pages.push_back(p < pages_of(n) ? next-- : 1 << 30);
    for (int i = 0; i < n; ++i) {
      const auto page = c.pages[c.pages.size() - size_of(c.most_pages) + size_of(i / page_rows)];
      c.row.push_back(std::int64_t{page} * page_rows + i % page_rows);
    }
  }
  c.rows = std::int64_t{total + 1} * page_rows;
  return c;
}

/// Puts `rows` of `width` values at their places in the cache; the rest is NaN.
std::vector<Bf16> place(const Cache& cache, const std::vector<Bf16>& rows, std::int64_t width) {
  std::vector<Bf16> result(size_of(cache.rows * width), Bf16{0x7fc0});
  for (std::size_t i = 0; i < cache.row.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i) * width, width,
                result.begin() + static_cast<std::ptrdiff_t>(cache.row[i] * width));
  return result;
}

std::int64_t total(const std::vector<int>& rows) { return std::accumulate(rows.begin(), rows.end(), 0LL); }

/// Gives both kinds of DecodeArguments the cache's place and results, runs them and reads the results.
template <class A, class Start>
Attended run_decode(Gpu& gpu, A& a, const std::vector<int>& kv_rows, const Cache& cache, int page_rows,
                    int v_dim, int splits, Start start) {
  const std::int64_t sequences = static_cast<std::int64_t>(kv_rows.size()), cells = sequences * a.q_heads;
  OnDevice<std::int32_t> lengths(gpu, std::vector<std::int32_t>(kv_rows.begin(), kv_rows.end()));
  OnDevice<std::int64_t> begin(gpu, cache.begin);
  OnDevice<std::int32_t> pages(gpu, cache.pages);
  OnDevice<Bf16> out(gpu, size_of(cells * v_dim));
  OnDevice<float> lse(gpu, size_of(cells)), partial_out(gpu, size_of(splits * cells * v_dim)),
      partial_lse(gpu, size_of(splits * cells));
  a.kv_begin = page_rows == 0 ? begin.p : nullptr;
  a.kv_rows = lengths.p;
  a.pages = page_rows == 0 ? nullptr : pages.p;
  a.most_pages = cache.most_pages;
  a.page_rows = page_rows;
  a.out = out.p;
  a.out_row = std::int64_t{a.q_heads} * v_dim;
  a.out_head = v_dim;
  a.lse = lse.p;
  a.lse_row = a.q_heads;
  a.sequences = static_cast<std::int32_t>(sequences);
  a.splits = splits;
  a.partial_out = partial_out.p;
  a.partial_lse = partial_lse.p;
  start(gpu.stream());
  return {floats(out.get()), lse.get()};
}

}  // namespace

Attended run(Gpu& gpu, const PrefillCase& c) {
  const PrefillData d = data_of(c);
  const AttendPlan plan = plan_attend(c.queries, c.keys);
  const std::int64_t q_rows = rows(c.queries), kv_rows = rows(c.keys), cells = q_rows * c.q_heads;
  std::vector<Bf16> keys = d.k, values = d.v;
  if (c.interleaved) {
    keys.clear();
    for (std::int64_t i = 0; i < kv_rows * c.kv_heads; ++i) {
      keys.insert(keys.end(), d.k.begin() + i * c.qk_dim, d.k.begin() + (i + 1) * c.qk_dim);
      keys.insert(keys.end(), d.v.begin() + i * c.v_dim, d.v.begin() + (i + 1) * c.v_dim);
    }
  } else if (c.qk_dim != c.v_dim) {  // one stride serves both
    values.assign(keys.size(), Bf16{0x7fc0});
    for (std::int64_t i = 0; i < kv_rows * c.kv_heads; ++i)
      std::copy_n(d.v.begin() + i * c.v_dim, c.v_dim, values.begin() + i * c.qk_dim);
  }
  OnDevice<Bf16> q(gpu, d.q), k(gpu, keys), v(gpu, values), out(gpu, size_of(cells * c.v_dim));
  OnDevice<float> lse(gpu, size_of(cells));
  OnDevice<Visible> visible(gpu, plan.visible);
  OnDevice<std::int32_t> codes(gpu, plan.codes), run_begin(gpu, plan.run_begin), order(gpu, plan.order);
  OnDevice<KeyRun> runs(gpu, plan.runs);
  PrefillArguments a{};
  a.q = q.p;
  a.k = k.p;
  a.v = c.interleaved ? k.p + c.qk_dim : v.p;
  a.q_row = std::int64_t{c.q_heads} * c.qk_dim;
  a.q_head = c.qk_dim;
  a.kv_head = c.interleaved ? c.qk_dim + c.v_dim : c.qk_dim;
  a.kv_row = c.kv_heads * a.kv_head;
  a.out = out.p;
  a.out_row = std::int64_t{c.q_heads} * c.v_dim;
  a.out_head = c.v_dim;
  a.lse = lse.p;
  a.lse_row = c.q_heads;
  a.q_rows = static_cast<std::int32_t>(q_rows);
  a.kv_rows = static_cast<std::int32_t>(kv_rows);
  a.q_heads = c.q_heads;
  a.kv_heads = c.kv_heads;
  a.qk_dim = c.qk_dim;
  a.v_dim = c.v_dim;
  a.scale = static_cast<float>(scale_of(c.qk_dim));
  a.visible = visible.p;
  a.codes = codes.p;
  a.runs = runs.p;
  a.run_begin = run_begin.p;
  a.order = order.p;
  gpu.prefill(gpu.stream(), a);
  return {floats(out.get()), lse.get()};
}

Attended naive(const PrefillCase& c) {
  const PrefillData d = data_of(c);
  const auto queries = rows_of(c.queries), keys = rows_of(c.keys);
  Attended result;
  for (std::size_t r = 0; r < queries.size(); ++r) {
    for (int h = 0; h < c.q_heads; ++h) {
      const auto at = [&](std::int64_t j) { return size_of(j * c.kv_heads + h / (c.q_heads / c.kv_heads)); };
      attend(
          result, static_cast<std::int64_t>(keys.size()), c.qk_dim, c.v_dim, scale_of(c.qk_dim),
          [&](std::int64_t j) {
            const auto& [request, position] = keys[size_of(j)];
            return request != kPadding && request == queries[r].first && position <= queries[r].second;
          },
          [&](int i) {
            return to_float(d.q[(r * size_of(c.q_heads) + size_of(h)) * size_of(c.qk_dim) + size_of(i)]);
          },
          [&](std::int64_t j, int i) { return to_float(d.k[at(j) * size_of(c.qk_dim) + size_of(i)]); },
          [&](std::int64_t j, int i) { return to_float(d.v[at(j) * size_of(c.v_dim) + size_of(i)]); });
    }
  }
  return result;
}

Attended run(Gpu& gpu, const DecodeCase& c) {
  const std::int64_t width = std::int64_t{c.kv_heads} * c.head_dim;
  const Cache cache = cache_of(c.kv_rows, c.page_rows);
  const auto values = [&](std::uint64_t seed) {
    return place(cache, random_bf16(size_of(total(c.kv_rows) * width), seed), width);
  };
  OnDevice<Bf16> q(gpu, random_bf16(c.kv_rows.size() * size_of(c.q_heads * c.head_dim), 1));
  OnDevice<Bf16> k(gpu, values(2)), v(gpu, values(3));
  DecodeArguments a{};
  a.q = q.p;
  a.q_row = std::int64_t{c.q_heads} * c.head_dim;
  a.q_head = c.head_dim;
  a.k = k.p;
  a.v = v.p;
  a.kv_row = width;
  a.kv_head = c.head_dim;
  a.q_heads = c.q_heads;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim;
  a.scale = static_cast<float>(scale_of(c.head_dim));
  return run_decode(gpu, a, c.kv_rows, cache, c.page_rows, c.head_dim, c.splits,
                    [&](Stream s) { gpu.decode(s, a); });
}

Attended naive(const DecodeCase& c) {
  const std::size_t width = size_of(c.kv_heads * c.head_dim), dim = size_of(c.head_dim);
  const auto q = random_floats(c.kv_rows.size() * size_of(c.q_heads) * dim, 1);
  const auto k = random_floats(size_of(total(c.kv_rows)) * width, 2);
  const auto v = random_floats(size_of(total(c.kv_rows)) * width, 3);
  const auto rounded = [](float x) { return to_float(to_bf16(x)); };
  Attended result;
  std::size_t first = 0;
  for (std::size_t s = 0; s < c.kv_rows.size(); first += size_of(c.kv_rows[s++])) {
    for (int h = 0; h < c.q_heads; ++h) {
      const std::size_t head = size_of(h / (c.q_heads / c.kv_heads)) * dim;
      const auto value = [&](const std::vector<float>& m) {
        return [&, head](std::int64_t j, int i) {
          return rounded(m[(first + size_of(j)) * width + head + size_of(i)]);
        };
      };
      attend(
          result, c.kv_rows[s], c.head_dim, c.head_dim, scale_of(c.head_dim),
          [](std::int64_t) { return true; },
          [&](int i) { return rounded(q[(s * size_of(c.q_heads) + size_of(h)) * dim + size_of(i)]); },
          value(k), value(v));
    }
  }
  return result;
}

Attended run(Gpu& gpu, const MlaCase& c) {
  constexpr std::int64_t kWidth = kLatent + kRotary;
  const Cache cache = cache_of(c.kv_rows, c.page_rows);
  OnDevice<Bf16> q(gpu, random_bf16(c.kv_rows.size() * size_of(c.q_heads * kWidth), 1));
  const std::vector<Bf16> rows = place(cache, random_bf16(size_of(total(c.kv_rows) * kWidth), 2), kWidth);
  OnDevice<Bf16> kv(gpu, rows);
  MlaDecodeArguments a{};
  a.q = q.p;
  a.q_row = c.q_heads * kWidth;
  a.q_head = kWidth;
  a.kv = kv.p;
  a.kv_row = kWidth;
  a.cache_rows = static_cast<std::int64_t>(rows.size()) / kWidth;
  a.q_heads = c.q_heads;
  a.scale = static_cast<float>(scale_of(192));
  return run_decode(gpu, a, c.kv_rows, cache, c.page_rows, kLatent, c.splits,
                    [&](Stream s) { gpu.mla_decode(s, a); });
}

Attended naive(const MlaCase& c) {
  constexpr std::size_t kWidth = kLatent + kRotary;
  const auto q = floats(random_bf16(c.kv_rows.size() * size_of(c.q_heads) * kWidth, 1));
  const auto kv = floats(random_bf16(size_of(total(c.kv_rows)) * kWidth, 2));
  Attended result;
  std::size_t first = 0;
  for (std::size_t s = 0; s < c.kv_rows.size(); first += size_of(c.kv_rows[s++])) {
    for (int h = 0; h < c.q_heads; ++h) {
      const auto value = [&](std::int64_t j, int i) {
        return kv[(first + size_of(j)) * kWidth + size_of(i)];
      };
      attend(
          result, c.kv_rows[s], kLatent + kRotary, kLatent, scale_of(192), [](std::int64_t) { return true; },
          [&](int i) { return q[(s * size_of(c.q_heads) + size_of(h)) * kWidth + size_of(i)]; }, value,
          value);
    }
  }
  return result;
}

double excess(const std::vector<float>& got, const std::vector<float>& wanted, double absolute,
              double relative) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (got.size() != wanted.size()) return kInfinite;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto g = static_cast<double>(got[i]), w = static_cast<double>(wanted[i]);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    if (!std::isfinite(g) || !std::isfinite(w)) return kInfinite;
    most = std::max(most, std::abs(g - w) - absolute - relative * std::abs(w));
  }
  return most;
}

}  // namespace shardline
