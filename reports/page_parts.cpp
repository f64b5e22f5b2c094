#include "reports/page_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "reports/json.hpp"
#include "reports/page.hpp"
#include "sim/base/error.hpp"

#ifndef SHARDLINE_VEGA_FILES
#define SHARDLINE_VEGA_FILES ""
#endif

namespace shardline {

namespace page_parts {

const std::string_view kWithoutVega =
    "<p class=\"note\">The chart needs Vega: install the Debian package libjs-vega, configure and build "
    "shardline again, then write this page again. All else works without it.</p>";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string script(std::string_view text) {
  return fmt::format("<script>\"use strict\";\n{}</script>\n", text);
}

// Debian ships Vega's modules without the bundle that joins them, and their browser branch overwrites one
// global object; their AMD branch names what it needs, so a loader of a few lines serves.
std::optional<std::string> vega_scripts(const std::vector<std::filesystem::path>& files) {
  if (files.empty()) return std::nullopt;
  // Vega's licence asks that its notice goes with it.
  std::string out = fmt::format("<!--\n{}-->\n", page_file("NOTICE")) + script(page_file("vega_loader.js"));
  for (const auto& file : files) {
    // Its memory is ours to ask for: a stream that runs out of memory says no more than one without a file,
    // and the page would miss its chart for a reason that is not so.
    std::error_code none;
    const std::uintmax_t size = std::filesystem::file_size(file, none);
    if (none) return std::nullopt;
    std::string module(size, '\0');
    std::ifstream in(file, std::ios::binary);
    if (!in.read(module.data(), static_cast<std::streamsize>(module.size()))) return std::nullopt;
    module.resize(
        std::min(module.size(), module.find("//# sourceMappingURL")));  // a reference to a file not there
    if (module.find("</script") != std::string::npos) return std::nullopt;
    const std::string name = file.filename().string();
    out += fmt::format("<script>vegaNext = {};\n{}</script>\n", json_string(name.substr(0, name.find('.'))),
                       module);
  }
  return out + script(page_file("vega_join.js"));
}

std::string code(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" /,:"), text.size() - 1) + 1;
    out += "<span>" + escaped(text.substr(0, end)) + "</span><wbr>";
    text.remove_prefix(end);
  }
  return "<code>" + out + "</code>";
}

}  // namespace page_parts

std::string_view page_file(std::string_view name) {
  const auto files = page_files();
  const auto at = std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  SL_CHECK(at != files.end(), "every file of a page is built in");
  return at->text;
}

std::vector<std::filesystem::path> vega_files() {
  std::vector<std::filesystem::path> files;
  std::istringstream list(SHARDLINE_VEGA_FILES);
  for (std::string file; std::getline(list, file, ';');)
    if (!file.empty()) files.emplace_back(file);
  return files;
}

}  // namespace shardline
