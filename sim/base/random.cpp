#include "sim/base/random.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection of 64 bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

// In (0, 1): 52 bits and a half, so that neither end is hit and 1 - u is as exact as u.
double unit_of(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// FNV-1a: names are few and chosen by us; mix() spreads what it gives.
std::uint64_t hash(std::string_view name) {
  std::uint64_t out = 0xCBF29CE484222325;
  for (const char c : name) out = (out ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return out;
}

template <std::size_t N>
double polynomial(const double (&coefficients)[N], double x) {
  double sum = 0;
  for (std::size_t k = N; k-- > 0;) sum = sum * x + coefficients[k];
  return sum;
}

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return mix(mix(mix(seed + kGolden) + kGolden * (stream + 1)) + kGolden * (counter + 1));
}

double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return unit_of(random_bits(seed, stream, counter));
}

double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact, in [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh z, by its series; |z| < 0.172, so the rest is below 1e-17.
  const double z = (m - 1) / (m + 1), square = z * z;
  double sum = 0;
  for (int k = 21; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

double natural_exp(double x) {
  if (x > 709.78) return std::numeric_limits<double>::infinity();
  if (x < -745.13) return 0;
  // x = k ln 2 + r with |r| < 0.347; the first part of ln 2 has 32 bits, so that its product with k is exact.
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
  double sum = 1;
  for (int i = 14; i > 0; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));
}

double exponential(double u) { return -natural_log(u); }

double normal_quantile(double p) {
  constexpr double kA[] = {3.3871328727963666080,    1.3314166789178437745e+2, 1.9715909503065514427e+3,
                           1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kB[] = {1.0,
                           4.2313330701600911252e+1,
                           6.8718700749205790830e+2,
                           5.3941960214247511077e+3,
                           2.1213794301586595867e+4,
                           3.9307895800092710610e+4,
                           2.8729085735721942674e+4,
                           5.2264952788528545610e+3};
  constexpr double kC[] = {1.42343711074968357734,    4.63033784615654529590,   5.76949722146069140550,
                           3.64784832476320460504,    1.27045825245236838258,   2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1.0,
                           2.05319162663775882187,
                           1.67638483018380384940,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720,    5.46378491116411436990,    1.78482653991729133580,
                           2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1.0,
                           5.99832206555887937690e-1,
                           1.36929880922735805310e-1,
                           1.48753612908506148525e-2,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  SL_CHECK(p > 0 && p < 1, "a probability is in (0, 1)");
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  const double r = std::sqrt(exponential(q < 0 ? p : 1 - p));
  const double tail = r <= 5 ? polynomial(kC, r - 1.6) / polynomial(kD, r - 1.6)
                             : polynomial(kE, r - 5) / polynomial(kF, r - 5);
  return q < 0 ? -tail : tail;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t index)
    : key_(mix(mix(mix(seed + kGolden) ^ hash(name)) + kGolden * (index + 1))) {}

// A bijection of its own, so that no stream is a shifted one of the stream that it is of.
RandomStream RandomStream::at(std::uint64_t index) const {
  return RandomStream(mix(mix(key_ ^ 0xD1B54A32D192ED03) + kGolden * (index + 1)));
}

std::uint64_t RandomStream::bits() { return mix(key_ + kGolden * ++counter_); }

double RandomStream::unit() { return unit_of(bits()); }

double RandomStream::gamma(double shape) {
  SL_CHECK(shape > 0, "a shape is positive");
  // Below 1 from the next shape: G(a) = G(a + 1) U^(1/a).
  if (shape < 1) {
    const double root = natural_exp(-exponential() / shape);
    return gamma(shape + 1) * root;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    if (-exponential() < 0.5 * x * x + d * (1 - v + natural_log(v))) return d * v;
  }
}

std::uint64_t RandomStream::below(std::uint64_t n) {
  SL_CHECK(n > 0, "there is a number below n");
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits()) * n) >> 64);
}

}  // namespace shardline
