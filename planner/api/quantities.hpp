// Times and counts of tokens as people write them, read as the command line reads them.
#pragma once

#include <string>

namespace shardline::api {

/// "20 ms" in seconds. `name` is that of what the text was given for, and begins the text of the Error of
/// kind bad_input that is thrown of a text that is no positive time with a unit.
double seconds_of(const std::string& name, const std::string& text);

/// "32768", "32K" or "32K tokens", which all are 32768. Throws likewise.
long long tokens_of(const std::string& name, const std::string& text);

/// "1000" or "1K", which is 1024: of anything that is counted. Throws likewise of a text that is no whole
/// number.
long long count_of(const std::string& name, const std::string& text);

/// "5/s", "300/min", "2000/h", "5" (of a second): requests a second, above 0.
double rate_of(const std::string& name, const std::string& text);

/// "16 GB" in bytes. Throws likewise.
double bytes_of(const std::string& name, const std::string& text);

}  // namespace shardline::api
