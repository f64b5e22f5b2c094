#include "cuda_probe/execute/cpu/recurrent_reference.hpp"

#include <cmath>
#include <random>
#include <vector>

namespace shardline {

namespace {

using Numbers = std::vector<double>;

/// Between low and high, the same bits everywhere.
Matrix<double> uniform(std::mt19937_64& random, Eigen::Index rows, Eigen::Index columns, double low,
                       double high) {
  Matrix<double> m(rows, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i)
    m.data()[i] = low + (high - low) * static_cast<double>(random() >> 11) / 9007199254740992.0;
  return m;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

/// Channel `column` of the token in row `row` behind the convolution; rows before `first` are none.
double convolved(const RecurrenceDefinition& d, const Tensors<double>& t, Eigen::Index first,
                 Eigen::Index row, Eigen::Index column) {
  double sum = 0;
  for (int back = 0; back < d.taps && row - back >= first; ++back)
    sum += t[Whole::conv_weight](d.taps - 1 - back, column) * t[Whole::channels](row - back, column);
  return silu(sum);
}

Numbers convolved(const RecurrenceDefinition& d, const Tensors<double>& t, Eigen::Index first,
                  Eigen::Index row, Eigen::Index column, int width) {
  Numbers out;
  for (int i = 0; i < width; ++i) out.push_back(convolved(d, t, first, row, column + i));
  return out;
}

Numbers normed(Numbers x, double scale) {
  double squares = 1e-6;
  for (const double one : x) squares += one * one;
  for (double& one : x) one *= scale / std::sqrt(squares);
  return x;
}

/// One value head's state of one request and what it takes from a token.
struct Head {
  const RecurrenceDefinition& d;
  int head;
  std::vector<Numbers> state;  // [key_dim][value_dim]

  void decay(const Tensors<double>& t, Eigen::Index row) {
    for (int x = 0; x < d.key_dim; ++x) {
      const double left =
          std::exp(t[Whole::decay](row, d.channel_decay ? Eigen::Index{head} * d.key_dim + x : head));
      for (double& one : state[static_cast<std::size_t>(x)]) one *= left;
    }
  }
  Numbers read(const Numbers& at) const {
    Numbers out(static_cast<std::size_t>(d.value_dim), 0);
    for (std::size_t x = 0; x < state.size(); ++x) {
      for (std::size_t y = 0; y < out.size(); ++y) out[y] += at[x] * state[x][y];
    }
    return out;
  }
  void write(const Numbers& key, const Numbers& value, double beta) {
    Numbers old = read(key);
    if (d.added) old.assign(old.size(), 0);
    for (std::size_t x = 0; x < state.size(); ++x) {
      for (std::size_t y = 0; y < old.size(); ++y) state[x][y] += beta * key[x] * (value[y] - old[y]);
    }
  }
};

void run_head(const RecurrenceDefinition& d, int head, std::size_t request, Tensors<double>& t) {
  const Eigen::Index first = t.first_row[request], end = t.first_row[request + 1];
  const int key_head = head / (d.value_heads / d.key_heads);
  const Eigen::Index keys = Eigen::Index{d.key_heads} * d.key_dim, own = Eigen::Index{head} * d.value_dim;
  Head h{d, head,
         std::vector<Numbers>(static_cast<std::size_t>(d.key_dim),
                              Numbers(static_cast<std::size_t>(d.value_dim), 0))};
  for (Eigen::Index row = first; row < end; ++row) {
    const Eigen::Index at = Eigen::Index{key_head} * d.key_dim;
    Numbers query = convolved(d, t, first, row, at, d.key_dim),
            key = convolved(d, t, first, row, keys + at, d.key_dim);
    if (!d.added) {
      query = normed(query, 1 / std::sqrt(1.0 * d.key_dim));
      key = normed(key, 1);
    }
    const Numbers value = convolved(d, t, first, row, 2 * keys + own, d.value_dim);
    h.decay(t, row);
    h.write(key, value, t[Whole::beta](row, head));
    const Numbers out = h.read(query);
    for (int x = 0; x < d.key_dim; ++x) {
      for (int y = 0; y < d.value_dim; ++y)
        t[Whole::state](row, own * d.key_dim + Eigen::Index{x} * d.value_dim + y) =
            h.state[static_cast<std::size_t>(x)][static_cast<std::size_t>(y)];
    }
    if (d.added) {  // normed behind all heads
      for (int y = 0; y < d.value_dim; ++y)
        t[Whole::attention_output](row, own + y) =
            (out[static_cast<std::size_t>(y)] +
             t[Whole::skip](0, head) * value[static_cast<std::size_t>(y)]) *
            silu(t[Whole::gate](row, own + y));
      continue;
    }
    double squares = 0;
    for (const double one : out) squares += one * one;
    const double size = std::sqrt(squares / d.value_dim + 1e-6);
    for (int y = 0; y < d.value_dim; ++y) {
      const double gate = t[Whole::gate](row, own + y);
      const double factor = d.channel_decay ? 1 / (1 + std::exp(-gate)) : silu(gate);
      t[Whole::attention_output](row, own + y) = out[static_cast<std::size_t>(y)] / size * factor;
    }
  }
}

/// Each group's outputs of a token over their root mean square.
void norm_groups(const RecurrenceDefinition& d, Matrix<double>& out) {
  const Eigen::Index width = Eigen::Index{d.value_heads} / d.key_heads * d.value_dim;
  for (Eigen::Index row = 0; row < out.rows(); ++row) {
    for (Eigen::Index first = 0; first < out.cols(); first += width) {
      double squares = 0;
      for (Eigen::Index i = first; i < first + width; ++i) squares += out(row, i) * out(row, i);
      for (Eigen::Index i = first; i < first + width; ++i)
        out(row, i) /= std::sqrt(squares / static_cast<double>(width) + 1e-6);
    }
  }
}

}  // namespace

void set_recurrence(const RecurrenceDefinition& d, std::uint64_t seed, Tensors<double>& t) {
  std::mt19937_64 random(seed);
  const Eigen::Index tokens = t.first_row.back(), values = Eigen::Index{d.value_heads} * d.value_dim,
                     channels = 2 * Eigen::Index{d.key_heads} * d.key_dim + values;
  t[Whole::channels] = uniform(random, tokens, channels, -2, 2);
  t[Whole::conv_weight] = uniform(random, d.taps, channels, -1, 1);
  t[Whole::decay] = uniform(random, tokens, d.value_heads * (d.channel_decay ? d.key_dim : 1), -0.5, -0.01);
  t[Whole::beta] = uniform(random, tokens, d.value_heads, 0.1, 1);
  t[Whole::gate] = uniform(random, tokens, values, -2, 2);
  if (d.added) t[Whole::skip] = uniform(random, 1, d.value_heads, -1, 1);
  t[Whole::state].setZero(tokens, values * d.key_dim);
  t[Whole::attention_output].setZero(tokens, values);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    for (int head = 0; head < d.value_heads; ++head) run_head(d, head, r, t);
  }
  if (d.added) norm_groups(d, t[Whole::attention_output]);
}

}  // namespace shardline
