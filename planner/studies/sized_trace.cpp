#include "planner/studies/sized_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/text_memory.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

std::uint64_t with(std::uint64_t digest, const TraceRequest& row) {
  digest = chain_hash(digest, std::bit_cast<std::uint64_t>(row.arrival.value));
  digest = chain_hash(digest, static_cast<std::uint64_t>(row.input));
  digest = chain_hash(digest, static_cast<std::uint64_t>(row.output));
  digest = chain_hash(digest, row.blocks.size());
  for (const std::uint64_t block : row.blocks) digest = chain_hash(digest, block);
  return digest;
}

}  // namespace

TraceSize size_of(const std::string& trace, std::uint64_t played,
                  const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  // A pipe has nothing left for the second reading, and a device no end.
  std::error_code ignored;
  if (std::filesystem::exists(trace, ignored) && !std::filesystem::is_regular_file(trace, ignored))
    throw UserError(trace + ": not a regular file: a trace is read twice, first for its length and faults");
  // Whatever hinders it is said: no such file, a loop of links, one that may not be read.
  InputStream file(trace);
  note_read(trace);
  TraceReader reader(file, trace);
  TraceSize out;
  for (TraceRequest row; reader.next(row); ++out.requests) {
    if (out.requests % 4096 == 0) step(0, 0);
    out.seconds = row.arrival.value;
    out.input += static_cast<double>(row.input);
    out.output += static_cast<double>(row.output);
    out.longest = std::max<std::int64_t>(out.longest, row.input + row.output);
    if (played > 0 && out.requests >= played) continue;
    out.digest = with(out.digest, row);
    const auto named = static_cast<std::uint64_t>((row.input + kTraceBlock - 1) / kTraceBlock);
    out.texts += static_cast<double>(TextMemory::room(std::max<std::uint64_t>(row.blocks.size(), named)));
  }
  if (out.requests == 0) throw UserError(trace + ": no requests");
  out.input /= static_cast<double>(out.requests);
  out.output /= static_cast<double>(out.requests);
  out.digested = played == 0 ? out.requests : std::min(out.requests, played);
  return out;
}

void require_pace(const std::string& trace, const TraceSize& size, double rate) {
  if (rate <= 0 || size.seconds > 0) return;
  throw UserError(fmt::format(
      "{}: all its requests come at 0 s: no pace gives it {:.4g} requests/s; expected later rows, or no rate",
      trace, rate));
}

SizedTrace::SizedTrace(const std::string& trace, const TraceSize& size) : name_(trace), size_(size) {
  file_.open(trace);
  if (!file_) changed("it cannot be read any more");
  try {
    reader_.emplace(file_, trace);
  } catch (const UserError& e) {
    changed(e.what());
  }
}

// A row of another trace may be longer than memory was asked for, and later than times are told apart, which
// is known at once; that it is another, at the end of those that are played.
bool SizedTrace::next(TraceRequest& out) {
  bool any = false;
  try {
    any = reader_->next(out);
  } catch (const UserError& e) {
    changed(e.what());
  }
  if (!any) {
    if (rows_ != size_.requests) changed(fmt::format("now {}", rows_));
    return false;
  }
  ++rows_;
  if (rows_ > size_.requests) changed("now more");
  if (out.arrival.value > size_.seconds || out.input + out.output > size_.longest) changed("now others");
  if (rows_ <= size_.digested) digest_ = with(digest_, out);
  if (rows_ == size_.digested && digest_ != size_.digest) changed("now others");
  return true;
}

void SizedTrace::changed(std::string how) const {
  how.erase(how.find_last_not_of('\n') + 1);
  throw TraceChanged(
      fmt::format("{}: another program changed it while it was played: {} requests at first, {}", name_,
                  size_.requests, how));
}

}  // namespace shardline
