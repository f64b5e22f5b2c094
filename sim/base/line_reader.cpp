#include "sim/base/line_reader.hpp"

#include <algorithm>
#include <istream>
#include <limits>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 16;
constexpr std::size_t kShown = 200;  // bytes of a line around a fault
// Bytes of one line beyond which the text ends: a device may give a line without an end.
constexpr std::size_t kEndless = std::size_t{1} << 28;

}  // namespace

LineReader::LineReader(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

bool LineReader::fill() {
  check_cancelled();
  buffer_.resize(kBuffer);
  in_.read(buffer_.data(), static_cast<std::streamsize>(kBuffer));
  buffer_.resize(static_cast<std::size_t>(in_.gcount()));
  at_ = 0;
  return !buffer_.empty();
}

bool LineReader::next() {
  line_.clear();
  cut_ = false;
  bool any = false;
  std::size_t seen = 0;
  while (at_ < buffer_.size() || fill()) {
    any = true;
    const std::size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
    const std::size_t room = kLongest - line_.size();
    cut_ = cut_ || end - at_ > room;
    line_.append(buffer_, at_, std::min(end - at_, room));
    const bool found = end < buffer_.size();
    seen += end - at_;
    at_ = end + 1;
    if (found) break;
    if (seen > kEndless) in_.setstate(std::ios::eofbit);  // nothing more is filled in
  }
  if (!any) return false;
  if (!cut_ && !line_.empty() && line_.back() == '\r') line_.pop_back();
  if (number_ == 0 && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
  if (number_ < std::numeric_limits<int>::max()) ++number_;
  return true;
}

Diagnostic LineReader::fault(std::size_t column, std::string what, std::vector<std::string> details) const {
  Location where;
  where.file = name_;
  where.line = number_;
  where.column = static_cast<int>(column);
  const std::size_t from = column > kShown / 2 ? column - kShown / 2 : 0;
  where.source_line = line_.substr(std::min(from, line_.size()), kShown);
  where.source_column = static_cast<int>(from) + 1;
  where.source_cut = from + kShown < line_.size();
  return {std::move(where), std::move(what), std::move(details)};
}

}  // namespace shardline
