#include "planner/studies/service_load.hpp"

#include <algorithm>

#include "planner/plan/case.hpp"
#include "planner/requests/text_memory.hpp"
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

double texts_waiting(const ServiceQuestion& q, const std::optional<TraceSize>& size) {
  if (size) return size->texts;
  const auto requests = static_cast<double>(requests_played(q, size));
  const auto each = static_cast<std::uint64_t>((q.input + kTraceBlock - 1) / kTraceBlock);
  return static_cast<double>(TextMemory::room(each)) *
         (q.users > 0 ? std::min(static_cast<double>(q.users), requests) : requests);
}

// Each engine keeps a prompt, and of a pair whoever sends it from one to the other: where the one that
// prefills sends its cache the other one does not. Whoever sends again what a replica that dies has lost
// keeps it, too.
PlayedRequests played_requests(const ServiceQuestion& q, const std::optional<TraceSize>& size, bool sends) {
  PlayedRequests out;
  out.all = requests_played(q, size);
  out.users = q.users;
  out.in_pairs = q.prefill.has_value();
  out.sent_again = !q.failures.empty();
  out.replicas = q.replicas * q.plan.dp + (q.prefill ? q.prefill->groups() : 0);
  const int places = out.in_pairs ? (sends ? 2 : 3) : (out.sent_again ? 2 : 1);
  out.texts = places * texts_waiting(q, size);
  return out;
}

std::optional<ErrorRange> ServiceAnswer::rate_error(const EngineProfile& engine) const {
  if (question.users == 0 && !bracket && !load.growth_per_s) return std::nullopt;
  return served_rate_error(engine, step_errors);
}

void note_queue(const ClusterRun& run, ServedLoadAnswer& out) {
  const std::size_t n = run.waiting.size();
  if (n == 0) return;
  const auto mean = [](std::size_t from, std::size_t to, auto value) {
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += value(i);
    return sum / static_cast<double>(to - from);
  };
  const auto waiting = [&](std::size_t i) { return run.waiting[i]; };
  const auto begins = [&](std::size_t i) { return run.begins[i].value; };
  out.waiting = mean(0, n, waiting);
  if (out.sent_per_s <= 0 || n < ClusterRun::kParts) return;
  const double middle = mean(n / 3, 2 * n / 3, waiting), last = mean(2 * n / 3, n, waiting);
  const double between = mean(2 * n / 3, n, begins) - mean(n / 3, 2 * n / 3, begins);
  const double growth = between > 0 ? (last - middle) / between : 0;
  if (growth > 0.02 * out.sent_per_s && last > 10 && last > 1.2 * middle) out.growth_per_s = growth;
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
