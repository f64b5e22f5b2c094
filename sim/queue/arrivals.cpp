#include "sim/queue/arrivals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr Seconds kNever{std::numeric_limits<double>::infinity()};

}  // namespace

void Arrivals::completed(const Arrival& /*arrival*/, Seconds /*now*/) {}

RenewalArrivals::RenewalArrivals(Variate interval, std::uint64_t seed)
    : interval_(interval), stream_(seed, "interval"), next_(interval_.draw(stream_)) {
  SL_CHECK(interval.mean() > 0, "intervals have a positive mean");
}

Arrival RenewalArrivals::take() {
  const Arrival out{next_, count_++, 0, {}};
  next_ += Seconds(interval_.draw(stream_));
  return out;
}

BurstArrivals::BurstArrivals(Rates rates, std::uint64_t seed)
    : rates_(rates), phases_(seed, "phase"), stream_(seed, "interval") {
  const auto is_rate = [](PerSecond r) { return r >= PerSecond(0) && std::isfinite(r.value); };
  const auto is_length = [](Seconds s) { return s > Seconds(0) && std::isfinite(s.value); };
  SL_CHECK(is_rate(rates.on) && is_rate(rates.off) && (rates.on > PerSecond(0) || rates.off > PerSecond(0)),
           "rates of bursts are not negative, and one is positive");
  SL_CHECK(is_length(rates.mean_on) && is_length(rates.mean_off), "periods of bursts are positive");
  on_ = phases_.unit() * (rates.mean_on + rates.mean_off).value < rates.mean_on.value;
  phase_end_ = (on_ ? rates.mean_on : rates.mean_off) * phases_.exponential();
  advance();
}

// An exponential piece of expected arrivals, spent at the rate of each phase that it passes through.
void BurstArrivals::advance() {
  double expected = stream_.exponential();
  while (true) {
    const PerSecond rate = on_ ? rates_.on : rates_.off;
    const double left = rate * (phase_end_ - next_);
    if (expected < left) break;
    expected -= left;
    next_ = phase_end_;
    on_ = !on_;
    phase_end_ += (on_ ? rates_.mean_on : rates_.mean_off) * phases_.exponential();
  }
  next_ += expected / (on_ ? rates_.on : rates_.off);
}

Arrival BurstArrivals::take() {
  const Arrival out{next_, count_++, 0, {}};
  advance();
  return out;
}

TraceArrivals::TraceArrivals(Source source, double pace) : source_(std::move(source)), pace_(pace) {
  SL_CHECK(std::isfinite(pace) && pace > 0, "the pace of a trace is positive");
  read();
}

void TraceArrivals::read() {
  const Seconds last = next_.value_or(Seconds(0));
  next_ = source_();
  if (!next_) return;
  next_ = *next_ / pace_;
  SL_CHECK(*next_ >= last && std::isfinite(next_->value), "times of a trace are in order");
}

Seconds TraceArrivals::next_time() const { return next_.value_or(kNever); }

Arrival TraceArrivals::take() {
  SL_CHECK(next_.has_value(), "the trace has another arrival");
  const Arrival out{*next_, count_++, 0, {}};
  read();
  return out;
}

ClosedLoop::ClosedLoop(std::size_t users, Variate think, std::uint64_t seed, Start start) : think_(think) {
  SL_CHECK(users > 0, "a closed loop has users");
  const RandomStream streams(seed, "user");
  users_.reserve(users);
  CancelCheck check;  // a million users are a tenth of a second
  for (std::size_t i = 0; i < users; ++i) {
    check();
    users_.push_back({streams.at(i), 0});
    calendar_.set(calendar_.add(), Seconds(start == Start::together ? 0 : think_.draw(users_[i].stream)));
  }
}

Arrival ClosedLoop::take() {
  const EventCalendar::Event event = calendar_.pop();
  return {event.time, event.timer, users_[event.timer].turn++, event.timer};
}

void ClosedLoop::completed(const Arrival& arrival, Seconds now) {
  SL_CHECK(!calendar_.is_set(arrival.slot), "a user has one arrival at a time");
  calendar_.set(arrival.slot, now + Seconds(think_.draw(users_[arrival.slot].stream)));
}

SessionArrivals::SessionArrivals(Law law, std::uint64_t seed)
    : law_(law), intervals_(seed, "interval"), sessions_(seed, "session") {
  SL_CHECK(law.interval.mean() > 0, "intervals have a positive mean");
  begin(calendar_.add(), Seconds(law_.interval.draw(intervals_)));
}

void SessionArrivals::begin(Timer slot, Seconds time) {
  Session session{count_, sessions_.at(count_)};
  ++count_;
  const double turns = std::ceil(law_.turns.draw(session.stream));
  session.turns = static_cast<std::uint32_t>(std::clamp(turns, 1.0, 4294967295.0));
  while (live_.size() <= slot) live_.push_back(session);
  live_[slot] = session;
  calendar_.set(slot, time);
  opening_ = slot;
}

Arrival SessionArrivals::take() {
  const EventCalendar::Event event = calendar_.pop();
  Session& session = live_[event.timer];
  const Arrival out{event.time, session.number, session.turn++, event.timer};
  if (event.timer == opening_) {
    begin(calendar_.add(), event.time + Seconds(law_.interval.draw(intervals_)));
  }
  return out;
}

void SessionArrivals::completed(const Arrival& arrival, Seconds now) {
  Session& session = live_[arrival.slot];
  SL_CHECK(
      session.number == arrival.user && session.turn == arrival.turn + 1 && !calendar_.is_set(arrival.slot),
      "a session has one arrival at a time");
  if (session.turn == session.turns) {
    calendar_.remove(arrival.slot);
  } else {
    calendar_.set(arrival.slot, now + Seconds(law_.pause.draw(session.stream)));
  }
}

}  // namespace shardline
