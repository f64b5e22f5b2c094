// A station with arrivals, played to its end: what the tests of closed forms share.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "sim/queue/arrivals.hpp"
#include "sim/queue/quantiles.hpp"
#include "sim/queue/station.hpp"
#include "sim/queue/statistics.hpp"

namespace shardline {

struct Visit {
  Seconds arrival, work, departure;
};

struct Played {
  std::vector<Visit> visits;  // by number of arrival
  LittleAccount account;
  Seconds end;
  Seconds served;
  double imbalance = 0;  // the largest at an event
};

struct Play {
  std::size_t servers = 1, customers = 1000;
  std::uint64_t seed = 1;
  Station::Preemption preemption = Station::Preemption::none;
  std::function<std::int32_t(std::size_t)> priority = [](std::size_t) { return 0; };
};

/// `customers` arrivals in all, each served by a draw of `work`, until the last has left.
inline Played play(Arrivals& arrivals, const Variate& work, const Play& p) {
  enum Tag : std::uint64_t { kArrival, kService };
  Played out;
  EventCalendar calendar;
  Station station(calendar, kService, p.servers, p.preemption);
  const Timer door = calendar.add(kArrival);
  RandomStream works(p.seed, "work");
  std::vector<Arrival> who;
  std::vector<std::size_t> present;
  const auto await = [&] {
    if (who.size() < p.customers && arrivals.next_time().value < 1e300)
      calendar.set(door, arrivals.next_time());
  };
  for (await(); !calendar.empty();) {
    const EventCalendar::Event event = calendar.pop();
    if (event.tag == kArrival) {
      who.push_back(arrivals.take());
      const std::size_t number = out.visits.size();
      out.visits.push_back({event.time, Seconds(work.draw(works)), Seconds(0)});
      out.account.enter(event.time);
      present.push_back(number);
      station.enter(number, out.visits.back().work, p.priority(number));
    } else {
      Visit& visit = out.visits[station.leave(event)];
      visit.departure = event.time;
      out.account.leave(event.time, visit.arrival);
      const auto number = static_cast<std::size_t>(&visit - out.visits.data());
      std::erase(present, number);
      arrivals.completed(who[number], event.time);
    }
    await();
    Seconds ages;
    for (const std::size_t number : present) ages += event.time - out.visits[number].arrival;
    out.imbalance = std::max(out.imbalance, out.account.imbalance(event.time, ages));
  }
  out.end = calendar.now();
  out.served = station.served();
  return out;
}

/// Times that customers wait and stay, without the first tenth, in which the queue fills.
inline BatchMeans stays(const Played& played, bool waits_only) {
  BatchMeans out;
  for (std::size_t i = played.visits.size() / 10; i < played.visits.size(); ++i) {
    const Visit& v = played.visits[i];
    out.add((v.departure - v.arrival - (waits_only ? v.work : Seconds(0))).value);
  }
  return out;
}

}  // namespace shardline
