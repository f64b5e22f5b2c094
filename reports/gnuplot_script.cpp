#include "reports/gnuplot_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "sim/base/error.hpp"

namespace shardline::gnuplot {

std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    // Two apostrophes stand for one, but gnuplot 5.4 ends the text at the second pair of several, and at one
    // that begins it.
    if (c == '\'')
      out += "'.\"'\".'";
    else if (c == '\n')
      out += "'.\"\\n\".'";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string out, line, word;
  while (words >> word) {
    if (!line.empty() && letters(line) + 1 + letters(word) > width) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

std::string preamble(const std::string& terminal, const std::string& output_file, int height) {
  SL_CHECK(terminal == "svg" || terminal == "png", "the picture format is svg or png");
  std::string out = "set encoding utf8\n";
  const std::string size = fmt::format("size {},{} noenhanced", kWidth, height);
  if (terminal == "svg") {
    out += fmt::format("set terminal svg {} font 'DejaVu Sans,16' background '#ffffff'\n", size);
  } else {
    out += fmt::format(
        "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) {{\n"
        "  set terminal pngcairo {0} font 'DejaVu Sans,13' background '#ffffff'\n}} else {{\n"
        "  set terminal png truecolor {0} font 'DejaVuSans,13' background '#ffffff'\n}}\n",
        size);
  }
  // Marks of one size in both formats, whose units differ.
  out += terminal == "svg" ? "set pointsize 0.7\n" : "set pointsize 1.5\n";
  // A leading bar would make gnuplot open a pipe.
  if (output_file.empty()) return out;
  const std::string file = output_file.starts_with('|') ? "./" + output_file : output_file;
  return out + "set output " + literal(file) + "\n";
}

std::string font(const std::string& terminal, int points) {
  return fmt::format("font ',{}'", terminal == "svg" ? points * 4 / 3 : points);
}

std::string title_line(const std::string& title, const std::string& terminal) {
  if (title.empty()) return "";
  const std::string lines = wrapped(title, 90);
  const auto further = static_cast<double>(std::count(lines.begin(), lines.end(), '\n'));
  // Not `set title`: that is centred over the axes alone, and cut at the picture's edge where a legend beside
  // them leaves little room.
  return fmt::format(
      "set tmargin {:g}\nset label 3 {} at screen 0.5, graph 1 center offset character 0, {:g} noenhanced "
      "{}\n",
      3.2 + 1.5 * further, literal(lines), 1.2 + 1.5 * further, font(terminal, 17));
}

std::string axis_label(char axis, const std::string& text) {
  return text.empty() ? "" : fmt::format("set {}label {} noenhanced\n", axis, literal(text));
}

}  // namespace shardline::gnuplot
