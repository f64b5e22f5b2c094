// What a simulation measures of itself: time averages, Little's law, means with their intervals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/base/units.hpp"

namespace shardline {

/// The time average of a quantity that changes in steps or, between two events, along a straight line [S15].
class TimeAverage {
 public:
  /// From time `start` with `value`.
  explicit TimeAverage(double value = 0, Seconds start = Seconds(0))
      : value_(value), start_(start), last_(start) {}
  /// It was what it was until `now`, not before the last time (checked), and is `value` from then on.
  void set(Seconds now, double value);
  void add(Seconds now, double change) { set(now, value_ + change); }
  /// It went from what it was to `value` along a straight line.
  void slide(Seconds now, double value);

  double value() const { return value_; }
  double most() const { return most_; }
  /// Integral until the last change.
  double integral() const { return integral_; }
  /// Until `now`, with what it is now held until then; the value itself where no time has passed.
  double mean(Seconds now) const;

 private:
  double value_, most_ = value_, integral_ = 0;
  Seconds start_, last_;
};

/// Little's law as an account: the integral of how many are there equals the time that all have spent there
/// [S15]. The one side is counted by comings and goings, the other by the times that those who leave say that
/// they came: the account does not balance where somebody was lost, counted twice or mistaken for another.
class LittleAccount {
 public:
  void enter(Seconds now);
  /// Leaves after having entered at `entered`.
  void leave(Seconds now, Seconds entered);

  std::uint64_t entered() const { return entered_; }
  std::uint64_t present() const { return entered_ - left_; }
  /// Mean number present until `now`.
  double mean_present(Seconds now) const { return present_.mean(now); }
  double most_present() const { return present_.most(); }
  /// Mean time of those who left; 0 without any.
  Seconds mean_stay() const { return left_ == 0 ? Seconds(0) : Seconds(stay_ / static_cast<double>(left_)); }
  /// Relative difference of both sides at `now`, where those present have been there for `ages` in all (0
  /// where nobody is): rounding alone.
  double imbalance(Seconds now, Seconds ages = Seconds(0)) const;

 private:
  TimeAverage present_;
  std::uint64_t entered_ = 0, left_ = 0;
  double stay_ = 0;  // of those who left
};

/// A mean and how far from it the true one may be.
struct MeanInterval {
  double mean = 0;
  double half_width = 0;  // infinite with less than three values
};

/// From values of equal standing and nearly independent, as batch means are: mean +- t s / sqrt(n), t of
/// Student with n - 1 degrees of freedom at this confidence level, in (0, 1) [S17].
MeanInterval mean_interval(std::span<const double> values, double level);

/// Student's t that |T| exceeds with probability 1 - level; two degrees at least.
double student_t(double level, std::size_t degrees);

/// The mean of a long series whose values depend on their neighbours, by batch means [S17]: consecutive
/// values make batches, whose means are nearly independent once batches are long. From 20 to 39 batches;
/// where they become 40, pairs are joined. Memory: 40 sums.
class BatchMeans {
 public:
  void add(double value);
  std::uint64_t count() const { return count_; }
  /// The mean of all values.
  double mean() const;
  /// Of whole batches; with less than 20 of them as many as there are.
  MeanInterval interval(double level) const;
  /// Correlation of neighbouring batches; 0 with less than 20. Above about 0.3 intervals are too narrow.
  double correlation() const;

 private:
  static constexpr std::size_t kBatches = 40;
  std::span<const double> full() const { return {sums_.data(), batches_}; }

  std::array<double, kBatches> sums_{};  // of whole batches
  std::size_t batches_ = 0;
  std::uint64_t size_ = 1, filled_ = 0, count_ = 0;
  double open_ = 0, sum_ = 0;
};

}  // namespace shardline
