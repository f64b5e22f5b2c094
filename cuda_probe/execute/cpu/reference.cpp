#include "cuda_probe/execute/cpu/reference.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

/// Sum of twelve uniform numbers: near enough to a normal one, and exact, so that no library's rounding
/// shows.
double normal(std::mt19937_64& random) {
  std::int64_t sum = 0;
  for (int draw = 0; draw < 3; ++draw) {
    const std::uint64_t bits = random();
    for (int i = 0; i < 64; i += 16) sum += static_cast<std::int64_t>(bits >> i & 0xffff);
  }
  return (static_cast<double>(sum) - 6.0 * 65535.0) / 65536.0;
}

Matrix<double> random_matrix(std::mt19937_64& random, Eigen::Index row_count, Eigen::Index columns,
                             double size) {
  Matrix<double> m(row_count, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = size * normal(random);
  return m;
}

/// Rows of a weight keep the size of what is multiplied with them.
Matrix<double> weight(std::mt19937_64& random, Eigen::Index row_count, Eigen::Index columns) {
  return random_matrix(random, row_count, columns, 1 / std::sqrt(static_cast<double>(row_count)));
}

Matrix<double> rms_norm(const Matrix<double>& x) {
  Matrix<double> out = x;
  for (Eigen::Index row = 0; row < x.rows(); ++row) {
    double squares = 0;
    for (Eigen::Index i = 0; i < x.cols(); ++i) squares += x(row, i) * x(row, i);
    out.row(row) /= std::sqrt(squares / static_cast<double>(x.cols()) + 1e-6);
  }
  return out;
}

Matrix<double> swiglu(const Matrix<double>& x) {
  Matrix<double> out(x.rows(), x.cols() / 2);
  for (Eigen::Index row = 0; row < out.rows(); ++row) {
    for (Eigen::Index i = 0; i < out.cols(); ++i) {
      const double gate = x(row, i);
      out(row, i) = gate / (1 + std::exp(-gate)) * x(row, out.cols() + i);
    }
  }
  return out;
}

/// Keys and values of all heads from the latent rows. Every number is a sum in the order of the latent's
/// columns; a row of the weight at a time, since rows lie together.
Matrix<double> expanded(const Problem& p, const Matrix<double>& latent, const Matrix<double>& weight) {
  const int plain = p.qk_dim - p.rope, per_head = plain + p.v_dim;
  Matrix<double> kv(latent.rows(), p.q_heads * (p.qk_dim + p.v_dim));
  Eigen::RowVectorXd up(weight.cols());
  for (Eigen::Index row = 0; row < kv.rows(); ++row) {
    up.setZero();
    for (int k = 0; k < p.kv_lora; ++k) up += latent(row, k) * weight.row(k);
    for (int head = 0; head < p.q_heads; ++head) {
      const Eigen::Index key = Eigen::Index{head} * (p.qk_dim + p.v_dim),
                         from = Eigen::Index{head} * per_head;
      kv.row(row).segment(key, plain) = up.segment(from, plain);
      kv.row(row).segment(key + plain, p.rope) = latent.row(row).segment(p.kv_lora, p.rope);
      kv.row(row).segment(key + p.qk_dim, p.v_dim) = up.segment(from + plain, p.v_dim);
    }
  }
  return kv;
}

/// The queries of decoding requests, absorbed: W_UK makes each head's part without the rotary one as wide as
/// kv_lora, so that a product with a latent row is that with the expanded key. Scores of rows as wide as
/// these are divided by another root.
Matrix<double> absorbed_queries(const Problem& p, const Matrix<double>& query, const Matrix<double>& weight) {
  const int plain = p.qk_dim - p.rope, per_head = plain + p.v_dim, width = p.kv_lora + p.rope;
  const double root = std::sqrt(static_cast<double>(width) / p.qk_dim);
  Matrix<double> out(query.rows(), p.q_heads * width);
  for (Eigen::Index row = 0; row < out.rows(); ++row) {
    for (int head = 0; head < p.q_heads; ++head) {
      const auto q = query.row(row).segment(head * p.qk_dim, p.qk_dim);
      for (int k = 0; k < p.kv_lora; ++k) {
        double sum = 0;
        for (int i = 0; i < plain; ++i) sum += q(i) * weight(k, head * per_head + i);
        out(row, head * width + k) = root * sum;
      }
      for (int i = 0; i < p.rope; ++i) out(row, head * width + p.kv_lora + i) = root * q(plain + i);
    }
  }
  return out;
}

/// W_UV of all heads, one below the other.
Matrix<double> value_up_of(const Problem& p, const Matrix<double>& weight) {
  const int plain = p.qk_dim - p.rope, per_head = plain + p.v_dim;
  Matrix<double> out(p.q_heads * p.kv_lora, p.v_dim);
  for (int head = 0; head < p.q_heads; ++head)
    out.middleRows(head * p.kv_lora, p.kv_lora) = weight.middleCols(head * per_head + plain, p.v_dim);
  return out;
}

/// Whether the query at a position sees an earlier key, or its own: transformers, masking_utils.py.
bool sees(const Reach& reach, Eigen::Index query, Eigen::Index key) {
  switch (reach.kind) {
    case ReachKind::full:
      return true;
    case ReachKind::window:
      return key > query - reach.tokens;
    case ReachKind::chunk:
      return key / reach.tokens == query / reach.tokens;
  }
  return false;
}

bool lists(const Problem& p, const Matrix<double>& chosen, Eigen::Index row, int kv_head, Eigen::Index key) {
  const Eigen::Index first = p.index_block > 1 ? Eigen::Index{kv_head} * p.top_k : 0;
  for (Eigen::Index i = first; i < first + p.top_k; ++i) {
    if (chosen(row, i) == static_cast<double>(key / p.index_block)) return true;
  }
  return false;
}

/// The keys of every token by DeepSeek-V3.2's definition (arXiv 2512.02556, Equation 1): a score of each
/// earlier key, by selection of the best one after the other, the first of equal ones.
Matrix<double> chosen_keys(const Problem& p, const Tensors<double>& t) {
  const Matrix<double>&query = t[Whole::index_query], &weight = t[Whole::index_weight],
        &key = t[Whole::index_key];
  Matrix<double> out = Matrix<double>::Constant(query.rows(), p.top_k, -1);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    const std::int64_t first = t.first_row[r];
    for (std::int64_t row = first; row < t.first_row[r + 1]; ++row) {
      std::vector<double> scores;
      for (std::int64_t k = first; k <= row; ++k) {
        double score = 0;
        for (int h = 0; h < p.index_heads; ++h) {
          double dot = 0;
          for (int i = 0; i < p.index_dim; ++i) dot += query(row, h * p.index_dim + i) * key(k, i);
          score += weight(row, h) * std::max(0.0, dot);
        }
        scores.push_back(score);
      }
      std::vector<bool> taken(scores.size(), false);
      for (int i = 0; i < p.top_k && i < static_cast<int>(scores.size()); ++i) {
        std::size_t best = scores.size();
        for (std::size_t k = 0; k < scores.size(); ++k) {
          if (!taken[k] && (best == scores.size() || scores[k] > scores[best])) best = k;
        }
        taken[best] = true;
        out(row, i) = static_cast<double>(best);
      }
    }
  }
  return out;
}

/// The blocks of every token by MiniMax-M3's definition, for each KV head: the highest product of its index
/// query with a key up to the token is a block's score (transformers modeling_minimax_m3_vl.py,
/// MiniMaxM3VLIndexer; a choice of each head as vllm models/minimax_m3 has it).
Matrix<double> chosen_blocks(const Problem& p, const Tensors<double>& t) {
  const Matrix<double>&query = t[Whole::index_query], &key = t[Whole::index_key];
  Matrix<double> out = Matrix<double>::Constant(query.rows(), Eigen::Index{p.top_k} * p.index_heads, -1);
  for (std::size_t r = 0; r + 1 < t.first_row.size(); ++r) {
    const std::int64_t first = t.first_row[r];
    for (std::int64_t row = first; row < t.first_row[r + 1]; ++row) {
      const std::int64_t count = (row - first) / p.index_block + 1;
      for (int h = 0; h < p.index_heads; ++h) {
        std::vector<std::int64_t> left;
        for (std::int64_t n = 0; n < count; ++n) left.push_back(n);
        const auto score = [&](std::int64_t n) {
          if (n < p.index_init || n >= count - p.index_local) return HUGE_VAL;
          double best = -HUGE_VAL;
          for (std::int64_t k = first + n * p.index_block; k < first + (n + 1) * p.index_block && k <= row;
               ++k) {
            double dot = 0;
            for (int i = 0; i < p.index_dim; ++i) dot += query(row, h * p.index_dim + i) * key(k, i);
            best = std::max(best, dot);
          }
          return best;
        };
        for (int i = 0; i < p.top_k && !left.empty(); ++i) {
          std::size_t best = 0;
          for (std::size_t j = 1; j < left.size(); ++j)
            if (score(left[j]) > score(left[best])) best = j;
          out(row, Eigen::Index{h} * p.top_k + i) = static_cast<double>(left[best]);
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
        }
      }
    }
  }
  return out;
}

/// Small whole numbers, so that products are exact whatever their order, and scores tie often.
Matrix<double> coarse(std::mt19937_64& random, Eigen::Index row_count, Eigen::Index columns) {
  Matrix<double> m(row_count, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = static_cast<double>(random() % 5) - 2;
  return m;
}

/// Drawn from numbers of their own, so that all others are those without an index.
void set_index(const Problem& p, Tensors<double>& t) {
  std::mt19937_64 random((p.index_seed > 0 ? p.index_seed : p.seed) ^ 0x9E3779B97F4A7C15U);
  const Eigen::Index tokens = t.first_row.back();
  t[Whole::index_query] = coarse(random, tokens, Eigen::Index{p.index_heads} * p.index_dim);
  t[Whole::index_weight] = coarse(random, tokens, p.index_heads);
  t[Whole::index_key] = coarse(random, tokens, p.index_dim);
  t[Whole::chosen] = p.index_block > 1 ? chosen_blocks(p, t) : chosen_keys(p, t);
}

/// Attention of the token in row `row` over what it sees of rows [first, row], one head.
void attend_token(const Problem& p, const Matrix<double>& query, const Matrix<double>& kv,
                  const Matrix<double>& sinks, const Matrix<double>& chosen, Eigen::Index first,
                  Eigen::Index row, int head, Matrix<double>& out) {
  const bool latent = p.cache == CacheRows::latent;
  const int kv_head = latent ? 0 : head / (p.q_heads / p.kv_heads);
  const Eigen::Index key = latent ? 0 : kv_head * (p.qk_dim + p.v_dim);
  const Eigen::Index value = latent ? 0 : key + p.qk_dim;
  const double scale = p.scale > 0 ? p.scale : 1 / std::sqrt(static_cast<double>(p.qk_dim));
  std::vector<double> scores;
  std::vector<Eigen::Index> keys;
  for (Eigen::Index k = first; k <= row; ++k) {
    if (!sees(p.reach, row - first, k - first)) continue;
    if (chosen.size() > 0 && !lists(p, chosen, row, kv_head, k - first)) continue;
    keys.push_back(k);
    double score = 0;
    for (int i = 0; i < p.qk_dim; ++i) score += query(row, head * p.qk_dim + i) * kv(k, key + i);
    scores.push_back(score * scale);
  }
  if (sinks.size() > 0) scores.push_back(sinks(0, head));
  const double high = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - high);
  auto mean = out.row(row).segment(head * p.v_dim, p.v_dim);
  mean.setZero();
  for (std::size_t i = 0; i < keys.size(); ++i) mean += scores[i] * kv.row(keys[i]).segment(value, p.v_dim);
  mean /= sum;
}

/// About as large as scores. Drawn from numbers of their own, so that all others are those without sinks.
Matrix<double> sinks_of(const Problem& p) {
  std::mt19937_64 random(~p.seed);
  return random_matrix(random, 1, p.q_heads, 1);
}

}  // namespace

Matrix<double> plain_attention(const Problem& p, const Matrix<double>& query, const Matrix<double>& kv,
                               const Matrix<double>& sinks, const Matrix<double>& chosen) {
  Matrix<double> out(query.rows(), p.q_heads * p.v_dim);
  Eigen::Index first = 0;
  for (const std::int64_t length : p.lengths) {
    for (Eigen::Index row = first; row < first + length; ++row) {
      for (int head = 0; head < p.q_heads; ++head)
        attend_token(p, query, kv, sinks, chosen, first, row, head, out);
    }
    first += length;
  }
  return out;
}

namespace {

Tensors<double> rows_of_requests(const Problem& p) {
  Tensors<double> t;
  t.first_row.assign(1, 0);
  for (const std::int64_t length : p.lengths) t.first_row.push_back(t.first_row.back() + length);
  return t;
}

/// Of layers with states, or with rows of several tokens: definitions of their own.
Tensors<double> of_own_definition(const Problem& p) {
  Tensors<double> t = rows_of_requests(p);
  if (p.rows.compressed)
    set_compressed(p, t);
  else
    set_recurrence(p.recurrence, p.seed, t);
  return t;
}

}  // namespace

Tensors<double> reference(const Problem& p) {
  if (p.recurrence.key_heads > 0 || p.rows.compressed) return of_own_definition(p);
  const bool absorbed = p.cache == CacheRows::latent;
  SL_CHECK(p.kv_heads > 0 && p.q_heads % p.kv_heads == 0, "KV heads divide query heads");
  SL_CHECK(!p.reach.sized() || p.reach.tokens > 0, "a query sees itself");
  SL_CHECK(!absorbed || p.v_dim <= p.qk_dim, "latent values are part of the key");
  SL_CHECK(p.kv_lora == 0 || (p.hidden == 0 && !absorbed && p.kv_heads == p.q_heads && p.rope <= p.qk_dim),
           "latents are expanded to heads of their own");
  Tensors<double> t = rows_of_requests(p);
  const Eigen::Index tokens = t.first_row.back(), query_columns = p.q_heads * p.qk_dim;
  const Eigen::Index kv_columns = absorbed ? p.qk_dim : p.kv_heads * (p.qk_dim + p.v_dim);
  std::mt19937_64 random(p.seed);
  if (p.hidden == 0) {
    t[Whole::query] = random_matrix(random, tokens, query_columns, 1);
    Matrix<double>& cached = t[p.kv_lora > 0 ? Whole::latent : Whole::kv];
    cached = random_matrix(random, tokens, p.kv_lora > 0 ? p.kv_lora + p.rope : kv_columns, 1);
    if (p.blocks.hosts > 0) {
      copy_anchors(p, t[Whole::query]);
      copy_anchors(p, cached);
    }
    if (p.kv_lora > 0) {
      t[Whole::kv_up_weight] = weight(random, p.kv_lora, p.q_heads * (p.qk_dim - p.rope + p.v_dim));
      t[Whole::kv] = expanded(p, t[Whole::latent], t[Whole::kv_up_weight]);
      t[Whole::absorbed_query] = absorbed_queries(p, t[Whole::query], t[Whole::kv_up_weight]);
      t[Whole::value_up_weight] = value_up_of(p, t[Whole::kv_up_weight]);
    }
  } else {
    t[Whole::hidden] = random_matrix(random, tokens, p.hidden, 1);
    if (p.blocks.hosts > 0) copy_anchors(p, t[Whole::hidden]);
    t[Whole::qkv_weight] = weight(random, p.hidden, query_columns + kv_columns);
    const Matrix<double> qkv = rms_norm(t[Whole::hidden]) * t[Whole::qkv_weight];
    t[Whole::query] = qkv.leftCols(query_columns);
    t[Whole::kv] = qkv.rightCols(kv_columns);
  }
  if (p.blocks.retaining > 0) {
    t[Whole::retaining_up_weight] = weight(random, query_columns + kv_columns, p.blocks.retaining);
    t[Whole::retaining_down_weight] = weight(random, p.blocks.retaining, p.kv_heads);
  }
  if (p.sinks) t[Whole::sinks] = sinks_of(p);
  if (p.top_k > 0) set_index(p, t);
  t[Whole::attention_output] = p.blocks.hosts > 0 ? block_attention(p, t)
                                                  : plain_attention(p, t[Whole::query], t[Whole::kv],
                                                                    t[Whole::sinks], t[Whole::chosen]);
  Matrix<double> heads = t[Whole::attention_output];
  if (p.value_up > 0) {
    t[Whole::value_up_weight] = weight(random, p.q_heads * p.v_dim, p.value_up);
    heads.resize(tokens, p.q_heads * p.value_up);
    for (Eigen::Index h = 0; h < p.q_heads; ++h)
      heads.middleCols(h * p.value_up, p.value_up) =
          t[Whole::attention_output].middleCols(h * p.v_dim, p.v_dim) *
          t[Whole::value_up_weight].middleRows(h * p.v_dim, p.v_dim);
  }
  if (p.hidden == 0 || p.ffn_inner == 0) return t;
  t[Whole::out_weight] = weight(random, heads.cols(), p.hidden);
  t[Whole::up_weight] = weight(random, p.hidden, 2 * p.ffn_inner);
  t[Whole::down_weight] = weight(random, p.ffn_inner, p.hidden);
  const Matrix<double> middle = t[Whole::hidden] + heads * t[Whole::out_weight];
  t[Whole::layer_output] = middle + swiglu(rms_norm(middle) * t[Whole::up_weight]) * t[Whole::down_weight];
  return t;
}

}  // namespace shardline
