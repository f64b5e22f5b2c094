// What every target of libFuzzer shares: a text is read, or refused by a UserError that says something.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/base/error.hpp"

namespace shardline::fuzz {

/// Says what an input that broke a law is in words, where a target has some.
inline void (*g_report)() = nullptr;

/// Ends the process, which libFuzzer reports with the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  if (g_report != nullptr) g_report();
  std::abort();
}

/// Whether a terminal may be shown the text. Not instrumented: its characters would take half of the time of
/// inputs that are refused, and their branches say nothing of the parser.
__attribute__((no_sanitize("coverage"))) inline bool harmless_text(std::string_view text) {
  bool good = true;
  for (const char c : text) good = good && (static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  return good;
}

/// Any exception but a UserError passes, and ends the process as well.
template <class Read>
int read(const std::uint8_t* data, std::size_t size, Read read_text) {
  try {
    read_text(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const UserError& e) {
    require(!e.diagnostics().empty(), "a refusal has a diagnostic");
    for (const Diagnostic& d : e.diagnostics()) require(!d.what.empty(), "a diagnostic says what is wrong");
    // The message is all diagnostics as they are printed: to print each a second time took a third of an
    // execution.
    require(harmless_text(e.what()), "no control character reaches a terminal");
  }
  return 0;
}

/// Reads what was written of something that was read: a refusal of it breaks a law, where read() would let it
/// pass as one of the input.
template <class Read>
auto read_back(const std::string& written, Read read_text) {
  try {
    return read_text(written);
  } catch (const UserError& e) {
    require(false, fmt::format("what was written is read: {}\n{}", e.what(), written).c_str());
    throw;
  }
}

}  // namespace shardline::fuzz
