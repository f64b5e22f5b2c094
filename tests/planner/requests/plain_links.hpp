// Flows between engines that share their links, the plain way: water rises in all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "planner/requests/transfer_links.hpp"

namespace shardline {

struct PlainFlow {
  double begins, left, rate;
  std::size_t from, to, request;
  std::uint32_t reader;  // where it goes
  std::uint64_t number;  // where it was prefilled
  double submits = 0;    // what is left of its submission
  bool submitted = false;
};

class PlainLinks {
 public:
  PlainLinks(const TransferRates& rates, std::size_t senders, std::size_t engines)
      : rates_(rates), senders_(senders), engines_(engines) {}

  void begin(double now, std::uint32_t tokens, PlainFlow f) {
    f.submits = rates_.submit.value + rates_.submit_token.value * tokens;
    f.begins = TransferLinks::kNever;
    f.left = rates_.token.value * tokens;
    flows.push_back(f);
    submit(now);
  }
  // When something begins to flow, or ends.
  double next() const {
    double t = TransferLinks::kNever;
    for (const PlainFlow& f : flows) {
      if (f.submitted) t = std::min(t, f.begins > now_ ? f.begins : now_ + f.left / f.rate);
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (first_of_its_side(i)) t = std::min(t, now_ + flows[i].submits + rates_.fixed.value);
    }
    return t;
  }
  // Those that end up to then.
  std::vector<PlainFlow> go_on(double t) {
    std::vector<PlainFlow> still, ended;
    for (PlainFlow& f : flows) {
      const bool ends = f.submitted && f.begins <= now_ && now_ + f.left / f.rate <= t;
      if (f.submitted && f.begins <= now_) f.left -= f.rate * (t - now_);
      (ends ? ended : still).push_back(f);
    }
    flows = still;
    submit(t);
    now_ = t;
    share();
    return ended;
  }
  // Water rises in all flows until a link, or their own speed, stops them.
  void share() {
    std::vector<char> stopped(flows.size());
    for (std::size_t i = 0; i < flows.size(); ++i) {
      flows[i].rate = 0;
      stopped[i] = !flows[i].submitted || flows[i].begins > now_ ? 1 : 0;
    }
    while (std::count(stopped.begin(), stopped.end(), 0) > 0) {
      double rise = 1;
      std::vector<double> room(engines_), open(engines_);
      for (std::size_t e = 0; e < engines_; ++e) room[e] = e < senders_ ? rates_.senders : rates_.receivers;
      for (std::size_t i = 0; i < flows.size(); ++i) {
        for (const std::size_t e : {flows[i].from, flows[i].to}) {
          room[e] -= flows[i].rate;
          open[e] += stopped[i] == 0 ? 1 : 0;
        }
      }
      for (std::size_t i = 0; i < flows.size(); ++i) {
        if (stopped[i] != 0) continue;
        rise = std::min({rise, 1 - flows[i].rate, room[flows[i].from] / open[flows[i].from],
                         room[flows[i].to] / open[flows[i].to]});
      }
      const auto full = [&](std::size_t i) {
        return 1 - flows[i].rate <= rise + 1e-12 ||
               room[flows[i].from] / open[flows[i].from] <= rise + 1e-12 ||
               room[flows[i].to] / open[flows[i].to] <= rise + 1e-12;
      };
      std::vector<std::size_t> stop;
      for (std::size_t i = 0; i < flows.size(); ++i)
        if (stopped[i] == 0 && full(i)) stop.push_back(i);
      for (std::size_t i = 0; i < flows.size(); ++i)
        if (stopped[i] == 0) flows[i].rate += rise;
      for (const std::size_t i : stop) stopped[i] = 1;
    }
  }

  std::vector<PlainFlow> flows;

 private:
  // Whether the side that submits it is at it now: at the first of its hand-offs that is not submitted.
  bool first_of_its_side(std::size_t i) const {
    const auto side = [&](const PlainFlow& f) { return rates_.receiver_submits ? f.to : f.from; };
    if (flows[i].submitted) return false;
    for (std::size_t before = 0; before < i; ++before) {
      if (!flows[before].submitted && side(flows[before]) == side(flows[i])) return false;
    }
    return true;
  }
  // Each side at one after the other, up to then: who is submitted begins to flow a fixed time later.
  void submit(double until) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (!first_of_its_side(i)) continue;
      PlainFlow& f = flows[i];
      double& at = at_[rates_.receiver_submits ? f.to : f.from];
      at = std::max(at, now_);
      const double end = at + f.submits;
      f.submitted = end <= until;
      f.begins = f.submitted ? end + rates_.fixed.value : TransferLinks::kNever;
      f.submits = f.submitted ? 0 : end - until;
      at = std::min(end, until);
    }
  }

  const TransferRates rates_;
  const std::size_t senders_, engines_;
  double now_ = 0;
  std::map<std::size_t, double> at_;  // until when each side has submitted what it could
};

}  // namespace shardline
