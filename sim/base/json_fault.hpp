// Internal to reader.cpp: why a text is not JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace shardline::detail {

struct JsonFault {
  std::size_t offset = 0;  // byte of the text
  std::string what;
};

/// By RFC 8259, but for what Python writes of infinities; nothing: it is JSON of a mapping or sequence that
/// is neither too deep nor too large.
std::optional<JsonFault> fault_of_json(const std::string& text);

}  // namespace shardline::detail
