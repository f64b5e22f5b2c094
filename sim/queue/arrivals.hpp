// Who comes when: arrivals that know of nobody's service, and those that wait for their last answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/base/units.hpp"
#include "sim/queue/calendar.hpp"
#include "sim/queue/variate.hpp"

namespace shardline {

struct Arrival {
  Seconds time;
  std::uint64_t user =
      0;  // who comes: the arrival's number where all are strangers, else the user or the session
  std::uint32_t turn = 0;  // which time this one comes, from 0
  Timer slot;              // of the process, until the arrival is completed
};

/// A process of arrivals [S14], taken one by one in the order of time. What one draws depends on its seed
/// only, so two simulations with one seed have the same users, intervals and pauses, however long each serves
/// whom.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// When the next one comes; infinite if none does before another is completed.
  virtual Seconds next_time() const = 0;
  /// The next one. There is one (checked).
  virtual Arrival take() = 0;
  /// The arrival leaves at `now`, not before the last one taken: processes in which somebody waits for that
  /// go on.
  virtual void completed(const Arrival& arrival, Seconds now);
};

/// Strangers at independent intervals: Poisson (Variate::exponential), gamma by its spread, evenly (fixed).
/// The first comes an interval after 0.
class RenewalArrivals : public Arrivals {
 public:
  RenewalArrivals(Variate interval, std::uint64_t seed);
  Seconds next_time() const override { return next_; }
  Arrival take() override;

 private:
  Variate interval_;
  RandomStream stream_;
  Seconds next_;
  std::uint64_t count_ = 0;
};

/// Strangers by a Poisson process whose rate alternates: `on` and `off` arrivals per second, over periods of
/// exponential length. At 0 it is on with the long-run probability. Mean rate: the rates weighed by the
/// periods.
class BurstArrivals : public Arrivals {
 public:
  struct Rates {
    PerSecond on, off;          // not negative, one of them positive
    Seconds mean_on, mean_off;  // positive
  };
  BurstArrivals(Rates rates, std::uint64_t seed);
  Seconds next_time() const override { return next_; }
  Arrival take() override;

 private:
  void advance();

  Rates rates_;
  RandomStream phases_, stream_;
  bool on_ = false;
  Seconds phase_end_, next_;
  std::uint64_t count_ = 0;
};

/// Times that somebody else reads or computes, in their order (checked), and no more after an empty one. Only
/// one is held: a trace may be larger than memory. `pace` > 0 divides all times: 2 is twice the load.
class TraceArrivals : public Arrivals {
 public:
  using Source = std::function<std::optional<Seconds>()>;
  explicit TraceArrivals(Source source, double pace = 1);
  Seconds next_time() const override;
  Arrival take() override;

 private:
  void read();

  Source source_;
  double pace_;
  std::optional<Seconds> next_;
  std::uint64_t count_ = 0;
};

/// So many users, each of whom comes again a think time (in s) after its last arrival was completed: a closed
/// loop.
class ClosedLoop : public Arrivals {
 public:
  /// together: all come at 0, a burst; apart: each after a think time.
  enum class Start : std::uint8_t { together, apart };
  ClosedLoop(std::size_t users, Variate think, std::uint64_t seed, Start start);
  Seconds next_time() const override { return calendar_.next_time(); }
  Arrival take() override;
  void completed(const Arrival& arrival, Seconds now) override;

 private:
  struct User {
    RandomStream stream;
    std::uint32_t turn;
  };
  Variate think_;
  std::vector<User> users_;  // by timer
  EventCalendar calendar_;
};

/// Sessions that begin at independent intervals and come for some turns, with a pause between the end of one
/// and the next. Memory: the sessions that are not over.
class SessionArrivals : public Arrivals {
 public:
  struct Law {
    Variate interval;  // in s, between beginnings of sessions
    Variate turns;     // rounded up, at least one
    Variate pause;     // in s
  };
  SessionArrivals(Law law, std::uint64_t seed);
  Seconds next_time() const override { return calendar_.next_time(); }
  Arrival take() override;
  void completed(const Arrival& arrival, Seconds now) override;

 private:
  struct Session {
    std::uint64_t number = 0;
    RandomStream stream;
    std::uint32_t turn = 0, turns = 0;
  };
  void begin(Timer slot, Seconds time);

  Law law_;
  RandomStream intervals_, sessions_;
  std::vector<Session> live_;  // by timer; that of the next beginning has its turn 0
  EventCalendar calendar_;
  std::uint64_t count_ = 0;
  Timer opening_;  // the session that has not begun
};

}  // namespace shardline
