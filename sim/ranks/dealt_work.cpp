#include "sim/ranks/dealt_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using namespace std::chrono_literals;

// How long a loop that hears nothing waits until it looks again: the longer, the longer it has heard nothing,
// since to look takes time from jobs. Where no message can come, it only asks whether to stop.
class Pause {
 public:
  explicit Pause(bool alone) : alone_(alone) {}
  void after(bool heard, JobThreads& threads) {
    next_ = heard ? kLeast : std::min(kMost, 2 * next_);
    if (!heard) threads.wait(alone_ ? kAlone : next_);
  }

 private:
  static constexpr std::chrono::microseconds kLeast = 50us, kMost = 2ms, kAlone = 10ms;
  bool alone_;
  std::chrono::microseconds next_ = kLeast;
};

// How often a rank says that it lives while others still wait for it.
constexpr int kAlive = 30;

enum class Says : char { hello = 'h', alive = 'a', job = 'j', result = 'r', failed = 'f', end = 'e' };

// What is said, a number, and bytes.
std::string message(Says what, std::uint64_t number, std::string_view bytes = {}) {
  std::string out(1 + sizeof number, static_cast<char>(what));
  std::memcpy(out.data() + 1, &number, sizeof number);
  return out.append(bytes);
}

struct Said {
  Says what = Says::alive;
  std::uint64_t number = 0;
  std::string_view bytes;
};

Said said_in(const RankMessage& m) {
  Said out;
  SL_CHECK(m.bytes.size() >= 1 + sizeof out.number, "messages have a kind and a number");
  out.what = static_cast<Says>(m.bytes[0]);
  std::memcpy(&out.number, m.bytes.data() + 1, sizeof out.number);
  out.bytes = std::string_view(m.bytes).substr(1 + sizeof out.number);
  return out;
}

}  // namespace

WorkDealer::WorkDealer(Ranks& ranks, std::size_t threads, std::string version, DoJob job)
    : ranks_(ranks),
      version_(std::move(version)),
      threads_(threads, std::move(job)),
      all_(ranks.count()),
      said_(Clock::now()) {
  SL_CHECK(ranks.rank() == 0, "rank 0 deals");
  for (Rank& r : all_) r.heard = said_;
  all_[0].threads = threads_.count();
}

WorkDealer::~WorkDealer() {
  for (std::size_t r = 1; r < all_.size(); ++r) ranks_.send(r, message(Says::end, lost().empty() ? 0 : 1));
}

std::vector<std::size_t> WorkDealer::lost() const {
  std::vector<std::size_t> out;
  for (std::size_t r = 0; r < all_.size(); ++r) {
    if (all_[r].lost) out.push_back(r);
  }
  return out;
}

std::vector<std::uint64_t> WorkDealer::done_by() const {
  std::vector<std::uint64_t> out;
  for (const Rank& r : all_) out.push_back(r.done);
  return out;
}

void WorkDealer::deal(const std::vector<DealtJob>& jobs,
                      const std::function<bool(std::size_t, std::string_view)>& take) {
  jobs_ = &jobs;
  take_ = &take;
  left_ = jobs.size();
  taken_.assign(jobs.size(), false);
  given_.clear();
  nobodys_.clear();
  for (Rank& r : all_) {
    r.doing.clear();
    r.queue.clear();
  }
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const auto keeper = keeper_.find(jobs[j].kept);
    const bool kept = keeper != keeper_.end() && !all_[keeper->second].lost;
    (kept ? all_[keeper->second].queue : nobodys_).push_back(j);
  }
  Pause pause(all_.size() == 1);
  while (left_ > 0) {
    check_cancelled();
    feed();
    bool heard = take_own();
    while (left_ > 0) {
      const auto m = ranks_.receive();
      if (!m) break;
      heard = true;
      hear(*m);
    }
    lose_the_silent();
    pause.after(heard, threads_);
  }
}

// In turn, so that few jobs are not all one rank's.
void WorkDealer::feed() {
  std::size_t threads = 0;
  for (const Rank& r : all_) threads += r.lost ? 0 : r.threads;
  for (bool gave = true; gave;) {
    gave = false;
    for (std::size_t r = 0; r < all_.size(); ++r) {
      // One more for each thread hides the way of a message; near the end it would wait while others are
      // idle.
      const std::size_t ahead = left_ > 4 * threads ? 2 : 1;
      if (all_[r].lost || all_[r].doing.size() >= ahead * all_[r].threads) continue;
      std::deque<std::size_t>* const queue = next_for(r);
      if (queue == nullptr) return;
      const std::size_t job = queue->front();
      queue->pop_front();
      give(r, job);
      gave = true;
    }
  }
}

// Where the next job of a rank waits: the least level first, and of one level what it keeps things for before
// what nobody does before what waits for another. It keeps to its own for kAhead levels more: to make what a
// job needs takes longer than to do it.
std::deque<std::size_t>* WorkDealer::next_for(std::size_t rank) {
  constexpr std::size_t kAhead = 2, kNone = std::numeric_limits<std::size_t>::max();
  const auto level = [&](std::deque<std::size_t>& queue) {
    while (!queue.empty() && taken_[queue.front()]) queue.pop_front();
    return queue.empty() ? kNone : (*jobs_)[queue.front()].level;
  };
  std::deque<std::size_t>* best = &all_[rank].queue;
  const std::size_t own = level(*best);
  std::size_t least = own == kNone ? kNone : own - std::min(own, kAhead);
  const auto offer = [&](std::deque<std::size_t>& queue) {
    const std::size_t of = level(queue);
    if (of >= least) return;
    least = of;
    best = &queue;
  };
  offer(nobodys_);
  for (Rank& other : all_) {
    if (&other != &all_[rank]) offer(other.queue);
  }
  return least == kNone ? nullptr : best;
}

void WorkDealer::give(std::size_t rank, std::size_t job) {
  const std::uint64_t id = next_id_++;
  given_.emplace(id, job);
  all_[rank].doing.emplace(id, job);
  keeper_[(*jobs_)[job].kept] = rank;
  const std::string& bytes = (*jobs_)[job].bytes;
  if (rank == 0)
    threads_.push(id, bytes);
  else
    ranks_.send(rank, message(Says::job, id, bytes));
}

bool WorkDealer::take_own() {
  bool any = false;
  for (const FinishedJob& done : threads_.finished()) {
    any = true;
    const bool asked = given_.contains(done.id);  // and not of a deal that was cancelled
    if (done.fault && asked) std::rethrow_exception(done.fault);
    finish(0, done.id, done.result);
  }
  return any;
}

void WorkDealer::hear(const RankMessage& m) {
  Rank& r = all_.at(m.from);
  r.heard = Clock::now();
  const Said said = said_in(m);
  switch (said.what) {
    case Says::hello:
      if (said.bytes != version_)
        throw UserError(fmt::format(
            "rank {} finds other plans, requests or prices than rank 0 ({}, not {}): all need the same "
            "shardline, the same data and files, and processors that round alike",
            m.from, said.bytes, version_));
      r.threads = said.number;
      break;
    case Says::result:
      finish(m.from, said.number, said.bytes);
      break;
    case Says::failed:
      redo(said.number);
      r.doing.erase(said.number);
      break;
    case Says::alive:
    case Says::job:
    case Says::end:
      break;
  }
}

void WorkDealer::finish(std::size_t rank, std::uint64_t id, std::string_view result) {
  all_[rank].doing.erase(id);
  const auto given = given_.find(id);
  if (given == given_.end() || taken_[given->second]) return;
  taken_[given->second] = true;
  --left_;
  ++all_[rank].done;
  if (!(*take_)(given->second, result)) left_ = 0;
}

// By rank 0: what is thrown is told with all that belongs to it.
void WorkDealer::redo(std::uint64_t id) {
  const auto given = given_.find(id);
  if (given != given_.end() && !taken_[given->second]) give(0, given->second);
}

void WorkDealer::lose_the_silent() {
  const auto now = Clock::now();
  if (now - said_ > ranks_.patience() / kAlive) {
    said_ = now;
    for (std::size_t r = 1; r < all_.size(); ++r) {
      if (!all_[r].lost) ranks_.send(r, message(Says::alive, 0));
    }
  }
  for (std::size_t r = 1; r < all_.size(); ++r) {
    Rank& rank = all_[r];
    if (rank.lost || now - rank.heard < ranks_.patience()) continue;
    rank.lost = true;
    for (const auto& [id, job] : std::exchange(rank.doing, {})) {
      if (!taken_[job]) nobodys_.push_back(job);
    }
    for (const std::size_t job : std::exchange(rank.queue, {})) nobodys_.push_back(job);
    std::sort(nobodys_.begin(), nobodys_.end());
  }
}

bool work_for_rank_0(Ranks& ranks, std::size_t threads, const std::string& version, DoJob job) {
  using Clock = std::chrono::steady_clock;
  JobThreads doing(threads, std::move(job));
  ranks.send(0, message(Says::hello, doing.count(), version));
  auto said = Clock::now(), heard = said;
  Pause pause(false);
  while (true) {
    check_cancelled();
    bool heard_any = false;
    while (const auto m = ranks.receive()) {
      heard_any = true;
      heard = Clock::now();
      const Said what = said_in(*m);
      if (what.what == Says::end) return what.number != 0;
      if (what.what == Says::job) doing.push(what.number, std::string(what.bytes));
    }
    for (const FinishedJob& done : doing.finished()) {
      heard_any = true;
      ranks.send(0, message(done.fault ? Says::failed : Says::result, done.id, done.result));
    }
    const auto now = Clock::now();
    if (now - said > ranks.patience() / kAlive) {
      said = now;
      ranks.send(0, message(Says::alive, 0));
    }
    if (now - heard > 20 * ranks.patience())
      throw UserError(fmt::format("rank 0 has not been heard of for {} s",
                                  std::chrono::duration_cast<std::chrono::seconds>(now - heard).count()));
    pause.after(heard_any, doing);
  }
}

}  // namespace shardline
