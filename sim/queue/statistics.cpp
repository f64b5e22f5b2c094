#include "sim/queue/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

namespace shardline {

void TimeAverage::set(Seconds now, double value) {
  SL_CHECK(now >= last_, "time does not go back");
  integral_ += value_ * (now - last_).value;
  last_ = now;
  value_ = value;
  most_ = std::max(most_, value);
}

void TimeAverage::slide(Seconds now, double value) {
  SL_CHECK(now >= last_, "time does not go back");
  integral_ += (value_ + value) / 2 * (now - last_).value;
  last_ = now;
  value_ = value;
  most_ = std::max(most_, value);
}

double TimeAverage::mean(Seconds now) const {
  SL_CHECK(now >= last_, "time does not go back");
  const double length = (now - start_).value;
  return length > 0 ? (integral_ + value_ * (now - last_).value) / length : value_;
}

void LittleAccount::enter(Seconds now) {
  ++entered_;
  present_.add(now, 1);
}

void LittleAccount::leave(Seconds now, Seconds entered) {
  SL_CHECK(left_ < entered_ && entered <= now, "who leaves has entered");
  ++left_;
  stay_ += (now - entered).value;
  present_.add(now, -1);
}

double LittleAccount::imbalance(Seconds now, Seconds ages) const {
  const double counted = present_.mean(now) * now.value;
  const double spent = stay_ + ages.value;
  const double size = std::max(counted, spent);
  return size > 0 ? std::abs(counted - spent) / size : 0;
}

// Hill's expansion (CACM Algorithm 396, 1970): about 1e-6 from 5 degrees on, exact for 2.
double student_t(double level, std::size_t degrees) {
  SL_CHECK(level > 0 && level < 1 && degrees > 1,
           "a level is in (0, 1), and there are two degrees of freedom");
  const double p = 1 - level;
  const auto n = static_cast<double>(degrees);
  if (degrees == 2) return std::sqrt(2 / (p * (2 - p)) - 2);
  const double a = 1 / (n - 0.5), b = 48 / (a * a);
  double c = ((20700 * a / b - 98) * a - 16) * a + 96.36;
  const double d = ((94.5 / (b + c) - 3) / b + 1) * std::sqrt(a * 1.57079632679489661923) * n;
  double x = d * p;
  double y = natural_exp(2 / n * natural_log(x));
  if (y > 0.05 + a) {
    x = normal_quantile(p / 2);
    y = x * x;
    if (degrees < 5) c += 0.3 * (n - 4.5) * (x + 0.6);
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c;
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x;
    y = natural_exp(a * y * y) - 1;
  } else {
    y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) /
            (n + 2) +
        1 / y;
  }
  return std::sqrt(n * y);
}

MeanInterval mean_interval(std::span<const double> values, double level) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {0, std::numeric_limits<double>::infinity()};
  double sum = 0;
  for (const double v : values) sum += v;
  const double mean = sum / n;
  if (values.size() < 3) return {mean, std::numeric_limits<double>::infinity()};
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, student_t(level, values.size() - 1) * std::sqrt(squares / (n - 1) / n)};
}

void BatchMeans::add(double value) {
  ++count_;
  sum_ += value;
  open_ += value;
  if (++filled_ < size_) return;
  sums_[batches_++] = open_;
  open_ = 0;
  filled_ = 0;
  if (batches_ < kBatches) return;
  batches_ /= 2;
  for (std::size_t i = 0; i < batches_; ++i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
  size_ *= 2;
}

double BatchMeans::mean() const {
  SL_CHECK(count_ > 0, "a mean has values");
  return sum_ / static_cast<double>(count_);
}

MeanInterval BatchMeans::interval(double level) const {
  std::vector<double> means(full().begin(), full().end());
  for (double& m : means) m /= static_cast<double>(size_);
  return mean_interval(means, level);
}

double BatchMeans::correlation() const {
  if (batches_ < kBatches / 2) return 0;
  double mean = 0;
  for (const double s : full()) mean += s / static_cast<double>(batches_);
  double squares = 0, products = 0;
  for (std::size_t i = 0; i < batches_; ++i) {
    squares += (sums_[i] - mean) * (sums_[i] - mean);
    if (i > 0) products += (sums_[i] - mean) * (sums_[i - 1] - mean);
  }
  return squares > 0 ? products / squares : 0;
}

}  // namespace shardline
