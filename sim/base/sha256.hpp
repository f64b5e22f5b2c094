// SHA-256 (FIPS 180-4): what a file is known by, on every machine.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// Of the bytes of `text`, as 64 hexadecimal digits in lower case.
std::string sha256(std::string_view text);

}  // namespace shardline
