// Perfetto keeps whole nanoseconds and drops an event of a lane that begins before the one before has ended.
#include "reports/trace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/base/reader.hpp"

namespace shardline {
namespace {

TEST(TraceNesting, BackToBackSpansDoNotOverlapInNanoseconds) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 rng(kSeed);
  std::uniform_real_distribution<double> span(1e-8, 1e-4);
  std::vector<TraceEvent> events;
  Seconds at(span(rng));
  for (int i = 0; i < 2000; ++i) {
    TraceEvent e;
    e.name = "op";
    e.start = at;
    e.duration = Seconds(span(rng));
    events.push_back(e);
    at = at + e.duration;
  }
  const Document d = Document::parse("trace.json", trace_json({}, events));
  const auto items = d.root().at("traceEvents").items();
  for (const bool truncated : {true, false}) {
    SCOPED_TRACE(truncated);
    const auto nanoseconds = [&](double us) {
      return truncated ? std::floor(us * 1e3) : std::round(us * 1e3);
    };
    double end = 0;
    int overlaps = 0;
    for (const Reader& e : items) {
      const double start = nanoseconds(e.at("ts").number(0, 1e18));
      if (start < end) ++overlaps;
      end = start + nanoseconds(e.at("dur").number(0, 1e18));
    }
    EXPECT_EQ(overlaps, 0);
  }
}

}  // namespace
}  // namespace shardline
