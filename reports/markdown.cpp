#include "reports/markdown.hpp"

#include <algorithm>
#include <vector>

#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline {

namespace {

// Cells of "| a | b |", without the blanks around them.
std::vector<std::string> markdown_cells(std::string_view row) {
  std::vector<std::string> out;
  row.remove_prefix(1);
  for (std::size_t end = 0; (end = row.find('|')) != std::string_view::npos; row.remove_prefix(end + 1)) {
    std::string cell(row.substr(0, end));
    cell.erase(0, std::min(cell.find_first_not_of(' '), cell.size()));
    cell.erase(cell.find_last_not_of(' ') + 1);
    out.push_back(std::move(cell));
  }
  return out;
}

// "|---|--:|", below a table's header.
bool is_rule(std::string_view row) { return row.find_first_not_of("|-: ") == std::string_view::npos; }

std::string table_within(const std::vector<std::string_view>& rows, std::size_t width) {
  Table t(markdown_cells(rows.front()));
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (!is_rule(rows[i])) t.add(markdown_cells(rows[i]));
  }
  return t.text_within(width, {});
}

// Lines that a paragraph goes on in, or an item of a list.
bool goes_on(std::string_view line) { return !line.empty() && line.find_first_of("#|`-*") != 0; }

}  // namespace

std::string markdown_within(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  std::vector<std::string_view> lines;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
  }
  std::string out;
  bool code = false;
  for (std::size_t i = 0; i < lines.size();) {
    const std::string_view line = lines[i++];
    if (line.starts_with("```")) code = !code;
    if (code || line.empty() || line.starts_with("```")) {
      out += std::string(line) + "\n";
      continue;
    }
    if (line.starts_with("|")) {
      std::vector<std::string_view> rows{line};
      while (i < lines.size() && lines[i].starts_with("|")) rows.push_back(lines[i++]);
      out += table_within(rows, width);
      continue;
    }
    std::string paragraph(line);
    while (!line.starts_with("#") && i < lines.size() && goes_on(lines[i]))
      paragraph += " " + std::string(lines[i++]);
    out += wrapped(paragraph, width, line.starts_with("- ") ? "  " : "");
  }
  return out;
}

}  // namespace shardline
