// Random numbers that are the same on every platform, thread and order of asking.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardline {

/// The bits of output `counter` of stream `stream` under `seed`. A pure function of integers: any order of
/// asking, thread and platform gives the same.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);
/// Uniform in (0, 1), from random_bits.
double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

/// ln x for a positive finite x, and e^x. Basic arithmetic only, for a library's functions may round as they
/// like: relative errors below 1e-15 (of ln x where |ln x| > 1; absolute otherwise) and 1e-15 (for
/// |x| < 700; beyond, e^x ends at 0 and infinity).
double natural_log(double x);
double natural_exp(double x);
/// -ln(u) for u in (0, 1): an exponential variable of mean 1.
double exponential(double u);
/// The standard normal variable that is below this value with probability p, in (0, 1); relative error about
/// 1e-15 (Wichura, Algorithm AS 241, Applied Statistics 37 (3), 1988).
double normal_quantile(double p);

/// A sequence of random numbers of its own: what it gives depends on (seed, name, index) and on how many were
/// asked of it, never on another stream [S12]. Copies go on separately from where they are.
class RandomStream {
 public:
  /// `name` says what is drawn ("interval"), `index` for which of several (user 7).
  RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t index = 0);
  /// The stream of one of the things that this one is of, from its beginning, wherever this one is.
  RandomStream at(std::uint64_t index) const;

  std::uint64_t bits();
  /// Uniform in (0, 1).
  double unit();
  /// Mean 1.
  double exponential() { return shardline::exponential(unit()); }
  /// Mean 0, variance 1. One number of the stream each.
  double normal() { return normal_quantile(unit()); }
  /// Mean and variance `shape` > 0 (Marsaglia and Tsang, ACM TOMS 26 (3), 2000).
  double gamma(double shape);
  /// A whole number of [0, n), each as probable to 2^-64 * n; n > 0.
  std::uint64_t below(std::uint64_t n);

 private:
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace shardline
