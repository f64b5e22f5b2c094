#include "planner/studies/replica_failures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr Seconds kLongest{1e7};    // four months
constexpr Seconds kShortest{1e-6};  // and what is told apart from it there
constexpr const char* kForInstance = "expected for instance \"0 at 60 s for 5 min\"";
constexpr const char* kOfPair =
    "expected for instance \"prefill 0 at 60 s for 5 min\" or \"decode 0 at 60 s for 5 min\"";

std::string_view pool_name(ReplicaPool pool) {
  return pool == ReplicaPool::prefill ? "prefill" : pool == ReplicaPool::decode ? "decode" : "";
}

std::string replica_text(const ReplicaFailure& f) {
  return f.pool == ReplicaPool::only ? std::to_string(f.replica)
                                     : fmt::format("{} {}", pool_name(f.pool), f.replica);
}

struct Fault {
  std::size_t at = 0;
  std::string what;
};

// The time that stands in [begin, end).
std::variant<Seconds, Fault> time_in(const std::string& text, std::size_t begin, std::size_t end) {
  begin = std::min(text.find_first_not_of(' ', begin), end);
  std::string time = text.substr(begin, end - begin);
  time.erase(time.find_last_not_of(' ') + 1);
  const auto parsed = parse_quantity<Seconds>(time);
  if (const auto* wrong = std::get_if<std::string>(&parsed)) return Fault{begin, *wrong};
  const Seconds out = std::get<Seconds>(parsed);
  if (out < Seconds(0) || out > kLongest)
    return Fault{begin, fmt::format("expected a time of 0 s to {:.0f} s", kLongest.value)};
  return out;
}

// The pool that stands at the beginning of the text, which it is read beyond.
std::variant<ReplicaPool, Fault> pool_in(const std::string& text, std::size_t& at, bool pair) {
  at = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t begin = at;
  ReplicaPool out = ReplicaPool::only;
  for (const ReplicaPool pool : {ReplicaPool::prefill, ReplicaPool::decode}) {
    const std::string_view name = pool_name(pool);
    if (std::string_view(text).substr(at, name.size()) != name) continue;
    out = pool;
    at = std::min(text.find_first_not_of(' ', at + name.size()), text.size());
    break;
  }
  if (pair && out == ReplicaPool::only)
    return Fault{begin, "of which pool is the replica: expected \"prefill\" or \"decode\" before its number"};
  if (!pair && out != ReplicaPool::only)
    return Fault{begin, "there is one pool: expected the number of a replica"};
  return out;
}

std::variant<ReplicaFailure, Fault> failure_in(const std::string& text, const ReplicaCounts& counts) {
  ReplicaFailure out;
  std::size_t number_at = 0;
  const auto pool = pool_in(text, number_at, counts.prefill > 0);
  if (const auto* wrong = std::get_if<Fault>(&pool)) return *wrong;
  out.pool = std::get<ReplicaPool>(pool);
  const int replicas = out.pool == ReplicaPool::prefill ? counts.prefill : counts.decode;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + number_at, end, out.replica);
  if (error != std::errc{}) return Fault{number_at, "expected the number of a replica"};
  if (out.replica >= static_cast<std::size_t>(replicas))
    return Fault{number_at, fmt::format("there is no replica {}: {} 0 to {}", out.replica,
                                        out.pool == ReplicaPool::prefill  ? "those that prefill are"
                                        : out.pool == ReplicaPool::decode ? "those that decode are"
                                                                          : "they are",
                                        replicas - 1)};
  const auto after = static_cast<std::size_t>(last - text.data());
  const std::size_t at = text.find(" at ", after), lasts = text.find(" for ", after);
  if (at != std::min(text.find_first_not_of(' ', after), text.size()) - 1 || at == std::string::npos)
    return Fault{after, "expected \"at\" and a time behind the replica"};
  const auto down = time_in(text, at + 4, std::min(lasts, text.size()));
  if (const auto* wrong = std::get_if<Fault>(&down)) return *wrong;
  out.down = std::get<Seconds>(down);
  out.up = Seconds(kNever);
  if (lasts == std::string::npos) return out;
  const auto time = time_in(text, lasts + 5, text.size());
  if (const auto* wrong = std::get_if<Fault>(&time)) return *wrong;
  if (std::get<Seconds>(time) < kShortest)
    return Fault{lasts + 5, fmt::format("expected at least {}", to_string(kShortest))};
  out.up = out.down + std::get<Seconds>(time);
  return out;
}

}  // namespace

std::vector<ReplicaFailure> parse_failures(const std::string& name, const std::vector<std::string>& texts,
                                           const ReplicaCounts& replicas) {
  std::vector<ReplicaFailure> out;
  std::vector<Diagnostic> faults;
  for (const std::string& text : texts) {
    const auto read = failure_in(text, replicas);
    if (const auto* wrong = std::get_if<Fault>(&read))
      faults.push_back({Location{name, 1, static_cast<int>(wrong->at) + 1, text},
                        wrong->what,
                        {replicas.prefill > 0 ? kOfPair : kForInstance}});
    else
      out.push_back(std::get<ReplicaFailure>(read));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ReplicaFailure& a, const ReplicaFailure& b) { return a.down < b.down; });
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (out[j].pool == out[i].pool && out[j].replica == out[i].replica && out[i].down <= out[j].up)
        faults.push_back({{},
                          fmt::format("{} {} and {}: replica {} is down already", name, to_string(out[j]),
                                      to_string(out[i]), replica_text(out[i])),
                          {}});
    }
  }
  if (!faults.empty()) throw UserError(std::move(faults));
  return out;
}

std::string to_string(const ReplicaFailure& f) {
  const std::string down = fmt::format("{} at {}", replica_text(f), to_string(f.down));
  return f.up.value < kNever ? fmt::format("{} for {}", down, to_string(f.up - f.down)) : down;
}

}  // namespace shardline
