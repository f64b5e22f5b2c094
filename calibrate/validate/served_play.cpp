#include "calibrate/validate/served_play.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "planner/requests/cluster.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/synthetic.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/service_knobs.hpp"

namespace shardline {

struct LoopPlayer::Server {
  Case study;
  Plan plan;
  std::unique_ptr<PlanStepTimes> times;
};

LoopPlayer::LoopPlayer(const EngineProfile& engine, const HostTimes& host, const Catalogs& catalogs)
    : engine_(engine), host_(host), catalogs_(catalogs) {
  engine_.host = host;
}

LoopPlayer::~LoopPlayer() = default;

LoopPlayer::Server& LoopPlayer::server_of(const ServedRow& row) {
  const std::string scenario = served_scenario(row, catalogs_);
  std::unique_ptr<Server>& s =
      servers_[fmt::format("{}{} {} {} {}", scenario, row.plan, row.version, row.mixes_prompts, row.memory)];
  if (s) return *s;
  s = std::make_unique<Server>();
  s->study = parse_scenario("served", scenario, catalogs_).studies[0].study;
  s->study.system.host.step = host_.step;
  s->study.system.host.request = host_.request;
  s->study.system.host.prompt_token = host_.prompt_token;
  ServedRow any_budget = row;
  any_budget.step_tokens = 0;
  s->study.engine = std::make_shared<const EngineProfile>(as_started(engine_, any_budget));
  s->plan = parse_plan(row.plan);
  // Loops of attention groups behind one barrier [R10] are not held against rows yet, and rows with stages
  // are of versions whose runner passed steps on otherwise than [R36] says.
  if (s->plan.dp == 1 && s->plan.pp == 1 && !no_play(s->study, s->plan))
    s->times = std::make_unique<PlanStepTimes>(s->study, s->plan, AllReduceRule::fastest);
  return *s;
}

std::vector<std::string> start_knobs(const ServedRow& row, const EngineProfile& started) {
  std::vector<std::string> out;
  const bool vllm = row.engine == "vllm", trtllm = row.engine == "trtllm";
  if (vllm) out.push_back(fmt::format("async_scheduling={}", !started.host_waited_for));
  if (trtllm) out.push_back(fmt::format("enable_chunked_prefill={}", !row.whole_prompts));
  if (row.mixes_prompts) out.emplace_back("enable_mixed_chunk=true");
  if (row.step_tokens > 0)
    out.push_back(fmt::format("{}={}",
                              vllm     ? "max_num_batched_tokens"
                              : trtllm ? "max_num_tokens"
                                       : "chunked_prefill_size",
                              row.step_tokens));
  return out;
}

std::optional<PlayedLoop> LoopPlayer::play(const ServedRow& row) {
  Server& server = server_of(row);
  if (!server.times) return std::nullopt;
  // Its memory is that of its own budget: the activations of a step are kept free.
  Case own = server.study;
  own.engine = std::make_shared<const EngineProfile>(as_started(engine_, row));
  // Rows have the means of drawn lengths, which are 90 % of the longest.
  const double nominal = row.equal_lengths ? 1 : 0.9;
  const double input = std::round(row.input / nominal), output = std::round(row.output / nominal);
  const auto length = [&](double n) {
    return row.equal_lengths ? Variate::fixed(n) : Variate::uniform(0.8 * n, n);
  };
  const ServiceKnobs knobs =
      service_knobs(own, server.plan, start_knobs(row, *own.engine), std::llround(input + output));
  std::vector<std::unique_ptr<Scheduler>> replicas;
  replicas.push_back(scheduler_of(knobs, draft_law(own, server.plan, 1)));
  const SyntheticRequests requests({length(input), length(output)}, 1);
  ClosedLoop users(static_cast<std::size_t>(row.users), Variate::fixed(0), 1, ClosedLoop::Start::together);
  std::uint64_t next = 0;
  ClusterLoad load;
  load.arrivals = &users;
  load.request = [&](TraceRequest& r) {
    r = requests.make(next++, Seconds(0));
    return true;
  };
  load.closed = true;
  load.path = host_.path;
  PlayedLoop out;
  const ClusterRun run = play_cluster(replicas, {server.times.get()}, Router::round_robin, load,
                                      static_cast<std::uint64_t>(std::llround(row.users * row.rounds)),
                                      [&](const AnsweredRequest& a) {
                                        ++out.requests;
                                        out.ttft += (a.first - a.came).value;
                                        out.tpot += (a.last - a.first).value / (a.answer - 1);
                                      },
                                      {});
  if (out.requests == 0) return std::nullopt;
  out.ttft /= static_cast<double>(out.requests);
  out.tpot /= static_cast<double>(out.requests);
  out.preemptions = run.replicas[0].preemptions;
  return out;
}

PlayedFit play_left_out(const ServedFit& fit, const EngineProfile& engine, const Catalogs& catalogs) {
  PlayedFit out;
  for (const LeftOutModel& m : fit.models) {
    LoopPlayer player(engine, m.host, catalogs);
    LeftOutModel played{m.label, m.host, {}, {}, {}};
    for (const TimedRow* r : m.rows) {
      std::optional<PlayedLoop> loop;
      try {
        loop = player.play(r->row);
      } catch (const UserError&) {
        // A server that would not start serves nobody.
      }
      if (!loop) {
        ++out.left_out;
        continue;
      }
      played.rows.push_back(r);
      played.tpot.push_back(loop->tpot / r->row.tpot);
      played.ttft.push_back(r->row.ttft > 0 ? loop->ttft / r->row.ttft : 0);
    }
    if (!played.rows.empty()) out.models.push_back(std::move(played));
  }
  return out;
}

}  // namespace shardline
