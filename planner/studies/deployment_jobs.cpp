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
#include "planner/serving/pools.hpp"
#include "planner/strategies/strategy.hpp"
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

// A plan that is played, with all that is found once for all its plays.
struct DeploymentJobs::Server {
  Server(const Study& study, ServiceQuestion asked,
         const std::function<void(std::uint64_t, std::uint64_t)>& step, const std::optional<TraceSize>& trace,
         ServerOf of)
      : question(std::move(asked)), service(study, question, step, trace ? &*trace : nullptr, of) {}
  ServiceQuestion question;
  RequestService service;
  // By setting of the question, of a server that has it: of all of a load, and of its parts. A server that
  // does both has one for all three.
  struct Bounds {
    std::unique_ptr<DeploymentBounds> own, other;
    const DeploymentBounds *prompts = nullptr, *answers = nullptr;
    int block = 0;
  };
  std::vector<Bounds> bounds;
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
  if (trace_) require_pace(load.trace, *trace_, load.rate);
  for (std::size_t i = 0; i < kinds_.size(); ++i) servers_.push_back(std::make_unique<Slot>());
}

DeploymentJobs::~DeploymentJobs() = default;

std::uint64_t DeploymentJobs::requests() const { return requests_played(question_.load, trace_); }

PlayedRequests DeploymentJobs::played() const {
  PlayedRequests out = played_requests(question_.load, trace_, false);
  if (question_.pools == PoolsAsked::one) return out;
  out.in_pairs = true;
  out.texts *= 3;
  return out;
}

std::vector<Plan> DeploymentJobs::sharded() const {
  SearchOptions o = study_.sweep().search;
  std::erase_if(o.gpus, [&](int gpus) { return gpus > question_.most_gpus; });
  SearchResult ignored;
  std::vector<Plan> plans;
  for (const Candidate& c : enumerate_candidates(study_.study, o, ignored)) {
    const Plan sharding = sharding_of(c.plan);
    if (std::find(plans.begin(), plans.end(), sharding) == plans.end()) plans.push_back(sharding);
  }
  return plans;
}

void DeploymentJobs::find_plans() {
  for (Plan& plan : sharded()) {
    if (const auto why = no_play(study_.study, plan))
      not_played_.emplace_back(plan, *why);
    else
      kinds_.push_back({std::move(plan), ServerOf::both, false});
  }
  if (!kinds_.empty()) {
    if (question_.pools != PoolsAsked::one) find_halves();
    return;
  }
  std::vector<std::string> details;
  for (const auto& [plan, why] : not_played_) details.push_back(to_string(plan) + ": " + why);
  constexpr std::size_t kShown = 3;
  if (details.size() > kShown) details.resize(kShown);
  if (details.empty())
    details.push_back("no plan fits, or the engine starts none: plan without " + argument_name("slo") +
                      " says why");
  throw UserError({Diagnostic{{}, "no plan whose requests can be played", std::move(details)}});
}

// Servers of pairs: those above where halves are servers like others, else halves of their plans; and plans
// that have prompts alone.
void DeploymentJobs::find_halves() {
  const std::size_t whole = kinds_.size();
  const bool apart = halves_apart(study_.study);
  for (std::size_t i = 0; i < whole; ++i) {
    const Plan plan = kinds_[i].plan;
    if (no_pair({study_.study, plan}, {study_.study, plan})) continue;
    if (apart)
      kinds_.push_back({plan, ServerOf::half, true});
    else
      kinds_[i].in_pairs = true;
  }
  if (none_in_pairs()) return;
  for (Plan& plan : prefill_plans(study_)) {
    const bool known = std::any_of(kinds_.begin(), kinds_.end(),
                                   [&](const DeploymentServer& s) { return s.plan == sharding_of(plan); });
    if (known || strategy(plan.strategy).decodes || plan.gpus() >= question_.most_gpus) continue;
    if (!no_play(study_.study, plan, true)) kinds_.push_back({sharding_of(plan), ServerOf::prompts, true});
  }
}

bool DeploymentJobs::none_in_pairs() const {
  return std::none_of(kinds_.begin(), kinds_.end(), [](const DeploymentServer& s) { return s.in_pairs; });
}

std::unique_ptr<DeploymentJobs::Server> DeploymentJobs::made(std::size_t server) const {
  const DeploymentServer& kind = kinds_[server];
  ServiceQuestion asked = question_.load;
  asked.plan = kind.plan;
  asked.replicas = question_.most_gpus / asked.plan.gpus();  // whose memory is asked for
  asked.knobs.clear();
  auto out = std::make_unique<Server>(study_, std::move(asked), step_, trace_, kind.of);
  const OfferedLoad offered = out->service.offered();
  const auto bounds_of = [&](const std::vector<std::string>& knobs, PairRole role, BoundedWork work) {
    return std::make_unique<DeploymentBounds>(out->service, out->service.knobs(knobs, role), offered,
                                              out->question, study_.study.engine->host.path, work);
  };
  out->bounds.resize(question_.knobs.size());
  for (std::size_t k = 0; k < question_.knobs.size(); ++k) {
    Server::Bounds& b = out->bounds[k];
    try {
      const auto& knobs = question_.knobs[k];
      b.block = static_cast<int>(out->service.knobs(knobs).block());
      if (kind.of == ServerOf::both) {
        b.own = bounds_of(knobs, PairRole::decodes, BoundedWork::all);
        b.prompts = b.answers = b.own.get();
        continue;
      }
      b.own = bounds_of(knobs, PairRole::prefills, BoundedWork::prompts);
      b.prompts = b.own.get();
      if (kind.of == ServerOf::prompts) continue;
      b.other = bounds_of(knobs, PairRole::decodes, BoundedWork::answers);
      b.answers = b.other.get();
    } catch (const UserError&) {  // refuse_setting() says what it is
      b = {};
    }
  }
  return out;
}

std::vector<BoundedSetting> DeploymentJobs::settings(std::size_t server) {
  std::vector<BoundedSetting> out;
  const int most = question_.most_gpus / kinds_[server].plan.gpus();
  // The fewest that `rules_out` does not show to be too few.
  const auto least = [&](auto rules_out, int& replicas, std::optional<RuledOut>& none) {
    for (replicas = 1; (none = rules_out(replicas)) && replicas < most; ++replicas) {
    }
  };
  try {
    const Lease s(*this, server);
    for (std::size_t k = 0; k < s->bounds.size(); ++k) {
      const Server::Bounds& b = s->bounds[k];
      if (!b.own) continue;
      BoundedSetting& of = out.emplace_back();
      of.setting = k;
      of.block = b.block;
      least([&](int n) { return b.prompts->rules_out_prompts(n); }, of.prompts, of.no_prompts);
      if (b.answers != nullptr)
        least([&](int n) { return b.answers->rules_out_answers(n); }, of.answers, of.no_answers);
    }
  } catch (const TraceChanged&) {
    throw;
  } catch (const UserError&) {  // a plan that cannot be asked has none
  }
  return out;
}

std::optional<std::string> DeploymentJobs::no_pair_of(std::size_t prefill, std::size_t decode) const {
  const Plan &from = kinds_[prefill].plan, &to = kinds_[decode].plan;
  if (const auto refusal = does_not_pair(*study_.study.engine, study_.study, from, to))
    return fmt::format("{}; {} ({})", refusal->says, refusal->text, refusal->source);
  return no_pair({study_.study, from}, {study_.study, to});
}

// Each is found once: by descriptors and flows, whoever asks.
const TransferRates& DeploymentJobs::handoff(const DeploymentJob& job, long long prompt) {
  const std::lock_guard lock(handoffs_mutex_);
  const Plan &from = kinds_[job.prefill].plan, &to = kinds_[job.server].plan;
  const int prefill_gpus = job.prefill_replicas * from.gpus();
  const ReplicaPlaces places = places_of(study_.study.system, prefill_gpus, job.gpus - prefill_gpus);
  const std::tuple key(job.prefill, job.server, places);
  const auto at = handoffs_.find(key);
  if (at != handoffs_.end()) return at->second;
  return handoffs_.emplace(key, handoff_rates({study_.study, from}, {study_.study, to}, prompt, places))
      .first->second;
}

// ask(service, pools), with every server of both pools its own meanwhile.
template <class Ask>
auto DeploymentJobs::on_pools(const DeploymentJob& job, Ask ask) {
  const Lease decode(*this, job.server);
  RequestService::Pools pools;
  pools.knobs = question_.knobs.at(job.setting);
  if (job.prefill_replicas == 0) {
    pools.replicas = job.gpus / kinds_[job.server].plan.gpus();
    return ask(*decode.operator->(), pools);
  }
  const Lease prefill(*this, job.prefill);
  pools.prefill_replicas = job.prefill_replicas;
  pools.replicas =
      (job.gpus - job.prefill_replicas * kinds_[job.prefill].plan.gpus()) / kinds_[job.server].plan.gpus();
  pools.prefill = &prefill->service;
  pools.rates = handoff(job, decode->service.mean_prompt());
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
      out.by = s.bounds.at(job.setting).own->rules_out(pools.replicas);
      if (out.by) return out;
    }
    std::optional<ServiceAnswer> answer;
    try {
      answer = s.service.answer(pools, !whole);
    } catch (const EngineStops&) {  // the engine would, too
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
  for (const DeploymentServer& k : kinds_)
    all.add(fmt::format("{} {}\n", to_string(k.plan), static_cast<int>(k.of)));
  for (const auto& setting : question_.knobs) all.add(fmt::format("{}\n", fmt::join(setting, " ")));
  const ServiceQuestion& q = question_.load;
  all.add(fmt::format("{} {} {} {} {} {} {} {} {}", q.input, q.output, q.rate, q.requests, q.seed,
                      to_string(q.router), q.lengths == LengthLaw::drawn, question_.most_gpus,
                      question_.exhaustive));
  all.add(fmt::format(" {}", static_cast<int>(question_.pools)));
  for (const LatencyTarget& t : q.targets)
    all.add(fmt::format(" {} {} {}", to_string(t.of), t.quantile, t.most.value));
  add_file(all, q.trace);
  PlanStepTimes times(study_.study, kinds_.front().plan, study_.sweep().search.all_reduce);
  for (const StepBatch& step : {StepBatch{1, 1000, 1000, {}}, StepBatch{0, 0, 0, {{512, 0}}}})
    all.add(fmt::format(" {:x}", std::bit_cast<std::uint64_t>(times.of(step).value)));
  return all.hex().substr(0, 16);
}

}  // namespace shardline
