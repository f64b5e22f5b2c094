#include "reports/threshold_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "reports/json.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

std::vector<std::pair<std::string_view, std::string>> entries(const ThresholdProvenance& p) {
  return {{"model", p.model},     {"system", p.system},     {"version", p.version},
          {"command", p.command}, {"ranges", p.ranges},     {"precision", p.precision},
          {"engine", p.engine},   {"interval", p.interval}, {"context", p.context}};
}

std::string winner(bool pass_kv) { return pass_kv ? "pass_kv" : "pass_q"; }

std::string line_json(const ThresholdLine& l) {
  return fmt::format(
      R"({{"alpha": {}, "beta": {}, "gamma": {}, "fixed": {{"fresh": {}, "miss": {}, "constant": {}}}}})",
      number_text(l.alpha), number_text(l.beta), number_text(l.gamma), l.fresh, l.miss, l.constant);
}

std::string crossing_json(const ThresholdCrossing& c) {
  return fmt::format(
      R"({{"total_tokens": {}, "miss_rate": {}, "lowest_miss_rate": {}, "most_miss_rate": {}}})", c.total,
      number_text(c.miss), number_text(c.lowest), number_text(c.most));
}

template <class T>
std::string list_json(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& v : values) out += fmt::format("{}{}", out.size() > 1 ? ", " : "", v);
  return out + "]";
}

std::string ring_json(const ThresholdRing& r) {
  std::string out = fmt::format(
      "{{\n      \"cp\": {},\n      \"empirical\": {},\n      \"in_context\": {},\n      \"crossing\": {},\n"
      "      \"table\": {{\n        \"bytes\": {},\n"
      "        \"miss_per_octave\": {},\n        \"miss_nodes\": {},\n        \"step\": {},\n"
      "        \"new_tokens\": {},\n        \"log2_new_tokens_q24\": {},\n        \"values\": [",
      r.ranks, line_json(r.empirical), r.in_context ? line_json(*r.in_context) : "null",
      r.crossing ? crossing_json(*r.crossing) : "null", r.values.size() + 4 * r.lines.size(),
      r.miss_per_octave, r.miss_nodes, number_text(r.step), list_json(r.fresh), list_json(r.lines));
  const auto width = static_cast<std::size_t>(r.miss_nodes);
  for (std::size_t i = 0; i + width <= r.values.size(); i += width) {
    const auto row = r.values.begin() + static_cast<std::ptrdiff_t>(i);
    out += fmt::format("{}\n          {}", i > 0 ? "," : "",
                       list_json(std::vector<int>(row, row + r.miss_nodes)));
  }
  return out + "\n        ]\n      }\n    }";
}

}  // namespace

std::string threshold_csv(const ThresholdProvenance& provenance, const std::vector<std::string>& rules,
                          const std::vector<ThresholdRow>& rows) {
  std::string out;
  for (auto& [key, value] : entries(provenance)) {
    if (value.empty()) continue;
    std::replace_if(
        value.begin(), value.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    out += fmt::format("# {}: {}\n", key, value);
  }
  std::vector<std::string> cells{"cp",       "new_tokens", "cached_tokens", "miss_rate", "pass_kv_s",
                                 "pass_q_s", "winner",     "use",           "told_apart"};
  cells.insert(cells.end(), rules.begin(), rules.end());
  out += csv_line(cells);
  for (const ThresholdRow& r : rows) {
    SL_CHECK(r.pass_kv_chosen.size() == rules.size(), "a row has one choice per rule");
    cells = {std::to_string(r.ranks),
             std::to_string(r.fresh),
             std::to_string(r.cached),
             number_text(static_cast<double>(r.fresh) / static_cast<double>(r.fresh + r.cached)),
             number_text(r.pass_kv.value),
             number_text(r.pass_q.value),
             winner(r.pass_kv <= r.pass_q),
             r.test ? "test" : "derivation",
             !r.told_apart   ? ""
             : *r.told_apart ? "1"
                             : "0"};
    for (const bool pass_kv : r.pass_kv_chosen) cells.push_back(winner(pass_kv));
    out += csv_line(cells);
  }
  return out;
}

std::string threshold_json(const ThresholdRules& rules, const std::vector<ThresholdRegret>& regrets,
                           std::string_view in_context) {
  std::string out = "{\n  \"provenance\": {";
  for (const auto& [key, value] : entries(rules.provenance))
    out += fmt::format("{}\n    {}: {}", out.back() == '{' ? "" : ",", json_string(key), json_string(value));
  out += fmt::format(
      "\n  }},\n  \"algorithm_1\": {{\"kv_hidden_tokens_per_rank\": {0}, \"message_ratio\": {1}}},\n"
      "  \"algorithm_5\": {{\"kv_hidden_tokens_per_rank\": {0}, \"message_ratio\": {1}, "
      "\"all_to_all_tokens_per_rank\": {2}}},\n  \"appendix_d\": {3},\n  \"rings\": [",
      number_text(rules.kv_hidden_tokens), number_text(rules.message_ratio),
      number_text(rules.all_to_all_tokens), line_json(rules.appendix_d));
  for (const ThresholdRing& r : rules.rings)
    out += fmt::format("{}\n    {}", out.back() == '[' ? "" : ",", ring_json(r));
  out += "\n  ],\n  \"regret\": [";
  for (const ThresholdRegret& r : regrets)
    out += fmt::format(
        "{}\n    {{\"rule\": {}, \"cp\": {}, \"points\": {}, \"right\": {}, \"mean\": {}, \"p99\": {}, "
        "\"worst\": {}, "
        "\"worst_new_tokens\": {}, \"worst_cached_tokens\": {}}}",
        out.back() == '[' ? "" : ",", json_string(r.rule), r.ranks, r.points, r.right, number_text(r.mean),
        number_text(r.p99), number_text(r.worst), r.worst_fresh, r.worst_cached);
  return out + fmt::format("\n  ],\n  \"in_context\": {}\n}}\n", in_context.empty() ? "null" : in_context);
}

}  // namespace shardline
