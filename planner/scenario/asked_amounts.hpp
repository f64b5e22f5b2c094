// Times and counts of tokens as people write them: in options of commands and in arguments of the library.
#pragma once

#include <string>

#include "sim/base/units.hpp"

namespace shardline {

/// "20 ms": a positive time with its unit, or where zero is one, too, "0" and "0 ms". `name` ("--ttl") begins
/// the text of the UserError that is thrown.
Seconds asked_time(const std::string& name, const std::string& text, bool or_zero = false);

/// "32768", "32K" (which is 32768), "32K tokens", for the unit can be nothing else. Throws UserError, too.
long long asked_tokens(const std::string& name, const std::string& text);

/// "1000", "1K" (which is 1024), as options of commands that are counts are read (count_of). Throws
/// UserError, too.
long long asked_count(const std::string& name, const std::string& text);

/// "5/s", "300/min", "5" (of a second): requests a second, above 0. Throws UserError, too.
double asked_rate(const std::string& name, const std::string& text);

/// "16 GB": a positive size with its unit. Throws UserError, too.
Bytes asked_bytes(const std::string& name, const std::string& text);

}  // namespace shardline
