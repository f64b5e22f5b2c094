#include "planner/studies/service_load.hpp"

#include <algorithm>
#include <filesystem>

#include "planner/plan/case.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

Variate length(long long tokens, LengthLaw law) {
  const auto n = static_cast<double>(std::max(1LL, tokens));
  return law == LengthLaw::equal ? Variate::fixed(n) : Variate::uniform(0.8 * n, n);
}

}  // namespace

ServiceLoad::ServiceLoad(const ServiceQuestion& q, const Case& c, double rate)
    : law_{length(q.input, q.lengths), length(q.output, q.lengths)}, made_up_(law_, q.seed) {
  if (!q.trace.empty()) {
    trace_requests(q, rate);
  } else {
    load_.request = [this](TraceRequest& out) {
      out = made_up_.make(next_++, Seconds(0));
      return true;
    };
    const Variate think = q.think > Seconds(0) ? Variate::exponential(q.think.value) : Variate::fixed(0);
    if (q.users > 0)
      arrivals_ = std::make_unique<ClosedLoop>(
          static_cast<std::size_t>(q.users), think, q.seed,
          q.think > Seconds(0) ? ClosedLoop::Start::apart : ClosedLoop::Start::together);
    else
      arrivals_ = std::make_unique<RenewalArrivals>(Variate::exponential(1 / rate), q.seed);
  }
  load_.closed = q.users > 0;
  load_.arrivals = arrivals_.get();
  load_.path = c.engine->host.path;
}

// Times of rows are those of its arrivals; what they ask for is kept until it is sent.
void ServiceLoad::trace_requests(const ServiceQuestion& q, double rate) {
  file_.open(q.trace);
  if (!file_) throw UserError(q.trace + ": cannot be read");
  reader_ = std::make_unique<TraceReader>(file_, q.trace);
  arrivals_ = std::make_unique<TraceArrivals>(
      [this]() -> std::optional<Seconds> {
        TraceRequest row;
        if (!reader_->next(row)) return std::nullopt;
        read_.push_back(row);
        return row.arrival;
      },
      rate > 0 ? rate : 1);
  load_.request = [this](TraceRequest& out) {
    out = std::move(read_.front());
    read_.pop_front();
    return true;
  };
}

TraceSize size_of(const std::string& trace, const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  // A pipe has nothing left for the second reading, and a device no end.
  std::error_code ignored;
  if (std::filesystem::exists(trace, ignored) && !std::filesystem::is_regular_file(trace, ignored))
    throw UserError(trace + ": not a regular file: a trace is read twice, first for its length and faults");
  std::ifstream file(trace);
  if (!file) throw UserError(trace + ": cannot be read");
  note_read(trace);
  TraceReader reader(file, trace);
  TraceSize out;
  for (TraceRequest row; reader.next(row); ++out.requests) {
    if (out.requests % 4096 == 0) step(0, 0);
    out.seconds = row.arrival.value;
    out.input += static_cast<double>(row.input);
    out.output += static_cast<double>(row.output);
    out.longest = std::max<std::int64_t>(out.longest, row.input + row.output);
  }
  if (out.requests == 0) throw UserError(trace + ": no requests");
  out.input /= static_cast<double>(out.requests);
  out.output /= static_cast<double>(out.requests);
  return out;
}

}  // namespace shardline
