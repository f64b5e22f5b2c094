#include "planner/studies/deployment.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "planner/search/candidates.hpp"
#include "planner/studies/deployment_bounds.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/study_memory.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

std::string_view to_string(RuledOut by) {
  switch (by) {
    case RuledOut::ttft:
      return "TTFT of a prompt alone";
    case RuledOut::tpot:
      return "TPOT of one request";
    case RuledOut::prompts:
      return "work of all prompts";
    case RuledOut::answers:
      return "work of all answers";
    case RuledOut::early:
      return "a play that broke a target too often";
    case RuledOut::whole:
      return "a play to its end";
  }
  return "";
}

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

namespace {

// A sharding, played by one thread at a time.
struct Server {
  Plan plan;
  std::unique_ptr<RequestService> service;
  struct Setting {
    std::size_t index = 0;  // among the question's
    std::unique_ptr<DeploymentBounds> bounds;
  };
  std::vector<Setting> settings;  // that the plan has
};

// What came of one candidate.
struct Tried {
  std::optional<RuledOut> by;  // nothing: it meets
  std::optional<PlayedDeployment> played;
  std::uint64_t requests = 0;
};

double used_of(const ServedLoadAnswer& load) {
  double out = 0;
  for (const TargetResult& t : load.targets) out = std::max(out, t.measured / t.target.most.value);
  return out;
}

class Deployments {
 public:
  Deployments(const Study& study, const DeploymentQuestion& question,
              const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : study_(study), q_(question), progress_(progress), threads_(thread_count(question.threads)) {
    SL_CHECK(q_.load.users == 0 && !q_.load.targets.empty() && (q_.load.rate > 0 || !q_.load.trace.empty()),
             "an open loop with targets");
    find_servers();
  }

  DeploymentAnswer answer() {
    require_memory(need());
    make_services();
    count_candidates();
    std::set<int> levels;
    for (const Server& s : servers_) {
      for (int gpus = s.plan.gpus(); gpus <= q_.most_gpus; gpus += s.plan.gpus()) levels.insert(gpus);
    }
    for (const int gpus : levels) {
      const std::uint64_t before = tried_;
      std::vector<PlayedDeployment> met = play_level(gpus);
      if (met.empty() || (q_.exhaustive && !out_.cheapest.empty())) continue;
      out_.cheapest = std::move(met);
      out_.certificate.met = out_.cheapest.size();
      out_.certificate.beside = tried_ - before - out_.cheapest.size();
      if (!q_.exhaustive) break;
    }
    out_.certificate.dearer = out_.certificate.candidates - tried_;
    if (out_.cheapest.empty()) find_nearest();
    for (PlayedDeployment& d : out_.cheapest) server_of(d).service->look_at_prices(d.answer);
    if (out_.nearest) server_of(*out_.nearest).service->look_at_prices(out_.nearest->answer);
    return std::move(out_);
  }

 private:
  // Plays on all threads, on as many replicas of the smallest plan as there are GPUs for; of each plan its
  // tables of step times and the lengths of all requests, which its bounds keep.
  MemoryNeed need() const {
    constexpr double kTables = 6e6, kLengths = 3 * sizeof(std::int64_t);
    const std::uint64_t requests = std::max<std::uint64_t>(q_.load.requests, 2000);
    int smallest = q_.most_gpus;
    for (const Server& s : servers_) smallest = std::min(smallest, s.plan.gpus());
    const int replicas = q_.most_gpus / smallest;
    MemoryNeed out = need_of_requests(requests, 0, replicas, 0);
    const Bytes one = out.bytes, none = need_of_requests(0, 0, replicas, 0).bytes;
    out.bytes = none + (one - none) * static_cast<double>(threads_) +
                Bytes((kTables + kLengths * static_cast<double>(requests * q_.knobs.size())) *
                      static_cast<double>(servers_.size()));
    return out;
  }

  void find_servers() {
    SearchOptions o = study_.sweep().search;
    std::erase_if(o.gpus, [&](int gpus) { return gpus > q_.most_gpus; });
    SearchResult ignored;
    std::vector<Plan> plans;
    for (const Candidate& c : enumerate_candidates(study_.study, o, ignored)) {
      const Plan sharding = sharding_of(c.plan);
      if (std::find(plans.begin(), plans.end(), sharding) == plans.end()) plans.push_back(sharding);
    }
    for (Plan& plan : plans) {
      if (const auto why = no_play(study_.study, plan)) {
        out_.not_played.emplace_back(plan, *why);
        continue;
      }
      servers_.emplace_back();
      servers_.back().plan = plan;
    }
    if (!servers_.empty()) return;
    std::vector<std::string> details;
    for (const auto& [plan, why] : out_.not_played) details.push_back(to_string(plan) + ": " + why);
    constexpr std::size_t kShown = 3;
    if (details.size() > kShown) details.resize(kShown);
    if (details.empty())
      details.push_back("no plan fits, or the engine starts none: plan without --slo says why");
    throw UserError({Diagnostic{{}, "no plan whose requests can be played", std::move(details)}});
  }

  // A plan that has none of the settings is none; one that no plan has is an error, as it says nothing.
  void make_services() {
    std::mutex faults;
    std::map<std::size_t, std::exception_ptr> fault;  // by setting, with their places
    const auto ask = [](std::uint64_t, std::uint64_t) { check_cancelled(); };
    step_ = ask;
    parallel_for(0, servers_.size(), threads_, [&](std::size_t i, std::size_t) {
      Server& s = servers_[i];
      ServiceQuestion load = q_.load;
      load.plan = s.plan;
      load.replicas = q_.most_gpus / s.plan.gpus();  // whose memory is asked for
      load.knobs.clear();
      std::optional<OfferedLoad> offered;
      for (std::size_t k = 0; k < q_.knobs.size(); ++k) {
        try {
          if (!s.service) s.service = std::make_unique<RequestService>(study_, load, step_);
          if (!offered) offered = s.service->offered();
          const ServiceKnobs knobs = s.service->knobs(q_.knobs[k]);
          // The load names the plan whose groups are counted.
          s.settings.push_back({k, nullptr});
          s.settings.back().bounds = std::make_unique<DeploymentBounds>(
              *s.service, knobs, *offered, question_of(s.plan), study_.study.engine->host.path);
        } catch (const UserError&) {
          const std::lock_guard lock(faults);
          fault.try_emplace(k, std::current_exception());
        }
      }
    });
    std::vector<bool> taken(q_.knobs.size());
    for (const Server& s : servers_) {
      for (const Server::Setting& setting : s.settings) taken[setting.index] = true;
    }
    for (std::size_t k = 0; k < q_.knobs.size(); ++k) {
      if (!taken[k]) out_.knobs_refused.push_back(q_.knobs[k]);
    }
    if (out_.knobs_refused.size() == q_.knobs.size()) std::rethrow_exception(fault.begin()->second);
  }

  // Kept for bounds, which refer to it.
  const ServiceQuestion& question_of(const Plan& plan) {
    const std::lock_guard lock(questions_lock_);
    ServiceQuestion& q = questions_.emplace_back(q_.load);
    q.plan = plan;
    return q;
  }

  void count_candidates() {
    for (const Server& s : servers_) {
      out_.certificate.plans += s.settings.empty() ? 0 : 1;
      out_.certificate.candidates +=
          s.settings.size() * static_cast<std::size_t>(q_.most_gpus / s.plan.gpus());
    }
  }

  Tried try_one(Server& s, const Server::Setting& setting, int replicas) const {
    Tried out;
    if (!q_.exhaustive) {
      out.by = setting.bounds->rules_out(replicas);
      if (out.by) return out;
    }
    auto answer = s.service->answer(replicas, q_.knobs[setting.index], !q_.exhaustive);
    out.requests = s.service->answered();
    if (!answer) {
      out.by = RuledOut::early;
      return out;
    }
    if (!answer->load.met) out.by = RuledOut::whole;
    out.played = PlayedDeployment{std::move(*answer), 0};
    out.played->used = used_of(out.played->answer.load);
    return out;
  }

  // All candidates on exactly so many GPUs; those that meet.
  std::vector<PlayedDeployment> play_level(int gpus) {
    std::vector<std::size_t> of_level;
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      if (gpus % servers_[i].plan.gpus() == 0 && !servers_[i].settings.empty()) of_level.push_back(i);
    }
    std::vector<std::vector<Tried>> tried(of_level.size());
    parallel_for(0, of_level.size(), threads_, [&](std::size_t i, std::size_t) {
      Server& s = servers_[of_level[i]];
      for (const Server::Setting& setting : s.settings) {
        tried[i].push_back(try_one(s, setting, gpus / s.plan.gpus()));
        const std::lock_guard lock(progress_lock_);
        progress_(++tried_, out_.certificate.candidates);
      }
    });
    std::vector<PlayedDeployment> met;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const Server& s = servers_[of_level[i]];
      for (std::size_t k = 0; k < tried[i].size(); ++k) {
        Tried& t = tried[i][k];
        out_.certificate.requests += t.requests;
        if (gpus + s.plan.gpus() > q_.most_gpus)
          lasted_.push_back({of_level[i], s.settings[k].index, t.requests});
        if (t.by)
          ++out_.certificate.ruled_out[static_cast<std::size_t>(*t.by)];
        else
          met.push_back(std::move(*t.played));
      }
    }
    std::stable_sort(met.begin(), met.end(),
                     [](const PlayedDeployment& a, const PlayedDeployment& b) { return a.used < b.used; });
    return met;
  }

  // Of plans on as many GPUs as there are those whose plays lasted longest, played whole: what comes closest
  // to its targets.
  void find_nearest() {
    constexpr std::size_t kPlayed = 4;
    std::stable_sort(lasted_.begin(), lasted_.end(),
                     [](const Lasted& a, const Lasted& b) { return a.requests > b.requests; });
    if (lasted_.size() > kPlayed) lasted_.resize(kPlayed);
    std::vector<std::optional<PlayedDeployment>> played(lasted_.size());
    // A plan's service is played by one thread at a time.
    std::map<std::size_t, std::vector<std::size_t>> of_server;
    for (std::size_t i = 0; i < lasted_.size(); ++i) of_server[lasted_[i].server].push_back(i);
    std::vector<std::vector<std::size_t>> work;
    for (auto& [server, indices] : of_server) work.push_back(std::move(indices));
    parallel_for(0, work.size(), threads_, [&](std::size_t w, std::size_t) {
      for (const std::size_t i : work[w]) {
        Server& s = servers_[lasted_[i].server];
        auto answer = s.service->answer(q_.most_gpus / s.plan.gpus(), q_.knobs[lasted_[i].setting], false);
        played[i] = PlayedDeployment{std::move(*answer), 0};
        played[i]->used = used_of(played[i]->answer.load);
      }
    });
    for (auto& d : played) {
      out_.certificate.requests += d->answer.load.answered;
      if (!out_.nearest || d->used < out_.nearest->used) out_.nearest = std::move(*d);
    }
  }

  Server& server_of(const PlayedDeployment& d) {
    return *std::find_if(servers_.begin(), servers_.end(),
                         [&](const Server& s) { return s.plan == d.answer.question.plan; });
  }

  const Study& study_;
  const DeploymentQuestion& q_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  const std::size_t threads_;
  std::vector<Server> servers_;
  std::deque<ServiceQuestion> questions_;
  std::mutex questions_lock_, progress_lock_;
  std::function<void(std::uint64_t, std::uint64_t)> step_;
  std::uint64_t tried_ = 0;
  // Candidates with as many replicas as there are GPUs for, and how long their plays lasted.
  struct Lasted {
    std::size_t server = 0, setting = 0;
    std::uint64_t requests = 0;
  };
  std::vector<Lasted> lasted_;
  DeploymentAnswer out_;
};

}  // namespace

DeploymentAnswer cheapest_deployment(const Study& study, const DeploymentQuestion& question,
                                     const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  return Deployments(study, question, progress).answer();
}

}  // namespace shardline
