#include "sim/queue/station.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

Station::Station(EventCalendar& calendar, std::uint64_t tag, std::size_t servers, Preemption preemption)
    : calendar_(calendar), preemption_(preemption) {
  SL_CHECK(servers > 0, "a station has a server");
  for (std::size_t i = 0; i < servers; ++i) {
    servers_.push_back({calendar_.add(tag), {}, {}});
    idle_.push_back(servers - 1 - i);
  }
}

Station::~Station() {
  for (const Server& server : servers_) calendar_.remove(server.timer);
}

void Station::begin(std::size_t server, const Customer& customer) {
  Server& s = servers_[server];
  s.customer = customer;
  s.since = calendar_.now();
  calendar_.set(s.timer, s.since + customer.work);
}

// Whether the customer begins in place of another.
bool Station::take_place(const Customer& customer) {
  const auto last = std::max_element(servers_.begin(), servers_.end(), [](const Server& a, const Server& b) {
    return before(a.customer, b.customer);
  });
  if (customer.priority >= last->customer.priority) return false;
  // Who leaves at this very time makes room anyway.
  const Seconds left = calendar_.time(last->timer) - calendar_.now();
  if (!(left > Seconds(0))) return false;
  Customer broken_off = last->customer;
  broken_off.work = left;
  served_ += calendar_.now() - last->since;
  waiting_.push(broken_off);
  begin(static_cast<std::size_t>(last - servers_.begin()), customer);
  return true;
}

void Station::enter(std::uint64_t customer, Seconds work, std::int32_t priority) {
  SL_CHECK(work >= Seconds(0) && std::isfinite(work.value), "work is finite and not negative");
  const Customer who{entered_++, customer, work, priority};
  if (!idle_.empty()) {
    const std::size_t server = idle_.back();
    idle_.pop_back();
    begin(server, who);
  } else if (preemption_ == Preemption::none || !take_place(who)) {
    waiting_.push(who);
  }
}

std::uint64_t Station::leave(const EventCalendar::Event& event) {
  const auto server =
      std::find_if(servers_.begin(), servers_.end(), [&](const Server& s) { return s.timer == event.timer; });
  SL_CHECK(server != servers_.end(), "the event is of a server of the station");
  const std::uint64_t out = server->customer.number;
  served_ += event.time - server->since;
  const auto index = static_cast<std::size_t>(server - servers_.begin());
  if (waiting_.empty()) {
    idle_.push_back(index);
  } else {
    const Customer next = waiting_.top();
    waiting_.pop();
    begin(index, next);
  }
  return out;
}

Seconds Station::served() const {
  Seconds out = served_;
  for (const Server& server : servers_) {
    if (calendar_.is_set(server.timer)) out += calendar_.now() - server.since;
  }
  return out;
}

}  // namespace shardline
