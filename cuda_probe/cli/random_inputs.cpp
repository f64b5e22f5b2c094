#include "cuda_probe/cli/random_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "cuda_probe/kernels/bf16.hpp"

namespace shardline::probe_cli {

namespace {

struct Sizes {
  std::array<std::int64_t, static_cast<std::size_t>(Whole::count)> rows{}, columns{};
  std::vector<std::int64_t> first_row{0};
};

Sizes sizes_of(const Dataflow& flow) {
  Sizes z;
  std::vector<std::int64_t> lengths;
  for (const Binding& b : flow.inputs) {
    const auto w = static_cast<std::size_t>(b.whole);
    for (const Interval& i : flow.token_list(b.columns)) z.columns[w] = std::max(z.columns[w], i.end);
    for (const Interval& i : flow.token_list(b.rows)) {
      if (i.request == kPadding) continue;
      if (!rows_are_tokens(b.whole)) {
        z.rows[w] = std::max(z.rows[w], i.end);
        continue;
      }
      const auto request = static_cast<std::size_t>(i.request);
      if (lengths.size() <= request) lengths.resize(request + 1);
      lengths[request] = std::max(lengths[request], i.end);
    }
  }
  for (const std::int64_t length : lengths) z.first_row.push_back(z.first_row.back() + length);
  for (std::size_t w = 0; w < z.rows.size(); ++w) {
    if (rows_are_tokens(static_cast<Whole>(w)) && z.columns[w] > 0) z.rows[w] = z.first_row.back();
  }
  return z;
}

}  // namespace

double random_input_bytes(const Dataflow& flow) {
  const Sizes z = sizes_of(flow);
  double numbers = 0;
  for (std::size_t w = 0; w < z.rows.size(); ++w)
    numbers += static_cast<double>(z.rows[w]) * static_cast<double>(z.columns[w]);
  return 4 * numbers;
}

Tensors<float> random_inputs(const Dataflow& flow, std::uint64_t seed) {
  const Sizes z = sizes_of(flow);
  std::mt19937_64 random(seed);
  Tensors<float> t;
  t.first_row = z.first_row;
  for (std::size_t w = 0; w < z.rows.size(); ++w) {
    Matrix<float>& m = t.whole[w];
    m.resize(z.rows[w], z.columns[w]);
    const bool tokens = rows_are_tokens(static_cast<Whole>(w));
    const float size = tokens || m.rows() == 0 ? 1 : 1 / std::sqrt(static_cast<float>(m.rows()));
    for (Eigen::Index i = 0; i < m.size(); i += 4) {
      const std::uint64_t bits = random();
      for (Eigen::Index j = i; j < std::min(i + 4, m.size()); ++j) {
        const auto number = static_cast<std::int16_t>(bits >> 16 * (j - i) & 0xffff);
        m.data()[j] = to_float(to_bf16(size * static_cast<float>(number) / 32768.0f));
      }
    }
  }
  return t;
}

}  // namespace shardline::probe_cli
