#include "planner/studies/request_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/search/evaluate.hpp"
#include "planner/search/narrow.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/played_cost.hpp"
#include "planner/studies/service_load.hpp"
#include "planner/studies/told_latency.hpp"

namespace shardline {

namespace {

constexpr std::size_t kParts = ClusterRun::kParts;

// Requests that break a target, and that may: a play ends where more do than may.
struct Hopes {
  std::vector<std::uint64_t> broken;
};
struct GivenUp {};

}  // namespace

class RequestService::Plays {
 public:
  Plays(const Study& study, ServiceQuestion question,
        const std::function<void(std::uint64_t, std::uint64_t)>& step, const TraceSize* size, ServerOf server)
      : study_(study),
        q_(std::move(question)),
        step_(step),
        server_(q_.prefill ? ServerOf::half : server),
        times_(server_ == ServerOf::both ? study.study : half_of_pair(study.study), q_.plan,
               study.sweep().search.all_reduce) {
    require_play(study.study, q_.plan, server_ == ServerOf::prompts);
    if (!q_.trace.empty()) trace_ = size != nullptr ? *size : size_of(q_.trace, q_.requests, step);
    if (trace_) require_pace(q_.trace, *trace_, q_.rate);
    mean_ = trace_ ? std::llround(trace_->input + trace_->output) : q_.input + q_.output;
    knobs_ = knobs_of(q_.knobs, PairRole::decodes);
    if (q_.prefill) require_noticed(study_.study, knobs_, q_.failures);
    if (q_.prefill)
      pools_ = std::make_unique<PairPools>(study_, *q_.prefill, q_.plan, q_.replicas, knobs_, lengths(),
                                           prompt(), PairPools::Known{});
    q_.requests = requests_played(q_, trace_);
    PlayedRequests played = played_requests(q_, trace_, std::holds_alternative<SglangKnobs>(knobs_.of));
    played.blocks = blocks_kept();
    require_memory(need_of_requests(played));
  }

  ServiceAnswer answer() {
    ServiceAnswer out;
    if (q_.largest_rate) {
      out.bracket = bracket();
      q_.rate = out.bracket->low > 0 ? out.bracket->low : out.bracket->high;
    }
    out.load = play(q_.rate, q_.pictures);
    return asked(std::move(out));
  }

  std::optional<ServiceAnswer> answer(const Pools& pools, bool gives_up) {
    ask(pools);
    ServiceAnswer out;
    Hopes hopes{std::vector<std::uint64_t>(q_.targets.size())};
    try {
      out.load = play(q_.rate, false, gives_up ? &hopes : nullptr);
    } catch (const GivenUp&) {
      return std::nullopt;
    }
    return asked(std::move(out));
  }

  ServiceAnswer of_play(const Pools& pools, ServedLoadAnswer load, double step_error) {
    ask(pools);
    ServiceAnswer out;
    out.load = std::move(load);
    out = asked(std::move(out));
    out.step_error = step_error;
    return out;
  }

  OfferedLoad offered() const {
    OfferedLoad out;
    ServiceLoad load(q_, study_.study, pace(q_.rate), trace_);
    TraceRequest row;
    while (out.arrivals.size() < q_.requests && std::isfinite(load.load().arrivals->next_time().value)) {
      const Arrival came = load.load().arrivals->take();
      if (!load.load().request(row)) break;
      out.arrivals.push_back(came.time.value);
      out.input.push_back(row.input);
      out.output.push_back(row.output);
      out.shared = out.shared || (trace_ && !row.blocks.empty());
    }
    return out;
  }

  // Of a step that decodes as many requests as did on average, in each attention group and microbatch.
  void look_at_prices(ServiceAnswer& out) const {
    Case c = study_.study;
    Plan plan = q_.plan;
    plan.batch = 1;
    c.batch = decode_batch(std::max(2LL, mean_ - mean_ / 8));
    const long each = std::lround(out.load.running / (plan.dp * plan.in_flight));
    c.batch.decode.front().count = std::max(1, static_cast<int>(each));
    Evaluator evaluator(c, study_.sweep().search.all_reduce);
    out.step_errors = break_down(evaluator, plan).errors;
    out.narrow = narrow_warnings(c, std::span(&plan, 1), study_.sweep().search.all_reduce);
  }

  const StepTimes& times() const { return times_; }
  const Plan& plan() const { return q_.plan; }
  long long prompt() const { return trace_ ? std::llround(trace_->input) : q_.input; }
  LoadLengths lengths() const { return {mean_, trace_ ? trace_->longest : q_.input}; }
  std::uint64_t answered() const { return answered_; }
  ServiceKnobs knobs_of(const std::vector<std::string>& overrides, PairRole role) const {
    if (server_ == ServerOf::both) return service_knobs(study_.study, q_.plan, overrides, mean_);
    if (server_ == ServerOf::prompts) role = PairRole::prefills;
    return pair_knobs(study_.study, q_.plan, role,
                      role == PairRole::prefills ? knobs_of_prefill(overrides) : overrides, lengths());
  }

 private:
  void ask(const Pools& pools) {
    SL_CHECK(q_.users == 0 && !q_.largest_rate, "of an open loop at its rate");
    q_.replicas = pools.replicas;
    q_.knobs = pools.knobs;
    knobs_ = knobs_of(pools.knobs, PairRole::decodes);
    q_.prefill.reset();
    pools_.reset();
    if (pools.prefill_replicas == 0) return;
    require_noticed(study_.study, knobs_, {});
    q_.prefill = {pools.prefill->plan(), pools.prefill_replicas, knobs_of_prefill(pools.knobs), 0, "knob"};
    pools.prefill->plays_->times_.begin_play();
    pools_ = std::make_unique<PairPools>(study_, *q_.prefill, q_.plan, q_.replicas, knobs_, lengths(),
                                         prompt(), PairPools::Known{&pools.prefill->times(), pools.rates});
  }

  ServiceAnswer asked(ServiceAnswer out) const {
    out.question = q_;
    out.knobs = knobs_;
    if (const int k = q_.plan[kDrafts]; k > 0) out.accepted = study_.study.acceptance->at(k);
    out.longest = trace_ ? trace_->longest : q_.input + q_.output;
    if (pools_) out.prefill_knobs = pools_->knobs();
    out.step_error = times_.effort().largest_error;
    return out;
  }

  // Of a group's cache: pools grow with what requests hold, SGLang's tree with text, whatever its pages are.
  double blocks_kept() const {
    const bool tree = std::holds_alternative<SglangKnobs>(knobs_.of);
    const double tokens = tree ? std::max<double>(kTraceBlock, knobs_.block()) : knobs_.block();
    const double all = (static_cast<double>(mean_) / tokens + 1) * static_cast<double>(q_.requests);
    return std::min<double>(knobs_.blocks(), all / (q_.replicas * q_.plan.dp));
  }

  // Rates of a trace are told as such; it is played faster or slower to have them.
  double pace(double rate) const {
    if (!trace_ || rate <= 0) return rate;
    return rate / (static_cast<double>(trace_->requests) / trace_->seconds);
  }

  ServedLoadAnswer play(double rate, bool pictures = false, Hopes* hopes = nullptr) {
    times_.begin_play();
    std::vector<std::unique_ptr<Scheduler>> schedulers;
    std::vector<const StepTimes*> times;
    const ReplicaGroups groups = groups_of(knobs_, q_.plan);
    const DraftLaw law = draft_law(study_.study, q_.plan, q_.seed);
    for (int i = 0; i < q_.replicas; ++i) {
      for (std::size_t g = 0; g < groups.count; ++g) schedulers.push_back(scheduler_of(knobs_, law));
      times.push_back(&times_);
    }
    ServiceLoad load(q_, study_.study, pace(rate), trace_);
    std::array<LatencyRecord, kLatencies.size()> records;
    std::uint64_t good = 0;
    answered_ = 0;
    const auto timeline = pictures ? std::make_shared<ServedTimeline>() : nullptr;
    const auto answered = [&](const AnsweredRequest& a) {
      const std::size_t part = std::min<std::size_t>(kParts - 1, answered_++ * kParts / q_.requests);
      good += note(a, records, part) ? 1 : 0;
      if (hopes != nullptr) give_up_where_hopeless(a, *hopes);
    };
    const auto step = [&](std::uint64_t done) { step_(done, q_.requests); };
    if (pools_) {
      const PairRun run = pools_->play({times_, q_.replicas, q_.router, law}, load.load(), q_.requests,
                                       answered, step, q_.failures, timeline.get());
      return of_pair(run, records, good, timeline);
    }
    const ClusterFailures failures{q_.failures, [&] { return scheduler_of(knobs_, law); }};
    const ClusterRun run = play_cluster(schedulers, times, q_.router, load.load(), q_.requests, answered,
                                        step, timeline.get(), groups, failures);
    return summary(run, records, good, timeline);
  }

  static double value_of(Latency of, const AnsweredRequest& a) {
    if (of == Latency::ttft) return (a.first - a.came).value;
    if (of == Latency::e2e) return (a.last - a.came).value;
    return a.answer > 1 ? (a.last - a.first).value / (a.answer - 1) : 0;
  }

  // A quantile is above the target where more of all requests than its rest are, whatever is still to come;
  // one more than that, since ranks are rounded. Gaps between tokens are not counted by request.
  void give_up_where_hopeless(const AnsweredRequest& a, Hopes& hopes) const {
    for (std::size_t i = 0; i < q_.targets.size(); ++i) {
      const LatencyTarget& t = q_.targets[i];
      if (t.of == Latency::itl || value_of(t.of, a) <= t.most.value) continue;
      const double may = (1 - t.quantile) * static_cast<double>(q_.requests) + 1;
      if (static_cast<double>(++hopes.broken[i]) > may) throw GivenUp{};
    }
  }

  // Whether the request keeps every target itself, but those of ITL, which are of all tokens together.
  bool note(const AnsweredRequest& a, std::array<LatencyRecord, kLatencies.size()>& records,
            std::size_t part) const {
    const auto add = [&](Latency of, double value) {
      LatencyRecord& r = records[static_cast<std::size_t>(of)];
      r.all.add(value);
      r.parts[part].add(value);
    };
    add(Latency::ttft, value_of(Latency::ttft, a));
    if (a.answer > 1) add(Latency::tpot, value_of(Latency::tpot, a));
    add(Latency::e2e, value_of(Latency::e2e, a));
    return std::all_of(q_.targets.begin(), q_.targets.end(), [&](const LatencyTarget& t) {
      return t.of == Latency::itl || value_of(t.of, a) <= t.most.value;
    });
  }

  // What is of the replicas that decode, but for what is of requests: these are of both pools.
  ServedLoadAnswer of_pair(const PairRun& run, std::array<LatencyRecord, kLatencies.size()>& records,
                           std::uint64_t good, const std::shared_ptr<const ServedTimeline>& timeline) const {
    ServedLoadAnswer out = summary({run.decode, run.waiting, run.begins, run.sent, run.last_sent, run.retried,
                                    run.unserved, run.decode_down},
                                   records, good, timeline);
    double found = 0, prompts = 0;
    for (const ServedRequests& r : run.prefill) {
      out.refused += r.refused;
      found += static_cast<double>(r.found_tokens);
      prompts += static_cast<double>(r.prompt_tokens);
    }
    out.found = prompts > 0 ? found / prompts : 0;
    out.met = out.met && out.refused == 0;
    out.pair = pools_->told(run, q_.plan.gpus() * q_.replicas, out.seconds);
    out.pair->prefill_watts = pool_watts(q_.prefill->study(study_).study.system.power, run.prefill,
                                         out.seconds, out.pair->prefill_down);
    const double share = static_cast<double>(out.pair->decode_gpus) /
                         static_cast<double>(out.pair->decode_gpus + out.pair->prefill_gpus);
    out.output_per_s_gpu *= share;
    out.input_per_s_gpu *= share;
    return out;
  }

  ServedLoadAnswer summary(const ClusterRun& run, std::array<LatencyRecord, kLatencies.size()>& records,
                           std::uint64_t good, const std::shared_ptr<const ServedTimeline>& timeline) const {
    ServedLoadAnswer out;
    out.timeline = timeline;
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
    out.retried = run.retried;
    out.unserved = run.unserved;
    const double all = out.seconds * static_cast<double>(run.replicas.size());
    const double gpus = q_.plan.gpus() * static_cast<double>(run.replicas.size());
    if (all > 0) {
      out.prompting = prompting / all;
      out.decoding = (busy - prompting) / all;
      out.down = run.down.value / all;
      out.idle = std::max(0.0, 1 - busy / all - out.down);
      out.requests_per_s = static_cast<double>(out.answered) / out.seconds;
      out.goodput = static_cast<double>(good) / out.seconds;
      out.watts = pool_watts(study_.study.system.power, run.replicas, out.seconds, out.down);
      out.output_per_s_gpu = answers / out.seconds / gpus;
      out.input_per_s_gpu = prompts / out.seconds / gpus;
    }
    if (busy > 0) {
      out.kv_held = held / busy;
      out.running = running / busy;
    }
    out.found = prompts > 0 ? found / prompts : 0;
    for (std::size_t i = 0; i < records.size(); ++i) out.latencies[i] = told(records[i], timeline != nullptr);
    if (q_.users == 0 && run.sent > 1 && run.last_sent > Seconds(0))
      out.sent_per_s = static_cast<double>(run.sent) / run.last_sent.value;
    note_queue(run, out);
    for (const LatencyTarget& t : q_.targets) {
      const RunQuantiles& of = records[static_cast<std::size_t>(t.of)].all;
      const double measured = of.count() > 0 ? of.quantile(t.quantile) : 0;
      out.targets.push_back({t, measured, of.count() > 0 && measured <= t.most.value});
      out.met = out.met && out.targets.back().met;
    }
    out.met = out.met && out.refused == 0 && out.unserved == 0 && out.answered > 0 && !out.growth_per_s;
    return out;
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

  const Study& study_;
  ServiceQuestion q_;
  const std::function<void(std::uint64_t, std::uint64_t)>& step_;
  const ServerOf server_;
  PlanStepTimes times_;
  std::optional<TraceSize> trace_;
  long long mean_ = 0;  // tokens of a request and its answer
  ServiceKnobs knobs_;
  std::unique_ptr<PairPools> pools_;  // nullptr: one pool
  std::uint64_t answered_ = 0;        // of the last play
};

RequestService::RequestService(const Study& study, const ServiceQuestion& question,
                               const std::function<void(std::uint64_t, std::uint64_t)>& step,
                               const TraceSize* size, ServerOf server)
    : plays_(std::make_unique<Plays>(study, question, step, size, server)) {}
RequestService::~RequestService() = default;

ServiceAnswer RequestService::answer() { return plays_->answer(); }
std::optional<ServiceAnswer> RequestService::answer(const Pools& pools, bool gives_up) {
  return plays_->answer(pools, gives_up);
}
ServiceAnswer RequestService::of_play(const Pools& pools, ServedLoadAnswer load, double step_error) {
  return plays_->of_play(pools, std::move(load), step_error);
}
void RequestService::look_at_prices(ServiceAnswer& answer) const { plays_->look_at_prices(answer); }
std::uint64_t RequestService::answered() const { return plays_->answered(); }
OfferedLoad RequestService::offered() const { return plays_->offered(); }
const StepTimes& RequestService::times() const { return plays_->times(); }
const Plan& RequestService::plan() const { return plays_->plan(); }
long long RequestService::mean_prompt() const { return plays_->prompt(); }
ServiceKnobs RequestService::knobs(const std::vector<std::string>& overrides, PairRole role) const {
  return plays_->knobs_of(overrides, role);
}

ServiceAnswer serve_requests(const Study& study, const ServiceQuestion& question,
                             const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  RequestService service(study, question, step);
  ServiceAnswer out = service.answer();
  service.look_at_prices(out);
  for (auto& n : play_notes(study.study, question.plan, out.knobs)) out.narrow.push_back(std::move(n));
  for (auto& n : idle_knob_notes(out)) out.narrow.push_back(std::move(n));
  return out;
}

}  // namespace shardline
