#include "cuda_probe/execute/cpu/compressed_reference.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cuda_probe/execute/cpu/reference.hpp"

namespace shardline {

namespace {

/// Uniform in [-1, 1), the same bits everywhere.
Matrix<double> uniform(std::mt19937_64& random, Eigen::Index rows, Eigen::Index columns) {
  Matrix<double> m(rows, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i)
    m.data()[i] = static_cast<double>(random() >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1;
  return m;
}

/// Row `number` of a request whose first token is in row `first`: each channel by itself, over all tokens.
Eigen::RowVectorXd row_of(const RowDefinition& d, const Matrix<double>& value, const Matrix<double>& gate,
                          const Matrix<double>& bias, std::int64_t first, std::int64_t number) {
  const Eigen::Index width = value.cols() / d.parts;
  Eigen::RowVectorXd out(width);
  for (Eigen::Index channel = 0; channel < width; ++channel) {
    double sum = 0, weights = 0;
    for (int part = 0; part < d.parts; ++part) {
      const std::int64_t window = number - (d.parts - 1 - part);
      if (window < 0) continue;
      for (int place = 0; place < d.ratio; ++place) {
        const Eigen::Index token = first + window * d.ratio + place, column = part * width + channel;
        const double weight = std::exp(gate(token, column) + bias(place, column));
        weights += weight;
        sum += weight * value(token, column);
      }
    }
    out(channel) = sum / weights;
  }
  double squares = 0;
  for (Eigen::Index channel = 0; channel < width; ++channel) squares += out(channel) * out(channel);
  return out / std::sqrt(squares / static_cast<double>(width) + 1e-6);
}

void set_rows(const RowDefinition& d, std::mt19937_64& random, Tensors<double>& t, int width, bool of_index) {
  const Eigen::Index tokens = t.first_row.back(), columns = Eigen::Index{d.parts} * width;
  Matrix<double>&value = t[of_index ? Whole::index_row_value : Whole::row_value],
  &gate = t[of_index ? Whole::index_row_gate : Whole::row_gate],
  &bias = t[of_index ? Whole::index_row_bias : Whole::row_bias],
  &row = t[of_index ? Whole::index_key : Whole::row];
  value = uniform(random, tokens, columns);
  gate = uniform(random, tokens, columns);
  bias = uniform(random, d.ratio, columns);
  row = Matrix<double>::Zero(tokens, width);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    const std::int64_t first = t.first_row[r], count = (t.first_row[r + 1] - first) / d.ratio;
    for (std::int64_t n = 0; n < count; ++n) row.row(first + n) = row_of(d, value, gate, bias, first, n);
  }
}

/// The rows of a token in order of their scores. `gap`: of the last one that is chosen to the next.
std::vector<std::int64_t> ordered(const Problem& p, const Tensors<double>& t, std::int64_t first,
                                  std::int64_t token, double& gap) {
  const Matrix<double>&query = t[Whole::index_query], &weight = t[Whole::index_weight],
        &key = t[Whole::index_key];
  const std::int64_t count = (token - first + 1) / p.rows.ratio;
  std::vector<double> scores;
  std::vector<std::int64_t> order;
  for (std::int64_t n = 0; n < count; ++n) {
    double score = 0;
    for (int h = 0; h < p.index_heads; ++h) {
      double dot = 0;
      for (int i = 0; i < p.index_dim; ++i) dot += query(token, h * p.index_dim + i) * key(first + n, i);
      score += weight(token, h) * std::max(0.0, dot);
    }
    scores.push_back(score);
    order.push_back(n);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return scores[static_cast<std::size_t>(i)] > scores[static_cast<std::size_t>(j)];
  });
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const double step =
        scores[static_cast<std::size_t>(order[i])] - scores[static_cast<std::size_t>(order[i + 1])];
    if (static_cast<int>(i) + 1 == p.top_k && step != 0) gap = std::min(gap, step);
  }
  return order;
}

/// An index whose choices single precision makes, too: scores are equal, or no closer than this.
void set_choice(const Problem& p, std::mt19937_64& random, Tensors<double>& t) {
  constexpr double kLeastGap = 1e-4;
  constexpr std::uint64_t kWithoutWeight = 5;  // one token in so many scores all rows 0: the first are chosen
  const Eigen::Index tokens = t.first_row.back();
  t[Whole::index_query] = uniform(random, tokens, Eigen::Index{p.index_heads} * p.index_dim);
  t[Whole::index_weight] = uniform(random, tokens, p.index_heads);
  t[Whole::chosen] = Matrix<double>::Constant(tokens, p.top_k, -1);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    for (std::int64_t token = t.first_row[r]; token < t.first_row[r + 1]; ++token) {
      if (random() % kWithoutWeight == 0) t[Whole::index_weight].row(token).setZero();
      std::vector<std::int64_t> order;
      for (double gap = 0; gap < kLeastGap;) {
        gap = 1;
        order = ordered(p, t, t.first_row[r], token, gap);
        if (gap < kLeastGap)
          t[Whole::index_query].row(token) = uniform(random, 1, t[Whole::index_query].cols());
      }
      for (std::size_t i = 0; i < order.size() && i < static_cast<std::size_t>(p.top_k); ++i)
        t[Whole::chosen](token, static_cast<Eigen::Index>(i)) = static_cast<double>(order[i]);
    }
  }
}

/// Attention of one head of a token over its window, the rows that it sees, and its sink.
void attend_head(const Problem& p, Tensors<double>& t, std::int64_t first, std::int64_t token, int head) {
  const auto query = t[Whole::absorbed_query].row(token).segment(head * p.qk_dim, p.qk_dim);
  std::vector<Eigen::RowVectorXd> keys;
  for (std::int64_t k = std::max(first, token - p.reach.tokens + 1); k <= token; ++k)
    keys.emplace_back(t[Whole::latent].row(k));
  const std::int64_t count = p.rows.ratio > 0 ? (token - first + 1) / p.rows.ratio : 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto chosen = t[Whole::chosen].size() > 0 ? t[Whole::chosen].row(token) : Eigen::RowVectorXd();
    if (p.top_k == 0 || (chosen.array() == static_cast<double>(n)).any())
      keys.emplace_back(t[Whole::row].row(first + n));
  }
  std::vector<double> scores;
  for (const Eigen::RowVectorXd& k : keys) scores.push_back(query.dot(k) / std::sqrt(1.0 * p.qk_dim));
  double high = *std::max_element(scores.begin(), scores.end());
  if (p.sinks) high = std::max(high, t[Whole::sinks](0, head));
  double sum = p.sinks ? std::exp(t[Whole::sinks](0, head) - high) : 0;
  Eigen::RowVectorXd mean = Eigen::RowVectorXd::Zero(p.qk_dim);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(scores[i] - high);
    sum += weight;
    mean += weight * keys[i];
  }
  t[Whole::attention_output].row(token).segment(head * p.qk_dim, p.qk_dim) = mean / sum;
}

}  // namespace

void set_compressed(const Problem& p, Tensors<double>& t) {
  std::mt19937_64 random(p.seed ^ 0xC5A128C4U);
  const Eigen::Index tokens = t.first_row.back();
  t[Whole::absorbed_query] = uniform(random, tokens, Eigen::Index{p.q_heads} * p.qk_dim) * 2;
  t[Whole::latent] = uniform(random, tokens, p.qk_dim) * 2;
  if (p.sinks) t[Whole::sinks] = uniform(random, 1, p.q_heads);
  if (p.rows.ratio > 0) set_rows(p.rows, random, t, p.qk_dim, false);
  if (p.top_k > 0) {
    set_rows(p.rows, random, t, p.index_dim, true);
    set_choice(p, random, t);
  }
  t[Whole::attention_output] = Matrix<double>::Zero(tokens, Eigen::Index{p.q_heads} * p.qk_dim);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    for (std::int64_t token = t.first_row[r]; token < t.first_row[r + 1]; ++token)
      for (int head = 0; head < p.q_heads; ++head) attend_head(p, t, t.first_row[r], token, head);
  }
}

}  // namespace shardline
