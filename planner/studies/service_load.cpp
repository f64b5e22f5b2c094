#include "planner/studies/service_load.hpp"

#include <algorithm>
#include <bit>

#include "planner/plan/case.hpp"
#include "planner/serving/served.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline {

namespace {

Variate length(long long tokens, LengthLaw law) {
  const auto n = static_cast<double>(std::max(1LL, tokens));
  return law == LengthLaw::equal ? Variate::fixed(n) : Variate::uniform(0.8 * n, n);
}

constexpr std::uint64_t kDefaultRequests = 2000;

}  // namespace

std::uint64_t requests_played(const ServiceQuestion& q, const std::optional<TraceSize>& size) {
  if (q.requests > 0) return q.requests;
  if (size) return size->requests;
  return q.users > 0 ? 10 * static_cast<std::uint64_t>(q.users) : kDefaultRequests;
}

// The engine keeps it; of a pair both engines and whoever sends from one to the other, as does whoever sends
// again what a replica that dies has lost.
double texts_kept(const ServiceQuestion& q) {
  if (q.users == 0) return 0;
  const double places = q.prefill ? 3 : q.failures.empty() ? 1 : 2;
  auto each = static_cast<std::uint64_t>((q.input + kTraceBlock - 1) / kTraceBlock);
  if (each > 512) each = std::bit_ceil(each);  // as RunPool's memory has larger texts
  return places * static_cast<double>(each) *
         std::min(static_cast<double>(q.users), static_cast<double>(q.requests));
}

std::optional<ErrorRange> ServiceAnswer::rate_error(const EngineProfile& engine) const {
  if (question.users == 0 && !bracket && !load.growth_per_s) return std::nullopt;
  return served_rate_error(engine, step_errors);
}

ServiceLoad::ServiceLoad(const ServiceQuestion& q, const Case& c, double rate,
                         const std::optional<TraceSize>& size)
    : law_{length(q.input, q.lengths), length(q.output, q.lengths)}, made_up_(law_, q.seed) {
  if (size) {
    trace_.emplace(q.trace, *size);
    trace_requests(rate);
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
  load_.path = q.path.value_or(c.engine->host.path);
}

// Times of rows are those of its arrivals; what they ask for is kept until it is sent.
void ServiceLoad::trace_requests(double rate) {
  arrivals_ = std::make_unique<TraceArrivals>(
      [this]() -> std::optional<Seconds> {
        TraceRequest row;
        if (!trace_->next(row)) return std::nullopt;
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

}  // namespace shardline
