#include "planner/studies/deployment.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include "planner/studies/deployment_jobs.hpp"
#include "planner/studies/study_memory.hpp"
#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"
#include "sim/ranks/dealt_work.hpp"

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

class Deployments {
 public:
  Deployments(const Study& study, const DeploymentQuestion& question,
              const std::function<void(std::uint64_t, std::uint64_t)>& progress, Ranks* ranks)
      : q_(question),
        progress_(progress),
        jobs_(study, question),
        alone_(ranks == nullptr ? alone_rank() : nullptr),
        ranks_(alone_ ? *alone_ : *ranks),
        settings_(jobs_.plans().size()) {
    SL_CHECK(q_.load.users == 0 && !q_.load.targets.empty() && (q_.load.rate > 0 || !q_.load.trace.empty()),
             "an open loop with targets");
    const std::size_t threads = threads_of_rank(q_.threads, ranks_);
    require_memory(need(q_, jobs_.plans(), threads, ranks_));
    dealer_.emplace(ranks_, threads, alone_ ? "" : jobs_.digest(),
                    [this](std::string_view job) { return jobs_.done(job); });
  }

  // The part of another rank.
  static bool work(const Study& study, const DeploymentQuestion& question, Ranks& ranks) {
    DeploymentJobs jobs(study, question);
    const std::size_t threads = threads_of_rank(question.threads, ranks);
    require_memory(need(question, jobs.plans(), threads, ranks));
    return work_for_rank_0(ranks, threads, jobs.digest(),
                           [&](std::string_view job) { return jobs.done(job); });
  }

  DeploymentAnswer answer() {
    out_.not_played = jobs_.take_not_played();
    find_settings();
    list_candidates();
    play_candidates();
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      std::vector<PlayedDeployment> met = look_at(l);
      if (met.empty() || (q_.exhaustive && !out_.cheapest.empty())) continue;
      out_.cheapest = std::move(met);
      out_.certificate.met = out_.cheapest.size();
      out_.certificate.beside = levels_[l].end - levels_[l].begin - out_.cheapest.size();
      if (!q_.exhaustive) break;
    }
    out_.certificate.dearer = out_.certificate.candidates - looked_at_;
    if (out_.cheapest.empty()) find_nearest();
    out_.lost_ranks = dealer_->lost();
    dealer_.reset();  // the others have nothing more to do
    for (PlayedDeployment& d : out_.cheapest) jobs_.look_at_prices(server_of(d), d);
    if (out_.nearest) jobs_.look_at_prices(server_of(*out_.nearest), *out_.nearest);
    return std::move(out_);
  }

 private:
  // Of as many cores as there are, each rank of a machine has a part, unless it was bound to some of them.
  static std::size_t threads_of_rank(int asked, const Ranks& ranks) {
    if (asked > 0 || ranks.count() == 1) return thread_count(asked);
    const std::size_t all = thread_count(0), bound = bound_cores();
    return bound < all ? bound : std::max<std::size_t>(1, all / ranks.on_machine());
  }

  // Plays on all threads, on as many replicas of the smallest plan as there are GPUs for; of each plan its
  // tables of step times and the lengths of all requests, which its bounds keep; once more where a plan is
  // played twice at once. Each rank of a machine may need it.
  static MemoryNeed need(const DeploymentQuestion& q, const std::vector<Plan>& plans, std::size_t threads,
                         const Ranks& ranks) {
    constexpr double kTables = 6e6, kLengths = 3 * sizeof(std::int64_t);
    const std::uint64_t requests = std::max<std::uint64_t>(q.load.requests, 2000);
    int smallest = q.most_gpus;
    for (const Plan& plan : plans) smallest = std::min(smallest, plan.gpus());
    const int replicas = q.most_gpus / smallest;
    MemoryNeed out = need_of_requests(requests, 0, replicas, 0);
    const Bytes one = out.bytes, none = need_of_requests(0, 0, replicas, 0).bytes;
    out.bytes = none + (one - none) * static_cast<double>(threads) +
                Bytes((kTables + kLengths * static_cast<double>(requests * q.knobs.size())) *
                      static_cast<double>(plans.size() + threads));
    out.bytes = out.bytes * static_cast<double>(ranks.on_machine());
    return out;
  }

  // A plan that has none of the settings is none; one that no plan has is an error, as it says nothing.
  void find_settings() {
    std::vector<DealtJob> jobs;
    for (std::size_t i = 0; i < settings_.size(); ++i)
      jobs.push_back({DeploymentJobs::bytes_of({DeploymentJob::What::settings, i, 0, 0}), i, 0});
    dealer_->deal(jobs, [this](std::size_t i, std::string_view result) {
      settings_[i] = DeploymentJobs::settings_in(result);
      return true;
    });
    std::vector<bool> taken(q_.knobs.size());
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      for (const std::size_t k : settings_[i]) taken[k] = true;
      out_.certificate.plans += settings_[i].empty() ? 0 : 1;
    }
    for (std::size_t k = 0; k < q_.knobs.size(); ++k) {
      if (!taken[k]) out_.knobs_refused.push_back(q_.knobs[k]);
    }
    if (out_.knobs_refused.size() == q_.knobs.size()) jobs_.refuse_setting(0, 0);
  }

  // By GPUs ascending, and of as many in the order of plans and settings.
  void list_candidates() {
    std::set<int> gpus_of_levels;
    for (const Plan& plan : jobs_.plans()) {
      for (int gpus = plan.gpus(); gpus <= q_.most_gpus; gpus += plan.gpus()) gpus_of_levels.insert(gpus);
    }
    for (const int gpus : gpus_of_levels) {
      levels_.push_back({candidates_.size(), candidates_.size()});
      for (std::size_t i = 0; i < settings_.size(); ++i) {
        if (gpus % jobs_.plans()[i].gpus() != 0) continue;
        for (const std::size_t k : settings_[i])
          candidates_.push_back({DeploymentJob::What::candidate, i, gpus, k});
      }
      levels_.back().end = candidates_.size();
    }
    out_.certificate.candidates = candidates_.size();
    tried_.resize(candidates_.size());
  }

  // Level by level; who is free begins with the next, and what was begun too early is forgotten.
  void play_candidates() {
    std::vector<DealtJob> jobs;
    std::vector<std::size_t> left;  // of each level
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      left.push_back(levels_[l].end - levels_[l].begin);
      for (std::size_t i = levels_[l].begin; i < levels_[l].end; ++i)
        jobs.push_back({DeploymentJobs::bytes_of(candidates_[i]), candidates_[i].server, l});
    }
    std::vector<bool> met(levels_.size());
    std::size_t first = 0;  // level that is not whole
    std::uint64_t done = 0;
    dealer_->deal(jobs, [&](std::size_t i, std::string_view result) {
      tried_[i] = DeploymentJobs::tried_in(result);
      progress_(++done, candidates_.size());
      const std::size_t level = jobs[i].level;
      --left[level];
      if (!tried_[i].by) met[level] = true;
      for (; first < left.size() && left[first] == 0; ++first) {
        if (met[first] && !q_.exhaustive) return false;
      }
      return true;
    });
  }

  // All candidates on as many GPUs; those that meet, with what has most room first.
  std::vector<PlayedDeployment> look_at(std::size_t level) {
    std::vector<PlayedDeployment> met;
    for (std::size_t i = levels_[level].begin; i < levels_[level].end; ++i, ++looked_at_) {
      const DeploymentJob& c = candidates_[i];
      TriedDeployment& t = tried_[i];
      out_.certificate.requests += t.requests;
      if (c.gpus + jobs_.plans()[c.server].gpus() > q_.most_gpus) lasted_.push_back(i);
      if (t.by)
        ++out_.certificate.ruled_out[static_cast<std::size_t>(*t.by)];
      else
        met.push_back(jobs_.told(c.server, c.gpus, c.setting, std::move(*t.played)));
    }
    std::stable_sort(met.begin(), met.end(),
                     [](const PlayedDeployment& a, const PlayedDeployment& b) { return a.used < b.used; });
    return met;
  }

  // Of plans on as many GPUs as there are those whose plays lasted longest, played whole: what comes closest
  // to its targets.
  void find_nearest() {
    constexpr std::size_t kPlayed = 4;
    std::stable_sort(lasted_.begin(), lasted_.end(), [this](std::size_t a, std::size_t b) {
      return tried_[a].requests > tried_[b].requests;
    });
    if (lasted_.size() > kPlayed) lasted_.resize(kPlayed);
    std::vector<DealtJob> jobs;
    for (const std::size_t i : lasted_) {
      DeploymentJob job = candidates_[i];
      job.what = DeploymentJob::What::whole;
      job.gpus = q_.most_gpus;
      jobs.push_back({DeploymentJobs::bytes_of(job), job.server, 0});
    }
    std::vector<TriedDeployment> played(jobs.size());
    dealer_->deal(jobs, [&](std::size_t i, std::string_view result) {
      played[i] = DeploymentJobs::tried_in(result);
      return true;
    });
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const DeploymentJob& c = candidates_[lasted_[i]];
      PlayedDeployment d = jobs_.told(c.server, q_.most_gpus, c.setting, std::move(*played[i].played));
      out_.certificate.requests += d.answer.load.answered;
      if (!out_.nearest || d.used < out_.nearest->used) out_.nearest = std::move(d);
    }
  }

  std::size_t server_of(const PlayedDeployment& d) const {
    const auto& plans = jobs_.plans();
    return static_cast<std::size_t>(std::find(plans.begin(), plans.end(), d.answer.question.plan) -
                                    plans.begin());
  }

  const DeploymentQuestion& q_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  DeploymentJobs jobs_;
  const std::unique_ptr<Ranks> alone_;
  Ranks& ranks_;
  std::optional<WorkDealer> dealer_;                // until all is played
  std::vector<std::vector<std::size_t>> settings_;  // that each plan has
  std::vector<DeploymentJob> candidates_;
  std::vector<TriedDeployment> tried_;  // what came of each
  struct Level {
    std::size_t begin = 0, end = 0;  // of the candidates on as many GPUs
  };
  std::vector<Level> levels_;
  std::uint64_t looked_at_ = 0;
  std::vector<std::size_t> lasted_;  // candidates with as many replicas as there are GPUs for
  DeploymentAnswer out_;
};

}  // namespace

DeploymentAnswer cheapest_deployment(const Study& study, const DeploymentQuestion& question,
                                     const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                     Ranks* ranks) {
  return Deployments(study, question, progress, ranks).answer();
}

bool work_on_deployment(const Study& study, const DeploymentQuestion& question, Ranks& ranks) {
  return Deployments::work(study, question, ranks);
}

}  // namespace shardline
