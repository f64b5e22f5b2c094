#include "cuda_probe/kernels/splits.hpp"

#include <algorithm>
#include <cmath>

#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

// Two blocks share a multiprocessor, so that a wave is 2 * sms blocks. A split
// costs its tiles and about one more to start; blocks end at different times, so that the last wave costs
// about a fifth of one more; a wave that is not full costs as much as a full one. Of the numbers of splits
// up to about four waves the smallest is taken that comes within 3 % of the best: mostly two waves. No split
// is shorter than 512 keys, for its result must stay small beside its keys.
int decode_splits(std::int64_t longest_kv, int sequences, int kv_heads, int sms) {
  const std::int64_t wave = 2 * std::int64_t{sms}, tiles = (longest_kv + 63) / 64;
  const std::int64_t pairs = std::int64_t{sequences} * kv_heads;
  if (pairs < 1 || wave < 1) return 1;
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const auto cost = [&](std::int64_t splits) {
    return (5 * up(pairs * splits, wave) + 1) * (up(tiles, splits) + 1);
  };
  std::int64_t most = up(4 * wave, pairs);
  if (most > longest_kv / 512) most = longest_kv / 512;
  std::int64_t least = cost(1), splits = 1;
  for (std::int64_t s = 2; s <= most; ++s) least = cost(s) < least ? cost(s) : least;
  while (cost(splits) * 100 > least * 103) ++splits;
  return static_cast<int>(splits);
}

int mla_decode_splits(std::int64_t longest_kv, int sequences, int q_heads, int sms) {
  // In units of the time of one tile of 32 rows, each block alone on its multiprocessor.
  constexpr double kTileBytes = 32 * 2 * (kLatent + kRotary), kStart = 6, kMergeLaunch = 3;
  const double tiles = static_cast<double>(std::max<std::int64_t>(1, (longest_kv + 31) / 32));
  const int per_split = std::max(1, sequences) * ((q_heads + 63) / 64);
  const double partial_bytes = 2.0 * 4 * kLatent * std::max(1, sequences) * q_heads;  // written, read
  const int most = static_cast<int>(std::min(tiles, 256.0));
  const auto cost = [&](int splits) {
    const double waves = static_cast<double>((std::int64_t{per_split} * splits + sms - 1) / sms);
    const double work = waves * (std::ceil(tiles / splits) + kStart);
    return splits == 1 ? work : work + kMergeLaunch + splits * partial_bytes / (kTileBytes * sms);
  };
  double least = cost(1);
  for (int s = 2; s <= most; ++s) least = std::min(least, cost(s));
  int splits = 1;  // the fewest that come within 3 %
  while (cost(splits) > 1.03 * least) ++splits;
  return splits;
}

}  // namespace shardline
