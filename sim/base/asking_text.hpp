// A text as parsers of others read it: in pieces, between which it is asked whether to stop.
#pragma once

#include <algorithm>
#include <array>
#include <streambuf>
#include <string_view>

#include "sim/base/cancel.hpp"

namespace shardline {

/// A parser that reads from a stream over it, which must not hold back exceptions (`exceptions(badbit)`),
/// ends with Cancelled, though not before ask(): a parser that reads while it is made, as yaml-cpp's does,
/// may lose what it holds where its constructor is left. The text must outlive it.
class AskingText : public std::streambuf {
 public:
  explicit AskingText(std::string_view text) : rest_(text) {}

  /// To be called once the parser is made.
  void ask() { asks_ = true; }

 protected:
  int_type underflow() override {
    if (asks_) check_cancelled();
    const std::size_t count = std::min(rest_.size(), piece_.size());
    if (count == 0) return traits_type::eof();
    std::copy_n(rest_.begin(), count, piece_.begin());
    rest_.remove_prefix(count);
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    return traits_type::to_int_type(piece_.front());
  }

 private:
  std::string_view rest_;
  bool asks_ = false;
  std::array<char, 2048> piece_;  // what yaml-cpp takes at once, and scans in about a millisecond
};

}  // namespace shardline
