// What pages are made of: text as HTML, scripts, Vega's modules.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/page_files.hpp"

namespace shardline::page_parts {

/// In place of a chart, where Vega is missing.
extern const std::string_view kWithoutVega;

std::string escaped(std::string_view text);
/// A path or a command breaks behind its punctuation, never inside a word or behind a hyphen.
std::string code(std::string_view text);
std::string script(std::string_view text);
/// The modules as script elements, or nothing when one of them is missing or there is none.
std::optional<std::string> vega_scripts(const std::vector<std::filesystem::path>& files);

}  // namespace shardline::page_parts
