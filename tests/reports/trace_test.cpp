#include "reports/trace.hpp"

#include <gtest/gtest.h>

#include <random>

#include "sim/base/reader.hpp"

namespace shardline {
namespace {

TEST(Trace, Golden) {
  const TraceNames names{{{0, "stage 0"}}, {{{0, 1}, "compute"}}};
  TraceEvent e;
  e.process = 0;
  e.lane = 1;
  e.name = "qkv";
  e.category = "gemm";
  e.start = Seconds(0.5);
  e.duration = Seconds(0.25);
  e.arguments = {{"flops", "4 TFLOP"}, {"HBM bytes", "2 GB"}};
  EXPECT_EQ(trace_json(names, {e}),
            R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","pid":0,"name":"process_name","args":{"name":"stage 0"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":0,"tid":1,"ts":5e+05,"dur":250000,"name":"qkv","cat":"gemm","args":{"flops":"4 TFLOP","HBM bytes":"2 GB"}}
]}
)");
}

TEST(Trace, EmptyIsStillATrace) {
  EXPECT_EQ(trace_json({}, {}), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n");
}

struct Read {
  int process, lane;
  double start, duration;
  std::string name;
};

std::vector<Read> read_events(const std::string& json) {
  const Document d = Document::parse("trace.json", json);
  d.root().at("displayTimeUnit").text();
  std::vector<Read> out;
  for (const Reader& e : d.root().at("traceEvents").items()) {
    e.allow_other_keys();
    if (e.at("ph").text() != "X") continue;
    out.push_back({static_cast<int>(e.at("pid").integer(0, 1000)),
                   static_cast<int>(e.at("tid").integer(0, 1000)), e.at("ts").number(0, 1e18),
                   e.at("dur").number(0, 1e18), e.at("name").text()});
  }
  d.finish();
  return out;
}

// Spans that follow one another in two lanes, as an engine gives them: each starts where the one before
// ended.
std::vector<TraceEvent> back_to_back(std::mt19937_64& rng) {
  std::uniform_real_distribution<double> span(1e-8, 1e-4);
  std::vector<TraceEvent> events;
  for (int lane = 0; lane < 2; ++lane) {
    Seconds at(span(rng));
    for (int i = 0; i < 1000; ++i) {
      const Seconds duration(span(rng));
      TraceEvent e;
      e.lane = lane;
      e.name = "op\"" + std::to_string(i);
      e.start = at;
      e.duration = duration;
      events.push_back(e);
      at = at + duration;
    }
  }
  return events;
}

TEST(Trace, ReadsBackInOrder) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 rng(kSeed);
  const auto events = back_to_back(rng);
  const auto read = read_events(trace_json({}, events));
  ASSERT_EQ(read.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(read[i].lane, events[i].lane);
    EXPECT_EQ(read[i].name, events[i].name);
    EXPECT_NEAR(read[i].start, events[i].start.value * 1e6, 1e-3);
    EXPECT_NEAR(read[i].duration, events[i].duration.value * 1e6, 1e-3);
  }
}

}  // namespace
}  // namespace shardline
