#include "planner/studies/deployment.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>

#include "planner/studies/deployment_jobs.hpp"
#include "planner/studies/study_memory.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"
#include "sim/ranks/dealt_work.hpp"

namespace shardline {

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
        settings_(jobs_.servers().size()) {
    SL_CHECK(q_.load.users == 0 && !q_.load.targets.empty() && (q_.load.rate > 0 || !q_.load.trace.empty()),
             "an open loop with targets");
    const std::size_t threads = threads_of_rank(q_.threads, ranks_);
    require_memory(need(q_, jobs_, threads, ranks_));
    dealer_.emplace(ranks_, threads, alone_ ? "" : jobs_.digest(),
                    [this](std::string_view job) { return jobs_.done(job); });
  }

  // The part of another rank.
  static bool work(const Study& study, const DeploymentQuestion& question, Ranks& ranks) {
    DeploymentJobs jobs(study, question);
    const std::size_t threads = threads_of_rank(question.threads, ranks);
    require_memory(need(question, jobs, threads, ranks));
    return work_for_rank_0(ranks, threads, jobs.digest(),
                           [&](std::string_view job) { return jobs.done(job); });
  }

  DeploymentAnswer answer() {
    out_.not_played = jobs_.take_not_played();
    find_settings();
    // First one pool, then pairs on as many GPUs at most: a level that meets makes all behind it dearer.
    if (q_.pools != PoolsAsked::two) look_for(one_pool());
    if (q_.pools != PoolsAsked::one) look_for(pairs());
    if (q_.pools == PoolsAsked::two && out_.certificate.pairs == 0)
      throw UserError("no pair of pools whose requests can be played: " + out_.no_pairs);
    certify();
    if (out_.cheapest.empty()) find_nearest();
    out_.lost_ranks = dealer_->lost();
    dealer_.reset();  // the others have nothing more to do
    for (PlayedDeployment& d : out_.cheapest) jobs_.look_at_prices(server_of(d), d);
    if (out_.nearest) jobs_.look_at_prices(server_of(*out_.nearest), *out_.nearest);
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kPlayed = 4;  // of none that meets, those that may come closest

  // Of as many cores as there are, each rank of a machine has a part, unless it was bound to some of them.
  static std::size_t threads_of_rank(int asked, const Ranks& ranks) {
    if (asked > 0 || ranks.count() == 1) return thread_count(asked);
    const std::size_t all = thread_count(0), bound = bound_cores();
    return bound < all ? bound : std::max<std::size_t>(1, all / ranks.on_machine());
  }

  // Plays on all threads, on as many replicas of the smallest plan as there are GPUs for; of each plan its
  // tables of step times and the lengths of all requests, which its bounds keep; once more where a plan is
  // played twice at once. Each rank of a machine may need it.
  static MemoryNeed need(const DeploymentQuestion& q, const DeploymentJobs& jobs, std::size_t threads,
                         const Ranks& ranks) {
    constexpr double kTables = 6e6, kLengths = 3 * sizeof(std::int64_t);
    const std::vector<DeploymentServer>& servers = jobs.servers();
    const std::uint64_t requests = jobs.requests();
    int smallest = q.most_gpus;
    for (const DeploymentServer& s : servers) smallest = std::min(smallest, s.plan.gpus());
    const int replicas = q.most_gpus / smallest;
    PlayedRequests played = jobs.played();
    played.replicas = replicas;
    MemoryNeed out = need_of_requests(played);
    const Bytes one = out.bytes, none = need_of_requests({}).bytes;
    out.bytes = none + (one - none) * static_cast<double>(threads) +
                Bytes((kTables + kLengths * static_cast<double>(requests * q.knobs.size())) *
                      static_cast<double>(servers.size() + threads));
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
      for (const BoundedSetting& of : settings_[i]) taken[of.setting] = true;
      out_.certificate.plans += settings_[i].empty() || !alone(i) ? 0 : 1;
    }
    for (std::size_t k = 0; k < q_.knobs.size(); ++k) {
      if (!taken[k]) out_.knobs_refused.push_back(q_.knobs[k]);
    }
    if (out_.knobs_refused.size() == q_.knobs.size()) jobs_.refuse_setting(0, 0);
  }

  // Candidates of one kind, by GPUs ascending, and of as many in the order of plans and settings.
  struct Level {
    std::size_t begin = 0, end = 0;                    // of the candidates on as many GPUs
    std::array<std::uint64_t, kRuledOut> by_bounds{};  // of those that are not even listed
  };
  struct Candidates {
    std::vector<DeploymentJob> list;
    std::map<int, Level> levels;         // by GPUs
    std::vector<TriedDeployment> tried;  // what came of each
  };

  Candidates one_pool() {
    Candidates out;
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      const int step = jobs_.servers()[i].plan.gpus();
      for (int gpus = step; alone(i) && gpus <= q_.most_gpus; gpus += step) out.levels[gpus];
    }
    for (auto& [gpus, level] : out.levels) {
      level.begin = out.list.size();
      for (std::size_t i = 0; i < settings_.size(); ++i) {
        if (!alone(i) || gpus % jobs_.servers()[i].plan.gpus() != 0) continue;
        for (const BoundedSetting& of : settings_[i])
          out.list.push_back({DeploymentJob::What::candidate, i, gpus, of.setting});
      }
      level.end = out.list.size();
    }
    out_.certificate.candidates += out.list.size();
    return out;
  }

  // A plan for prompts and one for answers under one setting of knobs, in all numbers of replicas on at most
  // as many GPUs as are of interest. What either half cannot do is counted and not listed.
  struct PairOfPlans {
    std::size_t prefill = 0, decode = 0;
    const BoundedSetting *prompts = nullptr, *answers = nullptr;
  };

  Candidates pairs() {
    Candidates out;
    const std::vector<PairOfPlans> plans = pairs_of_plans();
    // More than the answer so far are not looked at, but counted.
    const int most = q_.exhaustive || out_.cheapest.empty() ? q_.most_gpus : out_.cheapest.front().gpus();
    std::map<int, std::vector<DeploymentJob>> jobs;
    for (const PairOfPlans& p : plans) {
      check_cancelled();
      for_replicas(p, q_.most_gpus, [&](int gpus, int prefill, int decode) {
        ++out_.certificate.candidates;
        if (gpus > most) return;
        const DeploymentJob job{
            DeploymentJob::What::candidate, p.decode, gpus, p.answers->setting, prefill, p.prefill};
        const auto by = bound_of(p, prefill, decode);
        if (!by) {
          jobs[gpus].push_back(job);
          return;
        }
        ++out.levels[gpus].by_bounds[static_cast<std::size_t>(*by)];
        if (fills(job) && lasted_.size() < kPlayed) lasted_.emplace_back(job, 0);
      });
    }
    for (auto& [gpus, list] : jobs) {
      Level& level = out.levels[gpus];
      level.begin = out.list.size();
      out.list.insert(out.list.end(), list.begin(), list.end());
      level.end = out.list.size();
    }
    return out;
  }

  // That does both by itself.
  bool alone(std::size_t server) const { return jobs_.servers()[server].of == ServerOf::both; }

  // Servers of pairs; where the engine has none, those of which it says why.
  bool halves(std::size_t prefill, std::size_t decode) const {
    const DeploymentServer &from = jobs_.servers()[prefill], &to = jobs_.servers()[decode];
    if (jobs_.none_in_pairs()) return true;
    return from.in_pairs && to.in_pairs && to.of != ServerOf::prompts;
  }

  std::vector<PairOfPlans> pairs_of_plans() {
    std::vector<PairOfPlans> out;
    for (std::size_t d = 0; d < settings_.size(); ++d) {
      for (std::size_t p = 0; p < settings_.size(); ++p) {
        if (settings_[p].empty() || settings_[d].empty() || !halves(p, d)) continue;
        if (const auto why = jobs_.no_pair_of(p, d)) {
          if (out_.no_pairs.empty()) out_.no_pairs = *why;
          continue;
        }
        ++out_.certificate.pairs;
        for (const BoundedSetting& answers : settings_[d]) {
          const auto same = [&](const BoundedSetting& of) {
            return of.setting == answers.setting && of.block == answers.block;
          };
          const auto prompts = std::find_if(settings_[p].begin(), settings_[p].end(), same);
          if (prompts != settings_[p].end()) out.push_back({p, d, &*prompts, &answers});
        }
      }
    }
    if (out_.certificate.pairs > 0) out_.no_pairs.clear();
    return out;
  }

  template <class F>
  void for_replicas(const PairOfPlans& p, int most, F f) const {
    const int prefill_gpus = jobs_.servers()[p.prefill].plan.gpus();
    const int decode_gpus = jobs_.servers()[p.decode].plan.gpus();
    for (int a = 1; a * prefill_gpus < most; ++a) {
      for (int b = 1; a * prefill_gpus + b * decode_gpus <= most; ++b)
        f(a * prefill_gpus + b * decode_gpus, a, b);
    }
  }

  std::optional<RuledOut> bound_of(const PairOfPlans& p, int prefill, int decode) const {
    if (q_.exhaustive) return std::nullopt;
    const auto half = [](const std::optional<RuledOut>& none, int least, int replicas, RuledOut work) {
      if (none == RuledOut::ttft || none == RuledOut::tpot) return none;
      return none || replicas < least ? std::optional(work) : std::nullopt;
    };
    if (const auto by = half(p.prompts->no_prompts, p.prompts->prompts, prefill, RuledOut::prompts))
      return by;
    return half(p.answers->no_answers, p.answers->answers, decode, RuledOut::answers);
  }

  // All that meet on the fewest GPUs, beside what was found before on as many.
  void look_for(Candidates c) {
    play(c);
    for (const auto& [gpus, level] : c.levels) {
      if (!q_.exhaustive && !out_.cheapest.empty() && gpus > out_.cheapest.front().gpus()) break;
      std::vector<PlayedDeployment> met = look_at(c, gpus, level);
      if (met.empty() || (!out_.cheapest.empty() && gpus > out_.cheapest.front().gpus())) continue;
      if (!out_.cheapest.empty() && gpus < out_.cheapest.front().gpus()) out_.cheapest.clear();
      std::move(met.begin(), met.end(), std::back_inserter(out_.cheapest));
      std::stable_sort(out_.cheapest.begin(), out_.cheapest.end(),
                       [](const PlayedDeployment& a, const PlayedDeployment& b) { return a.used < b.used; });
    }
  }

  // Of levels up to the answer's: what was looked at on more GPUs before the answer was known is dearer.
  void certify() {
    DeploymentCertificate& c = out_.certificate;
    std::uint64_t counted = 0;
    for (const auto& [gpus, by] : ruled_out_) {
      if (!out_.cheapest.empty() && gpus > out_.cheapest.front().gpus()) continue;
      const std::uint64_t misses = std::accumulate(by.begin(), by.end(), std::uint64_t{0});
      counted += misses;
      for (std::size_t r = 0; r < kRuledOut; ++r) c.ruled_out[r] += by[r];
      if (!out_.cheapest.empty() && gpus == out_.cheapest.front().gpus()) c.beside = misses;
    }
    c.met = out_.cheapest.size();
    c.dearer = c.candidates - counted - c.met;
  }

  // Level by level; who is free begins with the next, and what was begun too early is forgotten.
  void play(Candidates& c) {
    c.tried.resize(c.list.size());
    std::vector<DealtJob> jobs;
    std::vector<std::size_t> left;  // of each level
    for (const auto& [gpus, level] : c.levels) {
      const auto bounded = std::accumulate(level.by_bounds.begin(), level.by_bounds.end(), std::uint64_t{0});
      done_ += bounded;
      listed_ += bounded;
      for (std::size_t i = level.begin; i < level.end; ++i)
        jobs.push_back({DeploymentJobs::bytes_of(c.list[i]), c.list[i].server, left.size()});
      left.push_back(level.end - level.begin);
    }
    if (jobs.empty()) return;
    std::vector<bool> met(left.size());
    std::size_t first = 0;  // level that is not whole
    for (; first < left.size() && left[first] == 0; ++first) {
    }
    listed_ += jobs.size();
    dealer_->deal(jobs, [&](std::size_t i, std::string_view result) {
      c.tried[i] = DeploymentJobs::tried_in(result);
      progress_(++done_, listed_);
      const std::size_t level = jobs[i].level;
      --left[level];
      if (!c.tried[i].by) met[level] = true;
      for (; first < left.size() && left[first] == 0; ++first) {
        if (met[first] && !q_.exhaustive) return false;
      }
      return true;
    });
  }

  // All candidates on as many GPUs; those that meet.
  std::vector<PlayedDeployment> look_at(Candidates& c, int gpus, const Level& level) {
    std::vector<PlayedDeployment> met;
    auto& by = ruled_out_[gpus];
    for (std::size_t r = 0; r < kRuledOut; ++r) by[r] += level.by_bounds[r];
    for (std::size_t i = level.begin; i < level.end; ++i) {
      const DeploymentJob& job = c.list[i];
      TriedDeployment& t = c.tried[i];
      out_.certificate.requests += t.requests;
      if (fills(job)) lasted_.emplace_back(job, t.requests);
      if (t.by)
        ++by[static_cast<std::size_t>(*t.by)];
      else
        met.push_back(jobs_.told(job, std::move(*t.played)));
    }
    return met;
  }

  // No other replica of its plans fits.
  bool fills(const DeploymentJob& job) const {
    int smallest = jobs_.servers()[job.server].plan.gpus();
    if (job.prefill_replicas > 0) smallest = std::min(smallest, jobs_.servers()[job.prefill].plan.gpus());
    return job.gpus + smallest > q_.most_gpus;
  }

  // Of plans on as many GPUs as there are those whose plays lasted longest, played whole: what comes closest
  // to its targets.
  void find_nearest() {
    std::stable_sort(lasted_.begin(), lasted_.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (lasted_.size() > kPlayed) lasted_.resize(kPlayed);
    std::vector<DealtJob> jobs;
    for (auto& [job, requests] : lasted_) {
      job.what = DeploymentJob::What::whole;
      if (job.prefill_replicas == 0) job.gpus = q_.most_gpus;
      jobs.push_back({DeploymentJobs::bytes_of(job), job.server, 0});
    }
    std::vector<TriedDeployment> played(jobs.size());
    dealer_->deal(jobs, [&](std::size_t i, std::string_view result) {
      played[i] = DeploymentJobs::tried_in(result);
      return true;
    });
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!played[i].played) continue;  // an engine of a pair stopped
      PlayedDeployment d = jobs_.told(lasted_[i].first, std::move(*played[i].played));
      out_.certificate.requests += d.answer.load.answered;
      if (!out_.nearest || d.used < out_.nearest->used) out_.nearest = std::move(d);
    }
  }

  std::size_t server_of(const PlayedDeployment& d) const {
    const ServiceQuestion& q = d.answer.question;
    const auto& servers = jobs_.servers();
    const auto at = std::find_if(servers.begin(), servers.end(), [&](const DeploymentServer& s) {
      return s.plan == q.plan &&
             (q.prefill ? s.in_pairs && s.of != ServerOf::prompts : s.of == ServerOf::both);
    });
    SL_CHECK(at != servers.end(), "a server that was played");
    return static_cast<std::size_t>(at - servers.begin());
  }

  const DeploymentQuestion& q_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  DeploymentJobs jobs_;
  const std::unique_ptr<Ranks> alone_;
  Ranks& ranks_;
  std::optional<WorkDealer> dealer_;                   // until all is played
  std::vector<std::vector<BoundedSetting>> settings_;  // that each plan has
  std::uint64_t done_ = 0, listed_ = 0;
  std::map<int, std::array<std::uint64_t, kRuledOut>> ruled_out_;  // by GPUs, of those that were looked at
  std::vector<std::pair<DeploymentJob, std::uint64_t>> lasted_;    // that fill the GPUs; requests answered
  DeploymentAnswer out_;
};

}  // namespace

DeploymentAnswer cheapest_deployment(const Study& study, const DeploymentQuestion& question,
                                     const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                     Ranks* ranks) {
  DeploymentAnswer out = Deployments(study, question, progress, ranks).answer();
  if (!out.cheapest.empty() && question.load.trace.empty())
    out.others = draw_again(study, out.cheapest.front().answer.question);
  return out;
}

bool work_on_deployment(const Study& study, const DeploymentQuestion& question, Ranks& ranks) {
  return Deployments::work(study, question, ranks);
}

}  // namespace shardline
