#include "planner/search/journal.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr std::array kCounts{&SearchCounts::simulated,  &SearchCounts::bounds,
                             &SearchCounts::pruned,     &SearchCounts::over_budget,
                             &SearchCounts::infeasible, &SearchCounts::partitions};

// Words of a record, separated by one space. A plan's text has none.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  bool ended() const { return rest_.empty(); }
  std::string_view word() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view out = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (out.empty()) good_ = false;
    return out;
  }
  std::uint64_t number(int base = 10) {
    const std::string_view text = word();
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
    if (error != std::errc{} || end != text.data() + text.size()) good_ = false;
    return out;
  }
  double bits() { return std::bit_cast<double>(number(16)); }
  bool good() const { return good_; }

 private:
  std::string_view rest_;
  bool good_ = true;
};

// False where the plan's text does not read back as the plan.
bool add(std::string& out, const Point& p) {
  const std::string plan = to_string(p.plan);
  if (plan.find(' ') != std::string::npos || parse_plan(plan) != p.plan) return false;
  const auto bits = [](double v) { return std::bit_cast<std::uint64_t>(v); };
  const std::string text = fmt::format(" {} {:x} {:x} {:x} {:x} {:x} {:x}", plan, bits(p.time.value),
                                       bits(p.memory.value), bits(p.ttft.value), bits(p.decoding),
                                       bits(p.burst.value), static_cast<std::uint64_t>(p.waiting));
  grow_asking(out, text.size());
  out += text;
  return true;
}

Point point(Words& words) {
  Point p;
  p.plan = parse_plan(words.word());
  p.time = Seconds(words.bits());
  p.memory = Bytes(words.bits());
  p.ttft = Seconds(words.bits());
  p.decoding = words.bits();
  p.burst = Seconds(words.bits());
  p.waiting = static_cast<int>(words.number(16));
  return p;
}

FoundOfCandidate candidate(Words& words) {
  FoundOfCandidate out;
  check_cancelled();
  for (const auto count : kCounts) out.counts.*count = words.number();
  for (std::uint64_t left = words.number(); left > 0 && words.good(); --left) {
    const std::uint64_t order = words.number();
    out.frontier.push_back({point(words), order});
  }
  for (std::uint64_t left = words.number(); left > 0 && words.good(); --left) out.all.push_back(point(words));
  return out;
}

}  // namespace

std::optional<std::string> record_of(std::size_t begin, std::size_t end,
                                     std::span<const FoundOfCandidate> wave) {
  std::string out = fmt::format("{} {}", begin, end);
  CancelCheck check;  // a wave of a sweep that keeps all has a hundred thousand points
  for (const FoundOfCandidate& found : wave) {
    for (const auto count : kCounts) out += fmt::format(" {}", found.counts.*count);
    out += fmt::format(" {}", found.frontier.size());
    for (const auto& [p, order] : found.frontier) {
      check();
      out += fmt::format(" {}", order);
      if (!add(out, p)) return std::nullopt;
    }
    out += fmt::format(" {}", found.all.size());
    for (const Point& p : found.all) {
      check();
      if (!add(out, p)) return std::nullopt;
    }
  }
  return out;
}

std::optional<std::vector<FoundOfCandidate>> wave_of(const std::string& record, std::size_t begin,
                                                     std::size_t end) {
  Words words(record);
  if (words.number() != begin || words.number() != end || !words.good()) return std::nullopt;
  std::vector<FoundOfCandidate> out;
  try {
    for (std::size_t i = begin; i < end && words.good(); ++i) out.push_back(candidate(words));
  } catch (const UserError&) {  // of a plan's text
    return std::nullopt;
  }
  if (!words.good() || !words.ended()) return std::nullopt;
  return out;
}

std::optional<std::vector<FoundOfCandidate>> SearchJournal::finished(std::size_t begin, std::size_t end) {
  if (next_ >= kept_.size()) return std::nullopt;
  auto out = wave_of(kept_[next_], begin, end);
  if (!out) {
    kept_.clear();  // of another search: nothing behind it is of use
    return out;
  }
  std::string record = std::move(kept_[next_++]);
  if (keep_) keep_(std::move(record));  // a run that is interrupted again has these, too
  resumed_ += end - begin;
  return out;
}

void SearchJournal::keep(std::size_t begin, std::size_t end, std::span<const FoundOfCandidate> wave) {
  if (!whole_ || !keep_) return;
  auto record = record_of(begin, end, wave);
  whole_ = record.has_value();
  if (whole_) keep_(std::move(*record));
}

}  // namespace shardline
