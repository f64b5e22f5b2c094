#include "reports/trace.hpp"

#include <fmt/format.h>

#include "reports/json.hpp"

namespace shardline {

std::string trace_json(const TraceNames& names, const std::vector<TraceEvent>& events) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  const auto put = [&](const std::string& event) {
    if (!first) out += ",\n";
    first = false;
    out += event;
  };
  for (const auto& [process, name] : names.processes) {
    put(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process, json_string(name)));
  }
  for (const auto& [where, name] : names.lanes) {
    put(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", where.first,
                    where.second, json_string(name)));
  }
  for (const TraceEvent& e : events) {
    std::string arguments;
    for (const auto& [key, value] : e.arguments) {
      if (!arguments.empty()) arguments += ",";
      arguments += json_string(key) + ":" + json_string(value);
    }
    put(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":{},"args":{{{}}}}})", e.process,
                    e.lane, number_text(e.start.value * 1e6), number_text(e.duration.value * 1e6), json_string(e.name),
                    json_string(e.category), arguments));
  }
  return out + "\n]}\n";
}

}  // namespace shardline
