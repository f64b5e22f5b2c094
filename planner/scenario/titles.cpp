#include "planner/scenario/titles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace shardline::scenario_parts {

namespace {

// Round in powers of ten: all digits, for M and K are powers of two. "128Ki tokens", "1,000,000 tokens".
std::string tokens_text(long long tokens) {
  const bool decimal = tokens % 1000 == 0;
  if (!decimal && tokens % (1 << 20) == 0) return fmt::format("{}Mi tokens", tokens >> 20);
  if (!decimal && tokens % 1024 == 0) return fmt::format("{}Ki tokens", tokens / 1024);
  return grouped(tokens) + " tokens";
}

// "prefill of 1Mi tokens", "prefill of 6,400 tokens after 121,600 cached" or "prefill of 7 sequences, 52Ki
// tokens".
std::string prefill_text(const std::vector<Segment>& requests) {
  long long fresh = 0, cached = 0;
  for (const Segment& r : requests) fresh += r.fresh * r.count, cached += r.cached * r.count;
  std::string text = "prefill of ";
  if (requests_in(requests) > 1) text += fmt::format("{} sequences, ", requests_in(requests));
  text += tokens_text(fresh);
  if (cached > 0) text += fmt::format(" after {} cached", tokens_text(cached));
  return text;
}

// "1,000,000 tokens", "32 x 128Ki tokens" or "40 requests of 4Ki tokens to 128Ki tokens".
std::string decode_text(const std::vector<Segment>& requests) {
  long long shortest = requests.front().length(), longest = shortest;
  for (const Segment& r : requests) {
    shortest = std::min(shortest, r.length());
    longest = std::max(longest, r.length());
  }
  const long long count = requests_in(requests);
  if (count == 1) return tokens_text(longest);
  if (shortest == longest) return fmt::format("{} x {}", count, tokens_text(longest));
  return fmt::format("{} requests of {} to {}", count, tokens_text(shortest), tokens_text(longest));
}

}  // namespace

std::string grouped(long long n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > 0; i -= 3)
    s.insert(static_cast<std::size_t>(i), 1, ',');
  return s;
}

std::string request_text(long long input, long long output) {
  return fmt::format(", {} + {} tokens", grouped(input), grouped(output));
}

std::string workload_text(const Batch& batch) {
  if (batch.kind() == StepKind::mixed)
    return fmt::format(", {} beside {}", decode_text(batch.decode), prefill_text(batch.prefill));
  if (batch.decodes()) return ", " + decode_text(batch.decode);
  return batch.prefills() ? ", " + prefill_text(batch.prefill) : "";
}

}  // namespace shardline::scenario_parts
