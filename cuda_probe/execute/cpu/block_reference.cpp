#include "cuda_probe/execute/cpu/block_reference.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "cuda_probe/execute/cpu/reference.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

struct Document {
  Eigen::Index first = 0, tokens = 0;         // rows of the document; its query's rows follow
  Eigen::Index anchor_first = 0, anchor = 0;  // rows of its anchor as a request of its own
  std::vector<Eigen::Index> begin;            // of each host's block, and the end of the last
  int host_of(Eigen::Index token) const {
    return static_cast<int>(std::upper_bound(begin.begin(), begin.end(), token) - begin.begin()) - 1;
  }
};

std::vector<Document> documents(const Problem& p) {
  const std::size_t count = p.lengths.size() / 2;
  SL_CHECK(p.lengths.size() == 2 * count, "every document has an anchor");
  std::vector<Document> all(count);
  Eigen::Index row = 0;
  for (std::size_t r = 0; r < 2 * count; ++r) {
    if (r < count) {
      all[r].first = row;
      all[r].tokens = p.lengths[r] - p.blocks.query;
      all[r].begin.assign(1, 0);
      for (int host = 0; host < p.blocks.hosts; ++host) {
        const Eigen::Index rest = all[r].tokens - all[r].begin.back(), left = p.blocks.hosts - host;
        all[r].begin.push_back(all[r].begin.back() + (rest + left - 1) / left);
      }
    } else {
      all[r - count].anchor_first = row;
      all[r - count].anchor = p.lengths[r];
      SL_CHECK(p.lengths[r] == anchor_length(p.blocks, all[r - count].tokens), "an anchor has its length");
    }
    row += p.lengths[r];
  }
  return all;
}

// The row that the anchor's row i repeats.
Eigen::Index repeated(const BlockDefinition& b, const Document& d, Eigen::Index i) {
  return i < b.query ? d.first + d.tokens + i : d.first + i - b.query;
}

// Tokens of host `host`'s block that it passes on for one KV head: the highest scores, earlier ones first.
std::set<Eigen::Index> passed(const Document& d, int host, std::int64_t keep, const Matrix<double>& scores,
                              Eigen::Index kv_head) {
  std::set<std::pair<double, Eigen::Index>> order;
  for (Eigen::Index t = d.begin[static_cast<std::size_t>(host)];
       t < d.begin[static_cast<std::size_t>(host) + 1]; ++t)
    order.insert({-scores(d.first + t, kv_head), t});
  std::set<Eigen::Index> out;
  for (const auto& [score, token] : order) {
    if (static_cast<std::int64_t>(out.size()) < keep) out.insert(token);
  }
  return out;
}

Matrix<double> retaining_scores(const Problem& p, const Tensors<double>& t) {
  Matrix<double> both(t[Whole::query].rows(), t[Whole::query].cols() + t[Whole::kv].cols());
  both << t[Whole::query], t[Whole::kv];
  Matrix<double> inner = both * t[Whole::retaining_up_weight];
  for (Eigen::Index i = 0; i < inner.size(); ++i) inner.data()[i] /= 1 + std::exp(-inner.data()[i]);
  SL_CHECK(t[Whole::retaining_down_weight].cols() == p.kv_heads, "one score per KV head");
  return inner * t[Whole::retaining_down_weight];
}

// How often each token of a document sees each, for one KV head.
Matrix<double> sights(const Problem& p, const Document& d, const Matrix<double>& scores,
                      Eigen::Index kv_head) {
  const Eigen::Index rows = d.tokens + p.blocks.query;
  Matrix<double> times = Matrix<double>::Zero(d.tokens, rows);
  for (Eigen::Index q = 0; q < d.tokens; ++q) {
    const int host = d.host_of(q);
    for (Eigen::Index k = d.begin[static_cast<std::size_t>(host)]; k <= q; ++k) times(q, k) += 1;
    if (host == 0) continue;
    for (Eigen::Index i = 0; i < d.anchor; ++i) times(q, repeated(p.blocks, d, i) - d.first) += 1;
  }
  for (int from = 0; from < p.blocks.hosts && p.blocks.retaining > 0; ++from) {
    for (const Eigen::Index k : passed(d, from, p.blocks.passing, scores, kv_head)) {
      for (Eigen::Index q = d.begin[static_cast<std::size_t>(from) + 1]; q < d.tokens; ++q) times(q, k) += 1;
    }
  }
  return times;
}

// Softmax over keys, each as often as it is seen.
void attend(const Problem& p, const Tensors<double>& t, int head, Eigen::Index first_query,
            Eigen::Index first_key, const Matrix<double>& times, Matrix<double>& out) {
  const Eigen::Index key = (head / (p.q_heads / p.kv_heads)) * (p.qk_dim + p.v_dim), value = key + p.qk_dim;
  const double scale = p.scale > 0 ? p.scale : 1 / std::sqrt(static_cast<double>(p.qk_dim));
  const auto q = t[Whole::query].block(first_query, head * p.qk_dim, times.rows(), p.qk_dim);
  const auto k = t[Whole::kv].block(first_key, key, times.cols(), p.qk_dim);
  const auto v = t[Whole::kv].block(first_key, value, times.cols(), p.v_dim);
  Matrix<double> weights = q * k.transpose() * scale;
  weights.array() -= weights.maxCoeff();
  weights = weights.array().exp() * times.array();
  for (Eigen::Index row = 0; row < weights.rows(); ++row)
    out.row(first_query + row).segment(head * p.v_dim, p.v_dim) =
        weights.row(row) * v / weights.row(row).sum();
}

}  // namespace

std::int64_t anchor_length(const BlockDefinition& b, std::int64_t document) {
  return b.query + (b.anchor > 0 ? b.anchor : (document + b.hosts - 1) / b.hosts);
}

void copy_anchors(const Problem& p, Matrix<double>& rows) {
  for (const Document& d : documents(p)) {
    for (Eigen::Index i = 0; i < d.anchor; ++i)
      rows.row(d.anchor_first + i) = rows.row(repeated(p.blocks, d, i));
  }
}

Matrix<double> block_attention(const Problem& p, const Tensors<double>& t) {
  SL_CHECK(p.cache == CacheRows::heads, "blocks are defined for keys and values of their own");
  SL_CHECK(!p.reach.local() && !p.sinks, "blocks are defined for full attention without sinks");
  Matrix<double> scores;
  if (p.blocks.retaining > 0) scores = retaining_scores(p, t);
  Matrix<double> out = Matrix<double>::Zero(t[Whole::query].rows(), p.q_heads * p.v_dim);
  for (const Document& d : documents(p)) {
    Matrix<double> causal = Matrix<double>::Zero(d.anchor, d.anchor);
    for (Eigen::Index q = 0; q < d.anchor; ++q) causal.row(q).head(q + 1).setOnes();
    for (int head = 0; head < p.q_heads; ++head) {
      attend(p, t, head, d.first, d.first, sights(p, d, scores, head / (p.q_heads / p.kv_heads)), out);
      attend(p, t, head, d.anchor_first, d.anchor_first, causal, out);
    }
  }
  return out;
}

double distance_to_exact(const Problem& p) {
  const Tensors<double> t = reference(p);
  const Matrix<double> exact = plain_attention(p, t[Whole::query], t[Whole::kv]);
  double difference = 0, size = 0;
  for (const Document& d : documents(p)) {
    difference +=
        (t[Whole::attention_output].middleRows(d.first, d.tokens) - exact.middleRows(d.first, d.tokens))
            .squaredNorm();
    size += exact.middleRows(d.first, d.tokens).squaredNorm();
  }
  return std::sqrt(difference / size);
}

}  // namespace shardline
