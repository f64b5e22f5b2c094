#include "reports/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "reports/json.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

double nanoseconds(Seconds t) { return std::round(t.value * 1e9); }

// Perfetto takes ts and dur to whole nanoseconds each by itself (by rounding now, by truncation before) and
// drops an event that then begins before the one before has ended. This text gives `nanoseconds` either way.
std::string microseconds_text(double nanoseconds) {
  double out = nanoseconds / 1e3;
  while (std::floor(out * 1e3) < nanoseconds)
    out = std::nextafter(out, std::numeric_limits<double>::infinity());
  return number_text(out);
}

double start_of(const TraceEvent& e) { return nanoseconds(e.start); }
double end_of(const TraceEvent& e) { return nanoseconds(e.start + e.duration); }

// Perfetto binds each end to the event of that lane that holds its time, so that the tail lies within its
// event: at its end another one may begin. "bp":"e" does the same for the head, which else goes to the next
// event.
std::string flow_json(const TraceEvent& from, const TraceEvent& to, const TraceFlow& flow, std::size_t id) {
  constexpr const char* kEnd = R"({{"ph":"{}"{},"id":{},"pid":{},"tid":{},"ts":{},"name":{},"cat":"waits"}})";
  const std::string name = json_string(flow.name);
  return fmt::format(fmt::runtime(kEnd), "s", "", id, from.process, from.lane,
                     microseconds_text(end_of(from) - 1), name) +
         ",\n" +
         fmt::format(fmt::runtime(kEnd), "f", R"(,"bp":"e")", id, to.process, to.lane,
                     microseconds_text(start_of(to)), name);
}

}  // namespace

std::string trace_json(const TraceNames& names, const std::vector<TraceEvent>& events,
                       const std::vector<TraceFlow>& flows) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  CancelCheck check;
  const auto put = [&](const std::string& event) {
    check();
    grow_asking(out, event.size() + 16);
    if (!first) out += ",\n";
    first = false;
    out += event;
  };
  for (const auto& [process, name] : names.processes) {
    put(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
                    json_string(name)));
  }
  if (names.top)
    put(fmt::format(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":-1}}}})",
                    *names.top));
  for (const auto& [where, name] : names.lanes) {
    put(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                    where.first, where.second, json_string(name)));
  }
  for (const TraceEvent& e : events) {
    const double start = nanoseconds(e.start), end = nanoseconds(e.start + e.duration);
    std::string arguments;
    for (const auto& [key, value] : e.arguments) {
      if (!arguments.empty()) arguments += ",";
      arguments += json_string(key) + ":" + json_string(value);
    }
    put(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":{},"args":{{{}}}}})",
                    e.process, e.lane, microseconds_text(start), microseconds_text(end - start),
                    json_string(e.name), json_string(e.category), arguments));
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const TraceEvent &from = events.at(flows[i].from), &to = events.at(flows[i].to);
    if (end_of(from) > start_of(from) && end_of(to) > start_of(to)) put(flow_json(from, to, flows[i], i + 1));
  }
  out += "\n]}\n";
  return out;
}

}  // namespace shardline
