// A station against the recursions of Lindley and of Kiefer and Wolfowitz, customer by customer [S18].
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/sim/queue/play.hpp"

namespace shardline {
namespace {

TEST(Lindley, S18EveryCustomerOfOneServer) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    RenewalArrivals arrivals(Variate::gamma(1, 0.2 + 0.2 * static_cast<double>(seed % 10)), seed);
    Play p;
    p.seed = seed;
    p.customers = 5000;
    const Played played = play(arrivals, Variate::lognormal(0.9, 1.2), p);
    double wait = 0;
    for (std::size_t i = 0; i < played.visits.size(); ++i) {
      const Visit& v = played.visits[i];
      if (i > 0) {
        const Visit& last = played.visits[i - 1];
        wait = std::max(0.0, wait + last.work.value - (v.arrival - last.arrival).value);
      }
      const double departure = v.arrival.value + wait + v.work.value;
      ASSERT_NEAR(v.departure.value / departure, 1, 1e-12) << i;
    }
  }
}

// The vector of work that each server has, sorted, before an arrival: the next customer begins at the least.
TEST(Lindley, S18EveryCustomerOfSeveralServers) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Play p;
    p.seed = seed;
    p.servers = 2 + seed % 6;
    p.customers = 5000;
    RenewalArrivals arrivals(Variate::gamma(1 / static_cast<double>(p.servers), 1.3), seed);
    const Played played = play(arrivals, Variate::gamma(0.9, 0.8), p);
    std::vector<double> free_at(p.servers, 0.0);
    for (const Visit& v : played.visits) {
      const auto first = std::min_element(free_at.begin(), free_at.end());
      *first = std::max(*first, v.arrival.value) + v.work.value;
      ASSERT_NEAR(v.departure.value / *first, 1, 1e-12);
    }
  }
}

}  // namespace
}  // namespace shardline
