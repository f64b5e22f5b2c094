#include "reports/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "reports/json.hpp"

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

}  // namespace

std::string trace_json(const TraceNames& names, const std::vector<TraceEvent>& events) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  const auto put = [&](const std::string& event) {
    if (!first) out += ",\n";
    first = false;
    out += event;
  };
  for (const auto& [process, name] : names.processes) {
    put(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
                    json_string(name)));
  }
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
  return out + "\n]}\n";
}

}  // namespace shardline
