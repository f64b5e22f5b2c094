#include "calibrate/validate/paper_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace shardline {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// Three digits at most: an error of errors needs no more.
std::string error_text(double v) {
  const int digits = v < 0.0995 ? 2 : v < 0.995 ? 1 : 0;
  return fmt::format("{:.{}f} %", 100 * v, digits);
}

std::string escaped(const std::string& text) {
  std::string out;
  bool space = false;
  for (const char c : text) {
    if (c == ' ' || c == '\n') {
      space = true;
      continue;
    }
    if (c == '\t') {
      out += ';';
      space = true;
      continue;
    }
    if (space && !out.empty()) out += ' ';
    space = false;
    if (std::string_view("\\`*_[]<>|~#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

bool numeric(const std::string& cell) {
  return std::isdigit(static_cast<unsigned char>(cell.front())) != 0 ||
         ((cell.front() == '-' || cell.front() == '+') && cell.size() > 1);
}

// Lists need an empty line before and after them, and so do tables.
std::string markdown_items(const std::vector<PaperItem>& items) {
  std::string out;
  bool list = false;
  for (const PaperItem& item : items) {
    if (!item.rows.empty()) {
      out += (list ? "\n" : "") + markdown_table(item.rows) + "\n";
      list = false;
    } else {
      out += "- " + escaped(item.text) + "\n";
      list = true;
    }
  }
  return out + (list ? "\n" : "");
}

std::string markdown_section(const PaperSection& section) {
  const bool table = std::any_of(section.items.begin(), section.items.end(),
                                 [](const PaperItem& item) { return !item.rows.empty(); });
  return (table ? "### " : "") + escaped(section.title) + "\n\n" + markdown_items(section.items);
}

}  // namespace

const char* to_string(Standing standing) {
  return std::array{"held out", "excluded", "repeated", "calibration",
                    "derived"}[static_cast<std::size_t>(standing)];
}

const char* to_string(Verdict verdict) {
  return std::array{"met", "MISSED", "explained", "open", "no goal"}[static_cast<std::size_t>(verdict)];
}

ErrorSummary error_summary(std::vector<double> errors) {
  ErrorSummary s;
  s.count = errors.size();
  if (errors.empty()) return s;
  for (double& e : errors) e = std::abs(e);
  std::sort(errors.begin(), errors.end());
  const std::size_t half = errors.size() / 2;
  s.median = errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  s.largest = errors.back();
  return s;
}

ErrorSummary errors_of(const PaperReport& report, const std::string& group, Standing standing) {
  std::vector<double> errors;
  for (const PaperPoint& p : report.points) {
    if (p.group == group && p.standing == standing) errors.push_back(p.error());
  }
  return error_summary(std::move(errors));
}

std::string percent_text(double part) { return fmt::format("{:.2f} %", 100 * part); }

Rows summary_rows(std::span<const PaperReport> reports, bool reasons) {
  Rows rows{{"paper", "group", "compared", "fitted", "median", "largest", "goal", "verdict"}};
  if (reasons) rows.front().emplace_back("why");
  for (const PaperReport& report : reports) {
    for (const PaperGroup& g : report.groups) {
      const bool errors = g.finding.empty() && g.errors.count > 0;
      std::vector<std::string> row{report.id,
                                   g.name,
                                   std::to_string(g.errors.count + g.fitted),
                                   std::to_string(g.fitted),
                                   errors ? error_text(g.errors.median) : "",
                                   errors ? error_text(g.errors.largest) : g.finding,
                                   g.goal,
                                   to_string(g.verdict)};
      if (reasons) row.push_back(g.reason);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string goals_line(std::span<const PaperReport> reports) {
  std::array<std::size_t, 5> count{};
  std::string missed;
  for (const PaperReport& report : reports) {
    std::string names;
    for (const PaperGroup& g : report.groups) {
      ++count[static_cast<std::size_t>(g.verdict)];
      if (g.verdict == Verdict::missed) names += (names.empty() ? "" : "; ") + g.name;
    }
    if (!names.empty()) missed += fmt::format("{}{}: {}", missed.empty() ? "" : ". ", report.id, names);
  }
  const auto of = [&](Verdict v) { return count[static_cast<std::size_t>(v)]; };
  std::string out = fmt::format("Goals: {} met, {} MISSED", of(Verdict::met), of(Verdict::missed));
  if (!missed.empty()) out += fmt::format(" ({})", missed);
  return out + fmt::format("; {} explained, {} open, {} without a goal", of(Verdict::explained),
                           of(Verdict::open), of(Verdict::none));
}

std::string markdown_table(const Rows& rows) {
  std::size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  std::vector<bool> right(columns, rows.size() > 1);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      if (!rows[r][c].empty() && !numeric(rows[r][c])) right[c] = false;
    }
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += "|";
    for (std::size_t c = 0; c < columns; ++c)
      out += " " + (c < rows[r].size() ? escaped(rows[r][c]) : "") + " |";
    out += "\n";
    if (r > 0) continue;
    out += "|";
    for (std::size_t c = 0; c < columns; ++c) out += right[c] ? "---:|" : "---|";
    out += "\n";
  }
  return out;
}

std::string validation_markdown(std::span<const PaperReport> reports, const std::string& version,
                                const std::string& pictures, const std::vector<std::string>& drawn) {
  std::string out = fmt::format(
      "# Predicted against published\n\n"
      "Made by `shardline validate all`, shardline {}. All our values, errors and verdicts are computed when "
      "it "
      "runs.\n\n"
      "{}.\n\n"
      "- **Compared**: published values that we also compute. **Fitted**: those of them that a parameter was "
      "solved from; they predict nothing and count in no error.\n"
      "- **Median**, **largest**: absolute relative errors of the rest.\n"
      "- **Goal**: median / largest error, or the range of our value. **MISSED** stays "
      "missed "
      "whatever the reason.\n"
      "- **explained**: values that the goal leaves out, for the reason given. **open**: far off, without a "
      "goal and not fully explained.\n\n"
      "## Summary\n\n",
      version, escaped(goals_line(reports)));
  out += markdown_table(summary_rows(reports, true)) + "\n";
  for (const PaperReport& report : reports) {
    out += fmt::format("## {}\n\n{}\n\n", escaped(report.title), escaped(report.source));
    if (std::find(drawn.begin(), drawn.end(), report.id) != drawn.end())
      out += fmt::format("![{}: predicted against published]({}/{}.png)\n\n", escaped(report.title), pictures,
                         report.id);
    if (!report.remark.empty()) out += escaped(report.remark) + "\n\n";
    out += markdown_items(report.intro);
    for (const PaperSection& section : report.sections) out += markdown_section(section);
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace shardline
