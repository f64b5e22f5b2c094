#include "planner/requests/cluster.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

class Cluster {
 public:
  Cluster(const std::vector<std::unique_ptr<Scheduler>>& schedulers,
          const std::vector<const StepTimes*>& times, Router router, const ClusterLoad& load,
          const PlayedEngine::Answered& answered, ServedTimeline* timeline, ReplicaGroups groups)
      : router_(router, times.size()), load_(load), answered_(answered), timeline_(timeline) {
    coming_.resize(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      std::vector<Scheduler*> own;
      for (std::size_t g = 0; g < groups.count; ++g) own.push_back(schedulers[i * groups.count + g].get());
      PlayedEngine::Stepped stepped;
      if (timeline != nullptr) stepped = [timeline, i](const PlayedStep& s) { timeline->add(i, s); };
      engines_.push_back(std::make_unique<PlayedEngine>(
          std::move(own), groups, *times[i], true, [this, i](const AnsweredRequest& a) { leave(i, a); },
          std::move(stepped)));
    }
  }

  ClusterRun run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step) {
    std::uint64_t events = 0;
    for (more_ = requests > 0;;) {
      check_cancelled();  // an event is a stretch of steps of a whole batch, which may take a millisecond
      if (step && events++ % 256 == 0) step(done_);
      const Seconds next = more_ ? load_.arrivals->next_time() : Seconds(kNever);
      // Who is on the way to an engine reaches it a path later; none comes before those sent so far.
      const Seconds until = next + load_.path;
      if (deliver()) continue;
      PlayedEngine* last = nullptr;  // furthest behind
      std::size_t at = 0;
      for (std::size_t i = 0; i < engines_.size(); ++i) {
        PlayedEngine& e = *engines_[i];
        if (e.idle() || e.now() >= until || (last != nullptr && e.now() >= last->now())) continue;
        last = &e;
        at = i;
      }
      if (last != nullptr) {
        last->play(coming_[at].empty() ? until : std::min(until, coming_[at].front().request.arrival));
      } else if (next.value < kNever) {
        send(requests);
      } else {
        break;
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Coming {
    TraceRequest request;
    Arrival arrival;
  };

  // The next one that has reached its engine, if there is one.
  bool deliver() {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      if (coming_[i].empty()) continue;
      PlayedEngine& e = *engines_[i];
      const Coming& c = coming_[i].front();
      if (!e.idle() && c.request.arrival > e.now()) continue;
      if (e.take(c.request, c.arrival.time)) {
        in_[i].emplace(accepted_[i]++, c.arrival);
        router_.took(i, static_cast<double>(c.request.input));
      } else if (load_.closed) {
        // Who is refused comes again, as after an answer.
        load_.arrivals->completed(c.arrival, std::max(e.now(), c.arrival.time));
      }
      coming_[i].erase(coming_[i].begin());
      return true;
    }
    return false;
  }

  void send(std::uint64_t requests) {
    Coming c;
    c.arrival = load_.arrivals->take();
    if (!load_.request(c.request)) {
      more_ = false;
      return;
    }
    c.request.arrival = c.arrival.time + load_.path;
    const std::size_t to = route(c);
    note(c.arrival.time);
    coming_[to].push_back(std::move(c));
    ++out_.sent;
    out_.last_sent = coming_[to].back().arrival.time;
    more_ = out_.sent < requests;
  }

  std::size_t route(const Coming& c) {
    if (load_.closed) return c.arrival.user % engines_.size();
    return router_.route(c.request, c.arrival.time);
  }

  // How many wait when one more comes.
  void note(Seconds now) {
    double waiting = 0;
    for (const auto& e : engines_) waiting += static_cast<double>(e->waiting());
    waits_.push_back({now, waiting});
  }

  void leave(std::size_t replica, const AnsweredRequest& a) {
    ++done_;
    const auto it = in_[replica].find(a.number);
    SL_CHECK(it != in_[replica].end(), "who is answered was sent");
    if (!load_.closed) router_.answers(replica, static_cast<double>(a.prompt), a.last);
    if (load_.closed) load_.arrivals->completed(it->second, a.last);
    in_[replica].erase(it);
    if (answered_) answered_(a);
    if (timeline_ != nullptr) timeline_->add(replica, a);
  }

  void finish() {
    add_waiting(waits_, out_.waiting, out_.begins);
    for (const auto& e : engines_) out_.replicas.push_back(e->take_served());
    if (timeline_ != nullptr) timeline_->finish();
  }

  ReplicaRouter router_;
  const ClusterLoad& load_;
  const PlayedEngine::Answered& answered_;
  ServedTimeline* const timeline_;  // nullptr: nobody looks
  std::vector<std::unique_ptr<PlayedEngine>> engines_;
  std::vector<std::deque<Coming>> coming_;                      // on their way, by replica
  std::map<std::size_t, std::map<std::uint64_t, Arrival>> in_;  // by replica and its number there
  std::map<std::size_t, std::uint64_t> accepted_;
  std::vector<std::pair<Seconds, double>> waits_;
  bool more_ = true;
  std::uint64_t done_ = 0;
  ClusterRun out_;
};

}  // namespace

void add_waiting(const std::vector<std::pair<Seconds, double>>& waits, std::vector<double>& waiting,
                 std::vector<Seconds>& begins) {
  const std::size_t parts = std::min(ClusterRun::kParts, waits.size());
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t first = waits.size() * p / parts, last = waits.size() * (p + 1) / parts;
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += waits[i].second;
    waiting.push_back(sum / static_cast<double>(last - first));
    begins.push_back(waits[first].first);
  }
}

ClusterRun play_cluster(const std::vector<std::unique_ptr<Scheduler>>& schedulers,
                        const std::vector<const StepTimes*>& times, Router router, const ClusterLoad& load,
                        std::uint64_t requests, const PlayedEngine::Answered& answered,
                        const std::function<void(std::uint64_t)>& step, ServedTimeline* timeline,
                        ReplicaGroups groups) {
  SL_CHECK(!times.empty() && schedulers.size() == times.size() * groups.count,
           "each replica has its times, and each of its groups a scheduler");
  return Cluster(schedulers, times, router, load, answered, timeline, groups).run(requests, step);
}

}  // namespace shardline
