#include "planner/serving/synthetic.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kMostTokens = 1 << 30;  // as of a trace, so that a request has at most 2^21 blocks
constexpr int kBlockBits = 22;           // of a block's place in its text
constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;  // ids of blocks that are not shared

std::int64_t tokens(double v, double least) {
  return static_cast<std::int64_t>(std::clamp(std::floor(v + 0.5), least, kMostTokens));
}

}  // namespace

SyntheticRequests::SyntheticRequests(SyntheticLaw law, std::uint64_t seed)
    : law_(law), requests_(seed, "request"), texts_(seed, "text") {
  SL_CHECK(law.shared >= 0 && law.shared <= 1, "the part of requests that share text is from 0 to 1");
  SL_CHECK(law.prefixes > 0 && law.prefixes <= kMost, "there are 1 to 2^40 shared texts");
}

TraceRequest SyntheticRequests::make(std::uint64_t number, Seconds arrival) const {
  SL_CHECK(number < kMost, "requests are fewer than 2^40");
  RandomStream stream = requests_.at(number);
  TraceRequest out;
  out.arrival = arrival;
  out.input = tokens(law_.input.draw(stream), 1);
  out.output = tokens(law_.output.draw(stream), 1);
  std::int64_t shared = 0;
  std::uint64_t text = 0;
  if (stream.unit() < law_.shared) {
    text = stream.below(law_.prefixes);
    RandomStream of_text = texts_.at(text);
    shared = std::min(tokens(law_.prefix.draw(of_text), 0), out.input) / kTraceBlock;
  }
  const std::int64_t blocks = (out.input + kTraceBlock - 1) / kTraceBlock;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::uint64_t whose = i < shared ? text << kBlockBits : kOwn | (number << kBlockBits);
    out.blocks.push_back(whose | static_cast<std::uint64_t>(i));
  }
  return out;
}

}  // namespace shardline
