// Targets of requests as people write them: "ttft p99 2 s, tpot p99 40 ms".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "planner/studies/request_service.hpp"
#include "sim/base/units.hpp"

namespace shardline {

std::string_view to_string(Latency latency) {
  switch (latency) {
    case Latency::ttft:
      return "TTFT";
    case Latency::tpot:
      return "TPOT";
    case Latency::itl:
      return "ITL";
    case Latency::e2e:
      return "E2E";
  }
  return "";
}

namespace {

// Those that latencies are told at (kToldQuantiles) end with p99.9: of the 2000 requests of a play two are
// above it, and beyond it the largest would be asked, which is no percentile.
constexpr double kLeastPercent = 1, kMostPercent = 99.9;

constexpr const char* kForInstance = "expected for instance \"ttft p99 2 s, tpot p99 40 ms\"";

// One target after another, with the place of each fault.
class TargetText {
 public:
  TargetText(const std::string& name, const std::string& text) : name_(name), text_(text) {}

  std::vector<LatencyTarget> read() {
    std::vector<LatencyTarget> out;
    for (std::size_t at = 0; at <= text_.size();) {
      const std::size_t end = std::min(text_.find(',', at), text_.size());
      if (const auto target = one(at, end)) out.push_back(*target);
      at = end + 1;
    }
    if (!faults_.empty()) throw UserError(faults_);
    return out;
  }

 private:
  std::optional<LatencyTarget> one(std::size_t at, std::size_t end) {
    const auto [of, of_at] = word(at, end);
    if (of.empty()) return fault(of_at, "a target is missing", {kForInstance});
    LatencyTarget out;
    if (!name_of(of, out.of)) {
      static const std::vector<std::string> kNames{"ttft", "tpot", "itl", "e2e"};
      std::vector<std::string> details = expected_one_of(of, kNames);
      details.emplace_back(kForInstance);
      return fault(of_at, "unknown latency " + of, std::move(details));
    }
    const auto [part, part_at] = word(at, end);
    const std::string_view digits = std::string_view(part).substr(std::min<std::size_t>(1, part.size()));
    const char* const end_of_part = digits.data() + digits.size();
    double percent = 0;
    const auto [last, error] = std::from_chars(digits.data(), end_of_part, percent);
    if (digits.empty() || part[0] != 'p' || error != std::errc{} || last != end_of_part ||
        !(percent >= kLeastPercent && percent <= kMostPercent))
      return fault(part_at,
                   fmt::format("expected a percentile from p{} to p{}, found {}", kLeastPercent, kMostPercent,
                               part.empty() ? "nothing" : part),
                   {kForInstance});
    out.quantile = percent / 100;
    while (at < end && text_[at] == ' ') ++at;
    std::string time = text_.substr(at, end - at);
    time.erase(time.find_last_not_of(' ') + 1);
    const auto parsed = parse_quantity<Seconds>(time);
    if (const auto* wrong = std::get_if<std::string>(&parsed)) return fault(at, *wrong, {kForInstance});
    out.most = std::get<Seconds>(parsed);
    if (out.most <= Seconds(0)) return fault(at, "expected a positive time", {kForInstance});
    return out;
  }

  static bool name_of(const std::string& word, Latency& out) {
    constexpr std::array<std::pair<std::string_view, Latency>, 4> kNamed{
        {{"ttft", Latency::ttft}, {"tpot", Latency::tpot}, {"itl", Latency::itl}, {"e2e", Latency::e2e}}};
    for (const auto& [name, latency] : kNamed) {
      if (word != name) continue;
      out = latency;
      return true;
    }
    return false;
  }

  // The next word before `end`, in lower case, and where it begins.
  std::pair<std::string, std::size_t> word(std::size_t& at, std::size_t end) const {
    while (at < end && text_[at] == ' ') ++at;
    const std::size_t begin = at;
    while (at < end && text_[at] != ' ') ++at;
    std::string out = text_.substr(begin, at - begin);
    for (char& c : out) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return {out, begin};
  }

  std::nullopt_t fault(std::size_t at, std::string what, std::vector<std::string> details) {
    Location where{name_, 1, static_cast<int>(at + 1), text_};
    faults_.push_back({where, std::move(what), std::move(details)});
    return std::nullopt;
  }

  const std::string& name_;
  const std::string& text_;
  std::vector<Diagnostic> faults_;
};

}  // namespace

std::vector<LatencyTarget> parse_targets(const std::string& name, const std::string& text) {
  return text.empty() ? std::vector<LatencyTarget>{} : TargetText(name, text).read();
}

}  // namespace shardline
