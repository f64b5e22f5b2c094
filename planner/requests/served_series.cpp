#include "planner/requests/served_series.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

void add_to(ServedSeries::Interval& to, const ServedSeries::Interval& more) {
  to.running += more.running;
  to.waiting += more.waiting;
  to.held += more.held;
  to.prompting += more.prompting;
  to.decoding += more.decoding;
}

}  // namespace

void ServedSeries::widen() {
  for (std::size_t i = 0; i < intervals_.size(); ++i) {
    if (i % 2 == 1)
      add_to(intervals_[i / 2], intervals_[i]);
    else
      intervals_[i / 2] = intervals_[i];
  }
  intervals_.resize((intervals_.size() + 1) / 2);
  length_ *= 2;
}

void ServedSeries::add(Seconds from, Seconds to, const State& state) {
  SL_CHECK(from >= Seconds(0) && to >= from, "time goes on");
  while (to.value > length_ * static_cast<double>(kMost)) widen();
  for (auto i = static_cast<std::size_t>(from.value / length_); i < kMost; ++i) {
    const double begin = length_ * static_cast<double>(i);
    if (begin >= to.value) break;
    if (intervals_.size() <= i) intervals_.resize(i + 1);
    const double time = std::min(to.value, begin + length_) - std::max(from.value, begin);
    add_to(intervals_[i], {state.running * time, state.waiting * time, state.held * time,
                           state.prompts ? time : 0, state.prompts ? 0 : time});
  }
}

void ServedSeries::merge(const ServedSeries& other) {
  ServedSeries copy = other;
  while (copy.length_ < length_) copy.widen();
  while (length_ < copy.length_) widen();
  intervals_.resize(std::max(intervals_.size(), copy.intervals_.size()));
  for (std::size_t i = 0; i < copy.intervals_.size(); ++i) add_to(intervals_[i], copy.intervals_[i]);
}

}  // namespace shardline
