#include "planner/studies/request_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>

#include "planner/search/evaluate.hpp"
#include "planner/search/narrow.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/synthetic.hpp"
#include "planner/studies/study_memory.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kDefaultRequests = 2000;
constexpr double kLevel = 0.95;
constexpr std::size_t kParts = ClusterRun::kParts;

// Values of a latency, of all requests and of parts of them in their order.
struct Record {
  RunQuantiles all;
  std::array<RunQuantiles, kParts> parts;
};

// From the shortest to the longest, at equal ratios: a picture's axis is logarithmic.
std::vector<std::pair<double, double>> curve_of(const RunQuantiles& of) {
  constexpr int kPoints = 128;
  std::vector<std::pair<double, double>> out;
  const double least = of.quantile(0), most = of.quantile(1);
  for (int i = 0; i <= kPoints && least > 0; ++i) {
    const double at = i < kPoints ? least * std::pow(most / least, static_cast<double>(i) / kPoints) : most;
    out.emplace_back(at, of.part_up_to(at));
  }
  return out;
}

ToldLatency told(const Record& r, bool pictures) {
  ToldLatency out;
  out.count = r.all.count();
  if (out.count == 0) return out;
  out.mean = r.all.mean();
  if (pictures) out.curve = curve_of(r.all);
  for (std::size_t q = 0; q < kToldQuantiles.size(); ++q) {
    const double part = kToldQuantiles[q];
    out.quantiles[q] = r.all.quantile(part);
    std::vector<double> means;
    for (const RunQuantiles& of : r.parts) {
      // Fewer say nothing of what lies beyond it.
      if (static_cast<double>(of.count()) * (1 - part) >= 10 - 1e-6) means.push_back(of.quantile(part));
    }
    if (means.size() == kParts) out.half_widths[q] = mean_interval(means, kLevel).half_width;
  }
  return out;
}

// What requests are and when they come, anew for every play: with one seed the same.
class Load {
 public:
  Load(const ServiceQuestion& q, const Case& c, double rate)
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
  const ClusterLoad& load() const { return load_; }

 private:
  static Variate length(long long tokens, LengthLaw law) {
    const auto n = static_cast<double>(std::max(1LL, tokens));
    return law == LengthLaw::equal ? Variate::fixed(n) : Variate::uniform(0.8 * n, n);
  }

  // Times of rows are those of its arrivals; what they ask for is kept until it is sent.
  void trace_requests(const ServiceQuestion& q, double rate) {
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

  SyntheticLaw law_;
  SyntheticRequests made_up_;
  std::uint64_t next_ = 0;
  std::ifstream file_;
  std::unique_ptr<TraceReader> reader_;
  std::deque<TraceRequest> read_;
  std::unique_ptr<Arrivals> arrivals_;
  ClusterLoad load_;
};

// Requests and seconds of a trace; read to its end, so that every fault of it is told before anything is
// played.
struct TraceSize {
  std::uint64_t requests = 0;
  double seconds = 0, input = 0, output = 0;  // tokens, means
};

TraceSize size_of(const std::string& trace, const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  // A pipe has nothing left for the second reading, and a device no end.
  std::error_code ignored;
  if (std::filesystem::exists(trace, ignored) && !std::filesystem::is_regular_file(trace, ignored))
    throw UserError(trace + ": not a regular file: a trace is read twice, first for its length and faults");
  std::ifstream file(trace);
  if (!file) throw UserError(trace + ": cannot be read");
  TraceReader reader(file, trace);
  TraceSize out;
  for (TraceRequest row; reader.next(row); ++out.requests) {
    if (out.requests % 4096 == 0) step(0, 0);
    out.seconds = row.arrival.value;
    out.input += static_cast<double>(row.input);
    out.output += static_cast<double>(row.output);
  }
  if (out.requests == 0) throw UserError(trace + ": no requests");
  out.input /= static_cast<double>(out.requests);
  out.output /= static_cast<double>(out.requests);
  return out;
}

class Service {
 public:
  Service(const Study& study, ServiceQuestion question,
          const std::function<void(std::uint64_t, std::uint64_t)>& step)
      : study_(study),
        q_(std::move(question)),
        step_(step),
        times_(study.study, q_.plan, study.sweep().search.all_reduce) {
    require_play(study.study, q_.plan);
    if (!q_.trace.empty()) trace_ = size_of(q_.trace, step);
    mean_ = trace_ ? std::llround(trace_->input + trace_->output) : q_.input + q_.output;
    knobs_ = service_knobs(study.study, q_.plan, q_.knobs, mean_);
    if (q_.requests == 0)
      q_.requests = trace_         ? trace_->requests
                    : q_.users > 0 ? 10 * static_cast<std::uint64_t>(q_.users)
                                   : kDefaultRequests;
    require_memory(need_of_requests(q_.requests, q_.users, q_.replicas * q_.plan.dp, blocks_kept()));
  }

  ServiceAnswer answer() {
    ServiceAnswer out;
    if (q_.largest_rate) {
      out.bracket = bracket();
      q_.rate = out.bracket->low > 0 ? out.bracket->low : out.bracket->high;
    }
    out.load = play(q_.rate, q_.pictures);
    out.question = q_;
    out.knobs = knobs_;
    out.step_error = times_.effort().largest_error;
    look_at_prices(out);
    return out;
  }

 private:
  // Blocks of a group's cache that memory holds something of: all, where a pool is made whole; where it
  // grows (RunPool), those of all requests at most, the text of answered ones being kept.
  double blocks_kept() const {
    const double all = knobs_.blocks();
    if (!std::holds_alternative<VllmKnobs>(knobs_.of)) return all;
    const double each = static_cast<double>(mean_) / knobs_.block() + 1;
    return std::min(all, static_cast<double>(q_.requests) * each / (q_.replicas * q_.plan.dp));
  }

  // Rates of a trace are told as such; it is played faster or slower to have them.
  double pace(double rate) const {
    if (!trace_ || rate <= 0) return rate;
    const double own = trace_->seconds > 0 ? static_cast<double>(trace_->requests) / trace_->seconds : 0;
    return own > 0 ? rate / own : 1;
  }

  ServedLoadAnswer play(double rate, bool pictures = false) {
    std::vector<std::unique_ptr<Scheduler>> schedulers;
    std::vector<const StepTimes*> times;
    const ReplicaGroups groups = groups_of(knobs_, q_.plan);
    for (int i = 0; i < q_.replicas; ++i) {
      for (std::size_t g = 0; g < groups.count; ++g) schedulers.push_back(scheduler_of(knobs_));
      times.push_back(&times_);
    }
    Load load(q_, study_.study, pace(rate));
    std::array<Record, kLatencies.size()> records;
    std::uint64_t good = 0, seen = 0;
    const auto timeline = pictures ? std::make_shared<ServedTimeline>() : nullptr;
    const ClusterRun run = play_cluster(
        schedulers, times, q_.router, load.load(), q_.requests,
        [&](const AnsweredRequest& a) {
          const std::size_t part = std::min<std::size_t>(kParts - 1, seen++ * kParts / q_.requests);
          good += note(a, records, part) ? 1 : 0;
        },
        [&](std::uint64_t done) { step_(done, q_.requests); }, timeline.get(), groups);
    ServedLoadAnswer out = summary(run, records, good, pictures);
    out.timeline = timeline;
    return out;
  }

  // Whether the request keeps every target itself, but those of ITL, which are of all tokens together.
  bool note(const AnsweredRequest& a, std::array<Record, kLatencies.size()>& records,
            std::size_t part) const {
    const double ttft = (a.first - a.came).value, e2e = (a.last - a.came).value;
    const double tpot = a.answer > 1 ? (a.last - a.first).value / (a.answer - 1) : 0;
    const auto add = [&](Latency of, double value) {
      Record& r = records[static_cast<std::size_t>(of)];
      r.all.add(value);
      r.parts[part].add(value);
    };
    add(Latency::ttft, ttft);
    if (a.answer > 1) add(Latency::tpot, tpot);
    add(Latency::e2e, e2e);
    return std::all_of(q_.targets.begin(), q_.targets.end(), [&](const LatencyTarget& t) {
      if (t.of == Latency::itl) return true;
      const double value = t.of == Latency::ttft ? ttft : t.of == Latency::e2e ? e2e : tpot;
      return value <= t.most.value;
    });
  }

  ServedLoadAnswer summary(const ClusterRun& run, std::array<Record, kLatencies.size()>& records,
                           std::uint64_t good, bool pictures) const {
    ServedLoadAnswer out;
    double busy = 0, prompting = 0, prompts = 0, answers = 0, found = 0, held = 0, running = 0;
    for (const ServedRequests& r : run.replicas) {
      records[static_cast<std::size_t>(Latency::itl)].all.merge(r.itl);
      out.series.merge(r.series);
      out.answered += r.answered;
      out.refused += r.refused;
      out.preemptions += r.preemptions;
      out.steps += r.steps;
      out.seconds = std::max(out.seconds, r.end.value);
      out.kv_most = std::max(out.kv_most, r.most_held);
      busy += r.busy.value;
      prompting += r.prompting.value;
      held += r.held;
      running += r.running;
      prompts += static_cast<double>(r.prompt_tokens);
      answers += static_cast<double>(r.answer_tokens);
      found += static_cast<double>(r.found_tokens);
    }
    out.sent = run.sent;
    const double all = out.seconds * static_cast<double>(run.replicas.size());
    const double gpus = q_.plan.gpus() * static_cast<double>(run.replicas.size());
    if (all > 0) {
      out.prompting = prompting / all;
      out.decoding = (busy - prompting) / all;
      out.idle = std::max(0.0, 1 - busy / all);
      out.requests_per_s = static_cast<double>(out.answered) / out.seconds;
      out.goodput = static_cast<double>(good) / out.seconds;
      out.output_per_s_gpu = answers / out.seconds / gpus;
      out.input_per_s_gpu = prompts / out.seconds / gpus;
    }
    if (busy > 0) {
      out.kv_held = held / busy;
      out.running = running / busy;
    }
    out.found = prompts > 0 ? found / prompts : 0;
    for (std::size_t i = 0; i < records.size(); ++i) out.latencies[i] = told(records[i], pictures);
    if (q_.users == 0 && run.sent > 1 && run.last_sent > Seconds(0))
      out.sent_per_s = static_cast<double>(run.sent) / run.last_sent.value;
    drains(run, out);
    for (const LatencyTarget& t : q_.targets) {
      const RunQuantiles& of = records[static_cast<std::size_t>(t.of)].all;
      const double measured = of.count() > 0 ? of.quantile(t.quantile) : 0;
      out.targets.push_back({t, measured, of.count() > 0 && measured <= t.most.value});
      out.met = out.met && out.targets.back().met;
    }
    out.met = out.met && out.refused == 0 && out.answered > 0 && !out.growth_per_s;
    return out;
  }

  // A load that is above what is answered lets the queue grow as long as it lasts: by more than a fiftieth of
  // the requests that come, from the middle third of them to the last, to a queue that is no mere burst.
  static void drains(const ClusterRun& run, ServedLoadAnswer& out) {
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
    if (out.sent_per_s <= 0 || n < kParts) return;
    const double middle = mean(n / 3, 2 * n / 3, waiting), last = mean(2 * n / 3, n, waiting);
    const double between = mean(2 * n / 3, n, begins) - mean(n / 3, 2 * n / 3, begins);
    const double growth = between > 0 ? (last - middle) / between : 0;
    if (growth > 0.02 * out.sent_per_s && last > 10 && last > 1.2 * middle) out.growth_per_s = growth;
  }

  RateBracket bracket() {
    RateBracket out;
    const auto meets = [&](double rate) {
      ++out.plays;
      return play(rate).met;
    };
    // A request a time that one alone takes, as a first guess.
    StepBatch alone;
    alone.decodes = 1;
    alone.cached = alone.longest = static_cast<std::uint32_t>(std::max(1LL, mean_));
    double rate = 1 / (times_.of(alone).value * static_cast<double>(std::max(2LL, mean_ / 4)));
    constexpr double kLeast = 1e-6, kMost = 1e6;
    if (meets(rate)) {
      while (rate < kMost && meets(2 * rate)) rate *= 2;
      out.low = rate;
      out.high = 2 * rate;
    } else {
      while (rate > kLeast && !meets(rate / 2)) rate /= 2;
      out.high = rate;
      out.low = rate > kLeast ? rate / 2 : 0;
    }
    while (out.low > 0 && out.high / out.low > 1.02) {
      const double middle = std::sqrt(out.low * out.high);
      (meets(middle) ? out.low : out.high) = middle;
    }
    return out;
  }

  // Of a step that decodes as many requests as did on average, in each attention group.
  void look_at_prices(ServiceAnswer& out) const {
    Case c = study_.study;
    c.batch = decode_batch(std::max(2LL, mean_ - mean_ / 8));
    c.batch.decode.front().count = std::max(1, static_cast<int>(std::lround(out.load.running / q_.plan.dp)));
    Plan plan = q_.plan;
    plan.batch = 1;
    Evaluator evaluator(c, study_.sweep().search.all_reduce);
    out.step_errors = break_down(evaluator, plan).errors;
    out.narrow = narrow_warnings(c, std::span(&plan, 1), study_.sweep().search.all_reduce);
  }

  const Study& study_;
  ServiceQuestion q_;
  const std::function<void(std::uint64_t, std::uint64_t)>& step_;
  PlanStepTimes times_;
  std::optional<TraceSize> trace_;
  long long mean_ = 0;  // tokens of a request and its answer
  ServiceKnobs knobs_;
};

}  // namespace

ServiceAnswer serve_requests(const Study& study, const ServiceQuestion& question,
                             const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  return Service(study, question, step).answer();
}

}  // namespace shardline
