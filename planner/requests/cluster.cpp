#include "planner/requests/cluster.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "planner/requests/request_slots.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

class Cluster {
 public:
  Cluster(const std::vector<std::unique_ptr<Scheduler>>& schedulers,
          const std::vector<const StepTimes*>& times, Router router, const ClusterLoad& load,
          const PlayedEngine::Answered& answered, ServedTimeline* timeline, ReplicaGroups groups,
          const ClusterFailures& failures)
      : router_(router, times.size()),
        load_(load),
        answered_(answered),
        timeline_(timeline),
        times_(times),
        groups_(groups),
        failures_(failures) {
    coming_.resize(times.size());
    in_.resize(times.size());
    engines_.resize(times.size());
    renewed_.resize(times.size());
    past_.resize(times.size());
    for (const ReplicaFailure& f : failures.all) {
      SL_CHECK(f.replica < times.size() && f.down < f.up && f.down >= Seconds(0),
               "a replica dies and is back later");
      events_.push_back({f.down, f.replica, false});
      if (f.up.value < kNever) events_.push_back({f.up, f.replica, true});
    }
    // Of equal times who is back first: others' requests may go there.
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.time < b.time || (a.time == b.time && a.up && !b.up);
    });
    for (std::size_t i = 0; i < times.size(); ++i) {
      std::vector<Scheduler*> own;
      for (std::size_t g = 0; g < groups.count; ++g) own.push_back(schedulers[i * groups.count + g].get());
      start(i, std::move(own));
    }
  }

  ClusterRun run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step) {
    std::uint64_t events = 0;
    for (more_ = requests > 0;;) {
      check_cancelled();  // an event is a stretch of steps of a whole batch, which may take a millisecond
      if (step && events++ % 256 == 0) step(done_);
      const Seconds next = more_ ? load_.arrivals->next_time() : Seconds(kNever);
      const Seconds event = next_event_ < events_.size() ? events_[next_event_].time : Seconds(kNever);
      // Who is on the way to an engine reaches it a path later; none comes before those sent so far.
      const Seconds until = std::min(next + load_.path, event);
      if (deliver(event)) continue;
      PlayedEngine* last = nullptr;  // furthest behind
      std::size_t at = 0;
      for (std::size_t i = 0; i < engines_.size(); ++i) {
        PlayedEngine* const e = engines_[i].get();
        if (e == nullptr || e->idle() || e->dead() || e->now() >= until ||
            (last != nullptr && e->now() >= last->now()))
          continue;
        last = e;
        at = i;
      }
      if (last != nullptr) {
        last->play(coming_[at].empty() ? until : std::min(until, coming_[at].front().request.arrival));
      } else if (event <= next && event.value < kNever) {
        if (done_ == out_.sent && !more_) break;  // nobody is there to notice
        happen(events_[next_event_++]);
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
  // Who is in a replica, by the numbers that it gives in turn: memory of the most that were in it at once,
  // and no node of each, which would be freed one by one after a signal.
  class Inside {
   public:
    // `again`: its request may have to be sent again; else only its arrival is of interest.
    void add(const Coming& c, bool again) {
      const NumberedIds::Id id = slots_.add({c.arrival, next_, true});
      ids_.add(next_++, id);
      if (!again) return;
      if (requests_.size() <= id) requests_.resize(id + 1);
      requests_[id] = c.request;  // a copy has no more memory than it needs
    }
    // The one of `number`, who leaves: when it had come.
    Arrival take(std::uint64_t number) {
      const std::optional<NumberedIds::Id> id = ids_.find(number);
      SL_CHECK(id, "who is answered was sent");
      const Arrival out = slots_[*id].arrival;
      if (!requests_.empty()) requests_[*id] = {};
      ids_.erase(number);
      slots_.forget(*id);
      return out;
    }
    // All of them, in the order in which they came; numbers begin anew.
    std::vector<Coming> take_all() {
      std::vector<NumberedIds::Id> there;
      for (NumberedIds::Id id = 0; id < slots_.end(); ++id)
        if (slots_[id].is_there) there.push_back(id);
      std::sort(there.begin(), there.end(),
                [this](NumberedIds::Id a, NumberedIds::Id b) { return slots_[a].number < slots_[b].number; });
      std::vector<Coming> out;
      out.reserve(there.size());
      for (const NumberedIds::Id id : there) out.push_back({std::move(requests_[id]), slots_[id].arrival});
      *this = {};
      return out;
    }

   private:
    struct Slot {
      Arrival arrival;
      std::uint64_t number = 0;
      bool is_there = false;
    };

    std::vector<TraceRequest> requests_;  // by id, of those that may be sent again
    RequestSlots<Slot> slots_;
    NumberedIds ids_;
    std::uint64_t next_ = 0;
  };
  // A replica dies, or is back.
  struct Event {
    Seconds time;
    std::size_t replica = 0;
    bool up = false;
  };

  void start(std::size_t i, std::vector<Scheduler*> schedulers) {
    PlayedEngine::Stepped stepped;
    if (timeline_ != nullptr) stepped = [this, i](const PlayedStep& s) { timeline_->add(i, s); };
    engines_[i] = std::make_unique<PlayedEngine>(
        std::move(schedulers), groups_, *times_[i], true,
        [this, i](const AnsweredRequest& a) { leave(i, a); }, std::move(stepped));
    const auto dies = std::find_if(events_.begin() + static_cast<std::ptrdiff_t>(next_event_), events_.end(),
                                   [i](const Event& e) { return e.replica == i && !e.up; });
    if (dies != events_.end()) engines_[i]->die_at(dies->time);
  }

  void happen(const Event& e) {
    if (e.up) {
      std::vector<Scheduler*> own;
      renewed_[e.replica].clear();
      for (std::size_t g = 0; g < groups_.count; ++g) {
        renewed_[e.replica].push_back(failures_.scheduler());
        own.push_back(renewed_[e.replica].back().get());
      }
      start(e.replica, std::move(own));
      engines_[e.replica]->wake(e.time);
      router_.up(e.replica);
      for (Coming& c : std::exchange(homeless_, {})) send_again(std::move(c), e.time);
      return;
    }
    std::vector<Coming> lost = in_[e.replica].take_all();  // in the order in which they were sent
    for (Coming& c : coming_[e.replica]) lost.push_back(std::move(c));
    coming_[e.replica].clear();
    merge(past_[e.replica], engines_[e.replica]->take_served());
    engines_[e.replica].reset();
    router_.down(e.replica);
    out_.retried += lost.size();
    for (Coming& c : lost) send_again(std::move(c), e.time);
  }

  // By the router, which knows that the replica is gone as soon as it is; the way from a user is not gone
  // again.
  void send_again(Coming c, Seconds now) {
    c.request.arrival = now;
    give(std::move(c), now);
  }

  void give(Coming c, Seconds now) {
    if (!router_.any_up()) {
      homeless_.push_back(std::move(c));
      return;
    }
    std::deque<Coming>& to = coming_[route(c, now)];
    const auto place = std::upper_bound(to.begin(), to.end(), c, [](const Coming& a, const Coming& b) {
      return a.request.arrival < b.request.arrival;
    });
    to.insert(place, std::move(c));
  }

  // The next one that has reached its engine before `event`, if there is one: engines are ahead of that, and
  // who loses a replica then comes before those that are still on their way.
  bool deliver(Seconds event) {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      if (coming_[i].empty()) continue;
      PlayedEngine& e = *engines_[i];
      Coming& c = coming_[i].front();
      if (e.dead() || c.request.arrival > event || (!e.idle() && c.request.arrival > e.now())) continue;
      if (e.take(c.request, c.arrival.time)) {
        router_.took(i, static_cast<double>(c.request.input));
        in_[i].add(c, !failures_.all.empty());
      } else if (load_.closed) {
        // Who is refused comes again, as after an answer.
        load_.arrivals->completed(c.arrival, std::max(e.now(), c.arrival.time));
      }
      coming_[i].pop_front();
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
    const Seconds sent = c.arrival.time;
    c.request.arrival = sent + load_.path;
    c.request.number = out_.sent;
    note(sent);
    give(std::move(c), sent);
    ++out_.sent;
    out_.last_sent = sent;
    more_ = out_.sent < requests;
  }

  // A replica that is up. Users of a closed loop keep to theirs as long as it is.
  std::size_t route(const Coming& c, Seconds now) {
    if (!load_.closed) return router_.route(c.request, now);
    std::size_t out = c.arrival.user % engines_.size();
    while (!router_.is_up(out)) out = (out + 1) % engines_.size();
    return out;
  }

  // How many wait when one more comes.
  void note(Seconds now) {
    double waiting = 0;
    for (const auto& e : engines_) waiting += e ? static_cast<double>(e->waiting()) : 0;
    waiting += static_cast<double>(homeless_.size());
    grow_asking(waits_, 1);
    waits_.push_back({now, waiting});
  }

  void leave(std::size_t replica, const AnsweredRequest& a) {
    ++done_;
    const Arrival came = in_[replica].take(a.number);
    if (!load_.closed) router_.answers(replica, static_cast<double>(a.prompt), a.last);
    if (load_.closed) load_.arrivals->completed(came, a.last);
    if (answered_) answered_(a);
    if (timeline_ != nullptr) timeline_->add(replica, a);
  }

  void finish() {
    add_waiting(waits_, out_.waiting, out_.begins);
    Seconds end;
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      if (engines_[i]) merge(past_[i], engines_[i]->take_served());
      end = std::max(end, past_[i].end);
      out_.replicas.push_back(std::move(past_[i]));
    }
    out_.unserved = homeless_.size();
    for (const ReplicaFailure& f : failures_.all)
      out_.down += std::max(Seconds(0), std::min(f.up, end) - std::min(f.down, end));
    if (timeline_ != nullptr) timeline_->finish();
  }

  ReplicaRouter router_;
  const ClusterLoad& load_;
  const PlayedEngine::Answered& answered_;
  ServedTimeline* const timeline_;  // nullptr: nobody looks
  const std::vector<const StepTimes*>& times_;
  const ReplicaGroups groups_;
  const ClusterFailures& failures_;
  std::vector<Event> events_;
  std::size_t next_event_ = 0;
  std::vector<std::vector<std::unique_ptr<Scheduler>>> renewed_;  // of replicas that are back
  std::vector<std::unique_ptr<PlayedEngine>> engines_;            // nullptr: down
  std::vector<ServedRequests> past_;                              // what replicas served before they died
  std::vector<std::deque<Coming>> coming_;                        // on their way, by replica
  std::vector<Inside> in_;                                        // by replica
  std::vector<Coming> homeless_;                                  // while all are down
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
                        ReplicaGroups groups, const ClusterFailures& failures) {
  SL_CHECK(!times.empty() && schedulers.size() == times.size() * groups.count,
           "each replica has its times, and each of its groups a scheduler");
  return Cluster(schedulers, times, router, load, answered, timeline, groups, failures).run(requests, step);
}

}  // namespace shardline
