#include "calibrate/validate/context_truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace shardline {

namespace {

using Column = TruthColumn;

constexpr std::array kColumnKeys{"ttft", "ttit",    "pass_kv", "pass_q",    "send_recv",
                                 "attn", "all2all", "attn_op", "attn_loop", "whole_pass_q"};
static_assert(kColumnKeys.size() == static_cast<std::size_t>(Column::count));
constexpr std::array kTableKeys{"headline", "table4", "table5", "table6", "table7", "table8"};

std::optional<int> degree(std::string_view text) {
  int n = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (fault != std::errc{} || end != text.data() + text.size() || text.front() == '0') return std::nullopt;
  return n >= 1 && n <= 1024 ? std::optional(n) : std::nullopt;
}

}  // namespace

const char* to_string(Column column) { return kColumnKeys.at(static_cast<std::size_t>(column)); }
const char* to_string(TruthTableId table) { return kTableKeys.at(static_cast<std::size_t>(table)); }

double unit_seconds(const std::string& unit) { return unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : 1; }

const TruthTable* ContextTruth::find(TruthTableId id) const {
  const auto it = std::find_if(tables.begin(), tables.end(), [&](const TruthTable& t) { return t.id == id; });
  return it == tables.end() ? nullptr : &*it;
}

std::optional<ContextPlan> parse_parallelism(const std::string& text) {
  std::string_view rest = text;
  ContextPlan plan;
  if (rest.starts_with("CP")) {
    const std::size_t x = rest.find('x');
    if (x == std::string_view::npos) return std::nullopt;
    const auto cp = degree(rest.substr(2, x - 2));
    if (!cp) return std::nullopt;
    plan.cp = *cp;
    rest.remove_prefix(x + 1);
  }
  if (!rest.starts_with("TP")) return std::nullopt;
  const auto tpa = degree(rest.substr(2));
  if (!tpa) return std::nullopt;
  plan.tpa = *tpa;
  return plan;
}

std::string to_string(const ContextPlan& plan) {
  return plan.cp == 1 ? fmt::format("TP{}", plan.tpa) : fmt::format("CP{}xTP{}", plan.cp, plan.tpa);
}

std::string measurement(TruthTableId table, const TruthRow& row, Column column) {
  const bool parts = table == TruthTableId::table5 || table == TruthTableId::table8;
  std::string what = parts ? fmt::format("{} ", to_string(table)) : "";
  bool pass_q = row.plan.pass_q && row.plan.cp > 1;
  if (table == TruthTableId::table4) {
    what += "persistent ttft";
    pass_q = column == Column::pass_q;
  } else if (table == TruthTableId::table8 && row.plan.cp == 1 &&
             (column == Column::attn_loop || column == Column::whole_pass_q)) {
    what += to_string(Column::attn_op);
  } else if (column == Column::ttit) {
    what += to_string(column);
    pass_q = false;
  } else if (column != Column::count) {
    what += to_string(column);
  }
  return fmt::format("{} {} {}{} P={} T={} B={}", what, row.system, to_string(row.plan),
                     pass_q ? " pass-Q" : "", row.cached, row.tokens, row.batch);
}

void mark_calibration(ContextTruth& truth, const ContextTruth& fitted) {
  std::set<std::string> keys;
  for (const TruthTable& table : fitted.tables) {
    for (const TruthRow& row : table.rows) {
      for (const Column c : table.columns) {
        if (row.fitted(c)) keys.insert(measurement(table.id, row, c));
      }
    }
  }
  for (TruthTable& table : truth.tables) {
    for (TruthRow& row : table.rows) {
      for (const Column c : table.columns) {
        if (keys.contains(measurement(table.id, row, c))) row.calibration[static_cast<std::size_t>(c)] = true;
      }
    }
  }
}

}  // namespace shardline
