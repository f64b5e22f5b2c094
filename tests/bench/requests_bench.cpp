// Requests served one by one: a recorded conversation trace, long answers, and many requests in little
// memory. The trace is not the project's: SHARDLINE_TRACES names the folder of mooncake_conversation.csv.gz.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "planner/requests/pair.hpp"
#include "planner/requests/play_requests.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/requests/vllm_drafts.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/synthetic.hpp"
#include "planner/studies/deployment.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/service_knobs.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/bench/goals.hpp"
#include "tests/planner/requests/traces.hpp"

namespace shardline {
namespace {

// Llama-3.1-70B on 8 H200 under vLLM, as `shardline serve` asks for it.
struct Server {
  PlanAnswer answer;
  Plan plan;
  VllmKnobs knobs;

  std::unique_ptr<PlanStepTimes> times() const {
    return std::make_unique<PlanStepTimes>(answer.study.study, plan, answer.study.sweep().search.all_reduce);
  }
};

const Server& server() {
  static const Server one = [] {
    PlanQuestion q;
    q.model = "llama-3.1-70b";
    q.system = "h200-hgx";
    q.gpus = 8;
    q.input = 12'000;
    q.output = 343;  // the means of the trace
    q.engine = "vllm";
    PlanAnswer a = asked_plan(q, shipped_catalogs());
    const Plan plan = possible_plan(a.study, "tensor:tpa=8,tpf=8");
    const VllmKnobs knobs = vllm_knobs(a.study.study, plan, {"max_model_len=131072"}, q.input + q.output);
    return Server{std::move(a), plan, knobs};
  }();
  return one;
}

// The few numbers that agree with lowerings of the plan: of one request and of 64, of short and long caches,
// of one prompt of 1,024 and of 8,192 tokens, and of the latter behind 32,768.
const LinearStepTimes& linear_times() {
  static const LinearStepTimes one = [] {
    const auto plan = server().times();
    const auto decodes = [&](std::uint32_t requests, std::uint32_t each) {
      return plan->of({requests, std::uint64_t{requests} * each, each, {}});
    };
    const auto prompt = [&](std::uint32_t tokens, std::uint32_t past) {
      return plan->of({0, 0, 0, {{tokens, past}}});
    };
    LinearStepTimes::Rates r;
    r.cached = (decodes(64, 32'768) - decodes(64, 1024)) / (64 * 31'744.0);
    r.request = (decodes(64, 1024) - decodes(1, 1024)) / 63 - r.cached * 1024.0;
    r.request = std::max(r.request, Seconds(0));
    r.step = decodes(1, 1024) - r.request - r.cached * 1024.0;
    r.prompt_pair = (prompt(8192, 32'768) - prompt(8192, 0)) / (8192 * 32'768.0);
    r.prompt_token =
        (prompt(8192, 0) - prompt(1024, 0) - r.prompt_pair * (8192 * 4096.5 - 1024 * 512.5)) / 7168.0;
    return LinearStepTimes(r);
  }();
  return one;
}

// Nothing where the environment names no folder.
const std::vector<TraceRequest>& conversation() {
  static const std::vector<TraceRequest> all = [] {
    std::vector<TraceRequest> none;
    auto text = testing::recorded("mooncake_conversation.csv");
    if (!text) return none;
    text->replace(0, text->find('\n'), "arrival_ms,input_tokens,output_tokens,block_ids");
    return testing::read_all("mooncake_conversation.csv", *text);
  }();
  return all;
}

// KiB, of the process up to now.
double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

std::string told(const ServedRequests& s) {
  return fmt::format("{:.1f} run, {:.1f} % found, {:.1f} events and {:.0f} steps a request",
                     s.running / s.busy.value,
                     100.0 * static_cast<double>(s.found_tokens) / static_cast<double>(s.prompt_tokens),
                     static_cast<double>(s.events) / static_cast<double>(s.answered),
                     static_cast<double>(s.steps) / static_cast<double>(s.answered));
}

ServedRequests play(const std::vector<TraceRequest>& requests, double pace, const VllmKnobs& knobs,
                    const StepTimes& times) {
  VllmScheduler scheduler(knobs);
  std::size_t next = 0;
  return play_requests(
      [&](TraceRequest& r) {
        if (next == requests.size()) return false;
        r = requests[next++];
        r.arrival = r.arrival / pace;
        return true;
      },
      scheduler, times);
}

void serve_conversation(benchmark::State& state, const StepTimes& times) {
  const std::vector<TraceRequest>& requests = conversation();
  if (requests.empty()) {
    state.SkipWithError("SHARDLINE_TRACES names no folder with mooncake_conversation.csv.gz");
    return;
  }
  const double pace = static_cast<double>(state.range(0)) / 100;
  const auto count = static_cast<double>(requests.size());
  std::string label;
  Goal goal = Goal::rate(state, 0.5e6, count);
  for (auto _ : state) label = told(play(requests, pace, server().knobs, times));
  goal.label(label);
  state.counters["requests"] =
      benchmark::Counter(count * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// At so many hundredths of its own rate, with calibrated times of steps.
void BM_Conversation(benchmark::State& state) { serve_conversation(state, linear_times()); }
BENCHMARK(BM_Conversation)->Arg(100)->Arg(25)->Unit(benchmark::kMillisecond);

// Likewise with steps of the plan, lowered when they are asked for first.
void BM_ConversationOfAPlan(benchmark::State& state) {
  const auto times = server().times();
  serve_conversation(state, *times);
}
BENCHMARK(BM_ConversationOfAPlan)->Arg(100)->Arg(25)->Iterations(1)->Unit(benchmark::kMillisecond);

// What is left when the steps were asked for before.
void BM_ConversationOfAKnownPlan(benchmark::State& state) {
  static const auto times = server().times();
  if (!conversation().empty())
    play(conversation(), static_cast<double>(state.range(0)) / 100, server().knobs, *times);
  serve_conversation(state, *times);
}
BENCHMARK(BM_ConversationOfAKnownPlan)->Arg(100)->Arg(25)->Iterations(1)->Unit(benchmark::kMillisecond);

// So many requests at a time, all there from the beginning, with answers of 4,000 to 8,000 tokens.
void BM_LongAnswers(benchmark::State& state) {
  VllmKnobs knobs = server().knobs;
  knobs.max_num_seqs = static_cast<std::uint32_t>(state.range(0));
  std::vector<TraceRequest> requests;
  for (std::int64_t i = 0; i < 20 * state.range(0); ++i)
    requests.push_back({Seconds(0), 64 + i * 37 % 64, 4000 + i * 2477 % 4001, {}});
  std::uint64_t steps = play(requests, 1, knobs, linear_times()).steps;
  std::string label;
  Goal goal = Goal::rate(state, 50e6, static_cast<double>(steps));
  for (auto _ : state) label = told(play(requests, 1, knobs, linear_times()));
  goal.label(label);
  state.counters["steps"] = benchmark::Counter(
      static_cast<double>(steps) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_LongAnswers)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

// [R16] The same requests with three drafts, whose steps are played one by one; the goal is of requests that
// a step is decided and drawn for.
void BM_DraftedAnswers(benchmark::State& state) {
  VllmKnobs knobs = server().knobs;
  knobs.max_num_seqs = static_cast<std::uint32_t>(state.range(0));
  std::vector<TraceRequest> requests;
  for (std::int64_t i = 0; i < 4 * state.range(0); ++i)
    requests.push_back({Seconds(0), 64 + i * 37 % 64, 4000 + i * 2477 % 4001, {}});
  const DraftLaw law({0.8, 0.576, 0.373}, 1);
  const auto all = [&] {
    std::size_t next = 0;
    VllmDraftScheduler scheduler(knobs, law);
    return play_requests(
        [&](TraceRequest& r) { return next < requests.size() && (r = requests[next++], true); }, scheduler,
        linear_times(), true);
  };
  const ServedRequests once = all();
  const double each = once.running / once.busy.value;  // requests of a step, in the mean
  Goal goal = Goal::rate(state, 5e6, static_cast<double>(once.steps) * each);
  std::string label;
  for (auto _ : state) label = told(all());
  goal.label(label);
  state.counters["steps"] = benchmark::Counter(
      static_cast<double>(once.steps) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_DraftedAnswers)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

// [R12] The conversation through so many replicas of two pools, half of which prefill, at their number times
// its own rate; caches in 20 ms and 1 us a token. Prefix caches on, and linear times of steps.
// Of vLLM's engines (0), or with as many tokens of KV of SGLang's (1) or TensorRT-LLM's (2).
std::unique_ptr<Scheduler> half_of(PairRole role, std::int64_t engine) {
  const VllmKnobs& vllm = server().knobs;
  if (engine == 0) return std::make_unique<VllmScheduler>(vllm, role);
  if (engine == 2) {
    TrtllmKnobs k;
    k.blocks = vllm.num_gpu_blocks * vllm.block_size / k.tokens_per_block;
    k.max_seq_len = vllm.max_model_len;
    k.max_num_tokens = vllm.max_num_batched_tokens;
    k.enable_chunked_prefill = true;
    k.disable_overlap_scheduler = role == PairRole::prefills;
    return std::make_unique<TrtllmScheduler>(k, role);
  }
  SglangKnobs k;
  k.page_size = 64;
  k.max_total_tokens = vllm.num_gpu_blocks * vllm.block_size / k.page_size * k.page_size;
  k.context_length = vllm.max_model_len;
  k.chunked_prefill_size = vllm.max_num_batched_tokens;
  return std::make_unique<SglangScheduler>(k, role);
}

void BM_Pairs(benchmark::State& state) {
  const std::vector<TraceRequest>& requests = conversation();
  if (requests.empty()) {
    state.SkipWithError("SHARDLINE_TRACES names no folder with mooncake_conversation.csv.gz");
    return;
  }
  const auto replicas = static_cast<std::size_t>(state.range(0));
  const auto count = static_cast<double>(requests.size());
  std::string label;
  Goal goal = Goal::rate(state, 10e6 / 60, count);
  for (auto _ : state) {
    PlayedPool prefill, decode;
    for (std::size_t i = 0; i < replicas / 2; ++i) {
      prefill.schedulers.push_back(half_of(PairRole::prefills, state.range(1)));
      decode.schedulers.push_back(half_of(PairRole::decodes, state.range(1)));
    }
    prefill.times = decode.times = &linear_times();
    std::size_t next = 0, sent = 0;
    TraceArrivals arrivals([&]() -> std::optional<Seconds> {
      if (next == requests.size()) return std::nullopt;
      return requests[next++].arrival / static_cast<double>(replicas);
    });
    ClusterLoad load;
    load.arrivals = &arrivals;
    load.request = [&](TraceRequest& r) {
      r = requests[sent++];
      return true;
    };
    const PairRun run =
        play_pair(prefill, decode, {Seconds(0.02), Seconds(1e-6)}, load, requests.size(), {}, {});
    std::uint64_t steps = 0, events = 0;
    for (const auto* pool : {&run.prefill, &run.decode}) {
      for (const ServedRequests& r : *pool) {
        steps += r.steps;
        events += r.events;
      }
    }
    label = fmt::format("{:.1f} events and {:.0f} steps a request", static_cast<double>(events) / count,
                        static_cast<double>(steps) / count);
  }
  goal.label(label);
  state.counters["requests"] =
      benchmark::Counter(count * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Pairs)
    ->ArgNames({"replicas", "engine"})
    ->ArgsProduct({{2, 8}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

// Made-up requests as they come, so many millions; what they add to the memory of the process.
void BM_ManyRequests(benchmark::State& state) {
  const std::uint64_t count = static_cast<std::uint64_t>(state.range(0)) * 1'000'000;
  SyntheticLaw law{Variate::uniform(100, 4000), Variate::uniform(10, 400)};
  law.shared = 0.5;
  law.prefixes = 1000;
  law.prefix = Variate::uniform(512, 4096);
  const SyntheticRequests made(law, 1);
  const double before = peak_memory();
  std::string label;
  for (auto _ : state) {
    VllmScheduler scheduler(server().knobs);
    std::uint64_t next = 0;
    const ServedRequests served = play_requests(
        [&](TraceRequest& r) {
          if (next == count) return false;
          r = made.make(next, Seconds(0.1 * static_cast<double>(next)));
          ++next;
          return true;
        },
        scheduler, linear_times());
    label = told(served);
  }
  const double mib = (peak_memory() - before) / 1024;
  state.SetLabel(label + fmt::format("; goal 1,024 MiB for 10 M: {}",
                                     mib <= 1024.0 * static_cast<double>(count) / 1e7 ? "met" : "MISSED"));
  state.counters["MiB"] = mib;
  state.counters["requests"] = benchmark::Counter(
      static_cast<double>(count) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_ManyRequests)->Arg(1)->Arg(10)->Iterations(1)->Unit(benchmark::kMillisecond);

// The cheapest deployment [P35]: Llama-3.1-70B on up to 64 H200 under vLLM at 16 requests/s, so many
// requests, five settings of a step's tokens: 425 candidates of 18 plans.
void BM_CheapestDeployment(benchmark::State& state) {
  PlanQuestion line;
  line.model = "llama-3.1-70b";
  line.system = "h200-hgx";
  line.engine = "vllm";
  line.gpus = 64;
  line.input = 4096;
  line.output = 512;
  const Study study = asked_plan(line, shipped_catalogs()).study;
  DeploymentQuestion q;
  q.most_gpus = 64;
  q.load.input = line.input;
  q.load.output = line.output;
  q.load.rate = 16;
  q.load.requests = static_cast<std::uint64_t>(state.range(0));
  q.load.targets = parse_targets("slo", "ttft p99 1 s, tpot p99 40 ms");
  q.knobs = knob_settings({"max_num_batched_tokens=1024,2048,4096,8192,16384"});
  for (auto _ : state) {
    const DeploymentAnswer a = cheapest_deployment(study, q, [](std::uint64_t, std::uint64_t) {});
    state.counters["candidates"] = static_cast<double>(a.certificate.candidates);
    state.counters["candidates/s"] =
        benchmark::Counter(static_cast<double>(a.certificate.candidates), benchmark::Counter::kIsRate);
    state.counters["gpus"] = a.cheapest.empty() ? 0 : a.cheapest.front().gpus();
  }
}
BENCHMARK(BM_CheapestDeployment)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace shardline

BENCHMARK_MAIN();
