#include "calibrate/validate/served_tables.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "planner/strategies/strategy.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline {

namespace {

constexpr int kMostRows = 1'000'000;

// What tables sort by: stages, groups of attention, ranks of one.
using Layout = std::tuple<int, int, int>;

Layout layout_of(const Plan& p) { return {p.pp, p.dp, p.tpa}; }

std::string name_of(const Layout& layout) {
  const auto [stages, groups, ranks] = layout;
  std::string out;
  const auto add = [&](const char* what, int n) {
    out += fmt::format("{}{} {}", out.empty() ? "" : " x ", what, n);
  };
  if (stages > 1) add("PP", stages);
  if (groups > 1) add("attention DP", groups);
  if (ranks > 1 || out.empty()) add("TP", ranks);
  return out;
}

ServedError read_error(const Reader& line) {
  return {line.at("of").text(), static_cast<int>(line.at("rows").integer(1, kMostRows)),
          line.at("median").number(0, 100), line.at("p90").number(0, 100), line.at("bias").number(-1, 100)};
}

std::string error_yaml(const ServedError& e) {
  return fmt::format("{{of: {}, rows: {}, median: {:.6f}, p90: {:.6f}, bias: {:.6f}}}", yaml_quoted(e.of),
                     e.rows, e.median, e.p90, e.bias);
}

}  // namespace

std::vector<ServedError> errors_by_layout(const std::vector<LeftOutModel>& models) {
  std::map<Layout, std::vector<double>> by_layout;
  std::map<std::pair<std::string, Layout>, std::vector<double>> by_model;
  for (const LeftOutModel& m : models) {
    for (std::size_t i = 0; i < m.rows.size(); ++i) {
      const ServedRow& r = m.rows[i]->row;
      const Layout layout = layout_of(parse_plan(r.plan));
      by_layout[layout].push_back(m.tpot[i]);
      by_model[{m.label + " on " + r.system, layout}].push_back(m.tpot[i]);
    }
  }
  std::vector<ServedError> out;
  for (const auto& [layout, ratios] : by_layout)
    out.push_back(served_error("TPOT with " + name_of(layout), ratios));
  for (const auto& [key, ratios] : by_model) {
    if (ratios.size() >= kFewestLaidOut)
      out.push_back(served_error(fmt::format("TPOT of {}, {}", key.first, name_of(key.second)), ratios));
  }
  return out;
}

ServedDetails load_served_details(const std::filesystem::path& profile) {
  Document document = Document::load(profile);
  ServedDetails out;
  const Reader error = document.root().at("host").at("error");
  if (const auto layouts = error.find("layouts")) {
    for (const Reader& line : layouts->items()) out.layouts.push_back(read_error(line));
  }
  if (const auto measured = error.find("measured"))
    out.measured = static_cast<int>(measured->integer(1, kMostRows));
  if (const auto left_out = error.find("left_out")) {
    for (const Reader& line : left_out->items()) {
      out.left_out.push_back({line.at("why").text(), static_cast<int>(line.at("rows").integer(1, kMostRows)),
                              line.at("of").one_of({"row", "ttft"}) == 1});
      if (const auto priced = line.find("priced")) out.left_out.back().priced = read_error(*priced);
    }
  }
  for (const auto& [key, to] :
       {std::pair{"ttft_covered", &out.ttft_covered}, {"tpot_covered", &out.tpot_covered}}) {
    const auto covered = error.find(key);
    if (!covered) continue;
    for (const Reader& line : covered->items())
      to->push_back({line.at("of").text(), static_cast<int>(line.at("rows").integer(1, kMostRows)),
                     static_cast<int>(line.at("models").integer(1, kMostRows)),
                     line.at("covered").number(-1, 1),
                     static_cast<int>(line.at("counted").integer(0, kMostRows))});
  }
  if (const auto other = error.find("other_host")) out.other_host.push_back(read_error(*other));
  if (const auto versions = error.find("versions")) {
    for (const Reader& line : versions->items())
      out.versions.push_back(
          {line.at("version").text(), static_cast<int>(line.at("rows").integer(1, kMostRows))});
  }
  document.finish();
  return out;
}

std::string served_errors_yaml(const std::vector<ServedError>& errors) {
  std::string out;
  for (const ServedError& e : errors) out += fmt::format("      - {}\n", error_yaml(e));
  return out;
}

std::string served_details_yaml(const ServedDetails& details) {
  std::string out = "    layouts:\n" + served_errors_yaml(details.layouts);
  out += fmt::format("    measured: {}\n    left_out:{}\n", details.measured,
                     details.left_out.empty() ? " []" : "");
  for (const ServedLeftOut& l : details.left_out)
    out += fmt::format("      - {{of: {}, rows: {}, why: {}{}}}\n", l.ttft_alone ? "ttft" : "row", l.rows,
                       yaml_quoted(l.why), l.priced.rows > 0 ? ", priced: " + error_yaml(l.priced) : "");
  for (const auto& [key, of] :
       {std::pair{"tpot_covered", &details.tpot_covered}, {"ttft_covered", &details.ttft_covered}}) {
    if (!of->empty()) out += fmt::format("    {}:\n", key);
    for (const ServedCoverage& c : *of)
      out += fmt::format("      - {{of: {}, rows: {}, models: {}, counted: {}, covered: {:.3f}}}\n",
                         yaml_quoted(c.of), c.rows, c.models, c.counted, c.covered);
  }
  for (const ServedError& e : details.other_host) out += fmt::format("    other_host: {}\n", error_yaml(e));
  if (!details.versions.empty()) out += "    versions:\n";
  for (const MeasuredVersion& v : details.versions)
    out += fmt::format("      - {{version: {}, rows: {}}}\n", yaml_quoted(v.version), v.rows);
  return out;
}

}  // namespace shardline
