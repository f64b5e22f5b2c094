// Writing JSON and CSV cells; numbers in the shortest text that reads back the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardline {

std::string number_text(double value);
/// Quoted and escaped; also safe inside an HTML <script> element.
std::string json_string(std::string_view text);

/// RFC 4180: quoted where the text holds a comma, quote or line break.
std::string csv_cell(std::string_view text);
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace shardline
