#include "planner/studies/deployment_jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <fstream>
#include <mutex>
#include <type_traits>

#include "planner/engines/launchable.hpp"
#include "planner/search/candidates.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/served_bytes.hpp"
#include "planner/studies/service_load.hpp"
#include "planner/studies/sized_trace.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/packed.hpp"
#include "sim/base/sha256.hpp"

namespace shardline {

std::vector<std::vector<std::string>> knob_settings(const std::vector<std::string>& knobs) {
  std::vector<std::vector<std::string>> out{{}};
  for (const std::string& knob : knobs) {
    const std::size_t equals = knob.find('=');
    std::vector<std::string> each;
    for (std::size_t at = equals; at != std::string::npos;) {
      const std::size_t end = knob.find(',', at + 1);
      each.push_back(knob.substr(0, equals + 1) + knob.substr(at + 1, end - at - 1));
      at = end;
    }
    if (each.empty()) each.push_back(knob);  // what is wrong with it is said by who reads it
    std::vector<std::vector<std::string>> longer;
    for (const auto& setting : out) {
      for (const std::string& one : each) {
        longer.push_back(setting);
        longer.back().push_back(one);
      }
    }
    out = std::move(longer);
  }
  return out;
}

// A plan that is played, with all that is found once for all its plays.
struct DeploymentJobs::Server {
  Server(const Study& study, ServiceQuestion asked,
         const std::function<void(std::uint64_t, std::uint64_t)>& step, const std::optional<TraceSize>& trace)
      : question(std::move(asked)), service(study, question, step, trace ? &*trace : nullptr) {}
  ServiceQuestion question;
  RequestService service;
  std::vector<std::unique_ptr<DeploymentBounds>>
      bounds;  // by setting of the question; nullptr: it has it not
};

struct DeploymentJobs::Slot {
  std::mutex mutex;
  std::vector<std::unique_ptr<Server>> idle;
};

// A server that nobody else plays on, which is there for the next when this ends.
class DeploymentJobs::Lease {
 public:
  Lease(const DeploymentJobs& jobs, std::size_t server) : slot_(*jobs.servers_.at(server)) {
    {
      const std::lock_guard lock(slot_.mutex);
      if (!slot_.idle.empty()) {
        server_ = std::move(slot_.idle.back());
        slot_.idle.pop_back();
      }
    }
    if (!server_) server_ = jobs.made(server);
  }
  ~Lease() {
    const std::lock_guard lock(slot_.mutex);
    slot_.idle.push_back(std::move(server_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Server* operator->() const { return server_.get(); }

 private:
  Slot& slot_;
  std::unique_ptr<Server> server_;
};

DeploymentJobs::DeploymentJobs(const Study& study, const DeploymentQuestion& question)
    : study_(study), question_(question), step_([](std::uint64_t, std::uint64_t) { check_cancelled(); }) {
  find_plans();
  const ServiceQuestion& load = question.load;
  if (!load.trace.empty()) trace_ = size_of(load.trace, load.requests, step_);
  for (std::size_t i = 0; i < plans_.size(); ++i) servers_.push_back(std::make_unique<Slot>());
}

DeploymentJobs::~DeploymentJobs() = default;

std::uint64_t DeploymentJobs::requests() const { return requests_played(question_.load, trace_); }

void DeploymentJobs::find_plans() {
  SearchOptions o = study_.sweep().search;
  std::erase_if(o.gpus, [&](int gpus) { return gpus > question_.most_gpus; });
  SearchResult ignored;
  std::vector<Plan> plans;
  for (const Candidate& c : enumerate_candidates(study_.study, o, ignored)) {
    const Plan sharding = sharding_of(c.plan);
    if (std::find(plans.begin(), plans.end(), sharding) == plans.end()) plans.push_back(sharding);
  }
  for (Plan& plan : plans) {
    if (const auto why = no_play(study_.study, plan))
      not_played_.emplace_back(plan, *why);
    else
      plans_.push_back(std::move(plan));
  }
  if (!plans_.empty()) return;
  std::vector<std::string> details;
  for (const auto& [plan, why] : not_played_) details.push_back(to_string(plan) + ": " + why);
  constexpr std::size_t kShown = 3;
  if (details.size() > kShown) details.resize(kShown);
  if (details.empty())
    details.push_back("no plan fits, or the engine starts none: plan without " + argument_name("slo") +
                      " says why");
  throw UserError({Diagnostic{{}, "no plan whose requests can be played", std::move(details)}});
}

std::unique_ptr<DeploymentJobs::Server> DeploymentJobs::made(std::size_t server) const {
  ServiceQuestion asked = question_.load;
  asked.plan = plans_[server];
  asked.replicas = question_.most_gpus / asked.plan.gpus();  // whose memory is asked for
  asked.knobs.clear();
  auto out = std::make_unique<Server>(study_, std::move(asked), step_, trace_);
  const OfferedLoad offered = out->service.offered();
  out->bounds.resize(question_.knobs.size());
  for (std::size_t k = 0; k < question_.knobs.size(); ++k) {
    try {
      const ServiceKnobs knobs = out->service.knobs(question_.knobs[k]);
      out->bounds[k] = std::make_unique<DeploymentBounds>(out->service, knobs, offered, out->question,
                                                          study_.study.engine->host.path);
    } catch (const UserError&) {  // refuse_setting() says what it is
    }
  }
  return out;
}

std::vector<BoundedSetting> DeploymentJobs::settings(std::size_t server) {
  std::vector<BoundedSetting> out;
  const int most = question_.most_gpus / plans_[server].gpus();
  // The fewest that `rules_out` does not show to be too few.
  const auto least = [&](auto rules_out, int& replicas, std::optional<RuledOut>& none) {
    for (replicas = 1; (none = rules_out(replicas)) && replicas < most; ++replicas) {
    }
  };
  try {
    const Lease s(*this, server);
    for (std::size_t k = 0; k < s->bounds.size(); ++k) {
      if (!s->bounds[k]) continue;
      const DeploymentBounds& bounds = *s->bounds[k];
      BoundedSetting& of = out.emplace_back();
      of.setting = k;
      of.block = s->service.knobs(question_.knobs[k]).block();
      least([&](int n) { return bounds.rules_out_prompts(n); }, of.prompts, of.no_prompts);
      least([&](int n) { return bounds.rules_out_answers(n); }, of.answers, of.no_answers);
    }
  } catch (const TraceChanged&) {
    throw;
  } catch (const UserError&) {  // a plan that cannot be asked has none
  }
  return out;
}

std::optional<std::string> DeploymentJobs::no_pair_of(std::size_t prefill, std::size_t decode) const {
  const Plan &from = plans_[prefill], &to = plans_[decode];
  if (const auto refusal = does_not_pair(*study_.study.engine, study_.study, from, to))
    return fmt::format("{}; {} ({})", refusal->says, refusal->text, refusal->source);
  // Bounds of what a pool can do are of vLLM's pairs: of those that read when they have room.
  if (!same_engine(study_.study.engine->name, "vllm"))
    return fmt::format(
        "the search plays pairs of vLLM alone yet, one pair of SGLang is played by serve with {}",
        argument_name("prefill"));
  return no_pair(study_.study, from, to);
}

// Each is found once: by descriptors and flows, whoever asks.
const TransferRates& DeploymentJobs::handoff(std::size_t prefill, std::size_t decode, long long prompt) {
  const std::lock_guard lock(handoffs_mutex_);
  const auto at = handoffs_.find({prefill, decode});
  if (at != handoffs_.end()) return at->second;
  return handoffs_
      .emplace(std::pair(prefill, decode),
               handoff_rates(study_.study, plans_[prefill], plans_[decode], prompt))
      .first->second;
}

// ask(service, pools), with every server of both pools its own meanwhile.
template <class Ask>
auto DeploymentJobs::on_pools(const DeploymentJob& job, Ask ask) {
  const Lease decode(*this, job.server);
  RequestService::Pools pools;
  pools.knobs = question_.knobs.at(job.setting);
  if (job.prefill_replicas == 0) {
    pools.replicas = job.gpus / plans_[job.server].gpus();
    return ask(*decode.operator->(), pools);
  }
  const Lease prefill(*this, job.prefill);
  pools.prefill_replicas = job.prefill_replicas;
  pools.replicas = (job.gpus - job.prefill_replicas * plans_[job.prefill].gpus()) / plans_[job.server].gpus();
  pools.prefill = &prefill->service;
  pools.rates = handoff(job.prefill, job.server, decode->service.mean_prompt());
  return ask(*decode.operator->(), pools);
}

void DeploymentJobs::refuse_setting(std::size_t server, std::size_t setting) {
  Lease(*this, server)->service.knobs(question_.knobs[setting]);
  SL_CHECK(false, "a plan that has the setting");
}

TriedDeployment DeploymentJobs::tried(const DeploymentJob& job) {
  const bool whole = job.what == DeploymentJob::What::whole || question_.exhaustive;
  return on_pools(job, [&](Server& s, const RequestService::Pools& pools) {
    TriedDeployment out;
    if (!whole && pools.prefill_replicas == 0) {  // bounds of pairs were asked before they were listed
      out.by = s.bounds.at(job.setting)->rules_out(pools.replicas);
      if (out.by) return out;
    }
    std::optional<ServiceAnswer> answer;
    try {
      answer = s.service.answer(pools, !whole);
    } catch (const PairStops&) {  // the engine would, too
      out.by = RuledOut::whole;
      return out;
    }
    out.requests = s.service.answered();
    if (!answer) {
      out.by = RuledOut::early;
      return out;
    }
    if (!answer->load.met) out.by = RuledOut::whole;
    out.played = PlayedLoad{std::move(answer->load), answer->step_error};
    return out;
  });
}

PlayedDeployment DeploymentJobs::told(const DeploymentJob& job, PlayedLoad play) {
  PlayedDeployment out;
  out.answer = on_pools(job, [&](Server& s, const RequestService::Pools& pools) {
    return s.service.of_play(pools, std::move(play.load), play.step_error);
  });
  for (const TargetResult& t : out.answer.load.targets)
    out.used = std::max(out.used, t.measured / t.target.most.value);
  return out;
}

void DeploymentJobs::look_at_prices(std::size_t server, PlayedDeployment& played) {
  Lease(*this, server)->service.look_at_prices(played.answer);
}

namespace {

template <class Archive, class Job>
void pack_job(Archive& archive, Job& job) {
  auto& [what, server, gpus, setting, prefill_replicas, prefill] = job;
  archive(what, server, gpus, setting, prefill_replicas, prefill);
}

}  // namespace

template <class Archive, class Setting>
requires std::same_as<std::remove_const_t<Setting>, BoundedSetting>
void visit_fields(Archive& archive, Setting& of) {
  auto& [setting, prompts, answers, block, no_prompts, no_answers] = of;
  archive(setting, prompts, answers, block, no_prompts, no_answers);
}

std::string DeploymentJobs::bytes_of(const DeploymentJob& job) {
  Packer out;
  pack_job(out, job);
  return std::move(out).bytes();
}

std::string DeploymentJobs::done(std::string_view bytes) {
  DeploymentJob job;
  Unpacker in(bytes);
  pack_job(in, job);
  Packer out;
  if (job.what == DeploymentJob::What::settings) {
    out(settings(job.server));
    return std::move(out).bytes();
  }
  const TriedDeployment result = tried(job);
  out(result.by, result.requests, result.played.has_value());
  if (result.played) out(to_bytes(result.played->load), result.played->step_error);
  return std::move(out).bytes();
}

std::vector<BoundedSetting> DeploymentJobs::settings_in(std::string_view result) {
  std::vector<BoundedSetting> out;
  Unpacker in(result);
  in(out);
  return out;
}

TriedDeployment DeploymentJobs::tried_in(std::string_view result) {
  TriedDeployment out;
  bool played = false;
  Unpacker in(result);
  in(out.by, out.requests, played);
  if (!played) return out;
  std::string load;
  PlayedLoad& play = out.played.emplace();
  in(load, play.step_error);
  play.load = served_load(load);
  return out;
}

namespace {

// Traces may be long: piece by piece.
void add_file(Sha256& to, const std::string& file) {
  if (file.empty()) return;
  std::ifstream in(file, std::ios::binary);
  std::string piece(std::size_t{1} << 20, '\0');
  while (in) {
    check_cancelled();
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    to.add(std::string_view(piece).substr(0, static_cast<std::size_t>(in.gcount())));
  }
}

}  // namespace

std::string DeploymentJobs::digest() {
  Sha256 all;
  for (const Plan& plan : plans_) all.add(to_string(plan) + "\n");
  for (const auto& setting : question_.knobs) all.add(fmt::format("{}\n", fmt::join(setting, " ")));
  const ServiceQuestion& q = question_.load;
  all.add(fmt::format("{} {} {} {} {} {} {} {} {}", q.input, q.output, q.rate, q.requests, q.seed,
                      to_string(q.router), q.lengths == LengthLaw::drawn, question_.most_gpus,
                      question_.exhaustive));
  all.add(fmt::format(" {}", static_cast<int>(question_.pools)));
  for (const LatencyTarget& t : q.targets)
    all.add(fmt::format(" {} {} {}", to_string(t.of), t.quantile, t.most.value));
  add_file(all, q.trace);
  PlanStepTimes times(study_.study, plans_.front(), study_.sweep().search.all_reduce);
  for (const StepBatch& step : {StepBatch{1, 1000, 1000, {}}, StepBatch{0, 0, 0, {{512, 0}}}})
    all.add(fmt::format(" {:x}", std::bit_cast<std::uint64_t>(times.of(step).value)));
  return all.hex().substr(0, 16);
}

}  // namespace shardline
