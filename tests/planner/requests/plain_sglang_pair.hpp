// SGLang's pairs of pools [R14] played the slow and plain way: event loops that go round, one clock; and
// servers that die and are back [R15].
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "tests/planner/requests/plain_links.hpp"
#include "tests/planner/requests/plain_sglang.hpp"
#include "tests/planner/requests/plain_sglang_decode.hpp"
#include "tests/planner/requests/plain_steps.hpp"

namespace shardline {

struct SglangPairCase {
  SglangKnobs prefill, decode;
  TransferRates links;
  std::size_t senders = 1, receivers = 1;
  ReplicaGroups prefill_groups{}, decode_groups{};  // by_room; in_turn
  DraftLaw law{};
  Seconds path{0.002};
  std::vector<TraceRequest> requests;
  std::vector<ReplicaFailure> failures = {};
};

struct SglangPlainAnswer {
  double came = 0, room = -1, prefilled = -1, there = -1, first = -1, last = 0;
  bool whole = false;  // it is answered
};

class PlainSglangPair {
 public:
  PlainSglangPair(const SglangPairCase& c, const StepTimes& times)
      : c_(c),
        times_(times),
        links_(c.links, c.senders * c.prefill_groups.count,
               c.senders * c.prefill_groups.count + c.receivers * c.decode_groups.count) {
    servers_.resize(c.senders + c.receivers);
    for (std::size_t i = 0; i < servers_.size(); ++i) start(i, 0);
    for (const ReplicaFailure& f : c.failures) {
      const std::size_t server = f.replica + (f.pool == ReplicaPool::decode ? c.senders : 0);
      changes_.push_back({f.down.value, server, false});
      if (f.up.value < kNever) changes_.push_back({f.up.value, server, true});
    }
    for (const TraceRequest& t : c.requests) answers.push_back({t.arrival.value});
  }

  void play() {
    for (double t = next(); t < kNever; t = next()) {
      now_ = t;
      for (const PlainFlow& f : links_.go_on(t)) end(f);
      for (; sent_ < answers.size() && answers[sent_].came <= t; ++sent_) send_request(sent_, at(sent_));
      arrive();
      for (std::size_t i = 0; i < servers_.size(); ++i)
        if (waits(i) && servers_[i].launched.front().end <= t) process(i);
      change();
      give_up();
      arrive();
      // Servers that decode first: they tell those that prefill of room.
      for (std::size_t i = servers_.size(); i-- > 0;)
        if (servers_[i].up && !servers_[i].waits) go_round(i);
    }
  }
  std::uint64_t retractions() const {
    std::uint64_t out = 0;
    for (const Server& s : servers_)
      for (const auto& d : s.decode) out += d->retractions;
    return out;
  }
  std::size_t unserved() const { return homeless_.size(); }
  std::size_t most_parts = 0, most_flows = 0, retried = 0, cut = 0, given_up = 0;
  std::vector<SglangPlainAnswer> answers;

 private:
  static constexpr double kNever = TransferLinks::kNever;
  // What all groups of a server launch together: they meet in every iteration.
  struct Launched {
    std::vector<std::optional<PlainBatch>> groups;
    double end = 0;
  };
  // Batches whose results are to come; whether the loop waits for the first one's. Else it goes round all the
  // time. By group.
  struct Server {
    Server() = default;
    Server(Server&&) = default;
    Server& operator=(Server&&) = default;
    std::vector<std::unique_ptr<PlainPrefill>> prefill;
    std::vector<std::unique_ptr<PlainDecode>> decode;
    bool up = false, overlap = false, waits = false;
    std::deque<Launched> launched;
    double gpu = 0, since = 0;
    std::size_t turn = 0;  // of groups that decode
  };
  // To answer a request, as each server has it.
  struct Attempt {
    std::size_t request = 0, from = 0, to = 0, group = 0, group_to = 0;
    double arrives = 0;
    std::unique_ptr<PlainRequest> there, here;
    SglangPlainAnswer times;
    std::size_t parts = 0, flows = 0;
    bool all = false, came = false, dead_from = false, dead_to = false, over = false;
  };
  struct Change {
    double at;
    std::size_t server;
    bool up;
  };
  struct GiveUp {
    double at;
    std::size_t attempt;
  };

  void start(std::size_t i, double t) {
    Server& s = servers_[i] = {};
    s.up = true;
    s.since = s.gpu = t;
    s.overlap = !(i < c_.senders ? c_.prefill : c_.decode).disable_overlap_schedule;
    const bool prefills = i < c_.senders;
    for (std::size_t g = 0; g < (prefills ? c_.prefill_groups : c_.decode_groups).count; ++g) {
      if (prefills) {
        s.prefill.push_back(std::make_unique<PlainPrefill>(
            c_.prefill, [this](PlainRequest& r, std::uint32_t tokens, bool last) { send(r, tokens, last); },
            c_.law.drafts() > 0));
        continue;
      }
      s.decode.push_back(std::make_unique<PlainDecode>(
          c_.decode,
          [this](PlainRequest& r) {
            r.room = true;
            attempts_[r.id].times.room = now_;
          },
          [this](PlainRequest& r) { token(r); }, c_.law));
    }
  }
  // The links of a group among all, and whose a flow's are.
  std::size_t sender_of(const Attempt& a) const { return a.from * c_.prefill_groups.count + a.group; }
  std::size_t receiver_of(const Attempt& a) const {
    return c_.senders * c_.prefill_groups.count + (a.to - c_.senders) * c_.decode_groups.count + a.group_to;
  }
  bool is_of(const PlainFlow& f, std::size_t server) const {
    return attempts_[f.request].from == server || attempts_[f.request].to == server;
  }
  bool waits(std::size_t i) const { return servers_[i].up && servers_[i].waits; }

  double at(std::size_t i) const { return c_.requests[i].arrival.value + c_.path.value; }
  double next() const {
    double t = links_.next();
    if (sent_ < answers.size()) t = std::min(t, answers[sent_].came);
    for (const Attempt& a : attempts_)
      if (!a.came && !a.over) t = std::min(t, a.arrives);
    for (const Change& c : changes_) t = std::min(t, c.at);
    for (const GiveUp& g : gives_up_) t = std::min(t, g.at);
    for (std::size_t i = 0; i < servers_.size(); ++i)
      if (waits(i)) t = std::min(t, servers_[i].launched.front().end);
    return t;
  }

  std::optional<std::size_t> turn(std::size_t first, std::size_t last, std::size_t& turns) {
    for (std::size_t tries = first; tries < last; ++tries) {
      const std::size_t i = first + turns++ % (last - first);
      if (servers_[i].up) return i;
    }
    return std::nullopt;
  }
  bool any_up(std::size_t first, std::size_t last) const {
    return std::any_of(servers_.begin() + static_cast<std::ptrdiff_t>(first),
                       servers_.begin() + static_cast<std::ptrdiff_t>(last),
                       [](const Server& s) { return s.up; });
  }
  void send_request(std::size_t request, double arrives) {
    if (!any_up(0, c_.senders) || !any_up(c_.senders, servers_.size())) {
      homeless_.push_back(request);
      return;
    }
    Attempt a;
    a.request = request;
    a.from = *turn(0, c_.senders, turns_[0]);
    a.to = *turn(c_.senders, servers_.size(), turns_[1]);
    a.arrives = arrives;
    const TraceRequest& t = c_.requests[request];
    PlainRequest r;
    r.id = attempts_.size();
    r.stream = t.number;
    r.prompt = static_cast<std::uint32_t>(t.input);
    r.answer = static_cast<std::uint32_t>(t.output);
    const std::size_t parts = kTraceBlock / c_.prefill.page_size;
    const bool own = t.blocks.empty() && !c_.failures.empty();  // the text of who is sent again is known
    for (std::size_t p = 0; p < r.prompt / c_.prefill.page_size; ++p) {
      if (!own && p / parts >= t.blocks.size()) break;
      r.text.push_back(chain_hash(own ? 1000 + 10 * request + p / parts : t.blocks[p / parts], p % parts));
    }
    for (std::uint32_t next = c_.prefill.page_size; next <= r.prompt; next += c_.prefill.page_size) {
      const std::size_t word = next / kTraceBlock;
      const bool given = next < r.prompt && (own || word < t.blocks.size());
      const std::uint64_t of = own ? 1000 + 10 * request + word : given ? t.blocks[word] : 0;
      r.next.push_back(given ? chain_hash(of, (1ULL << 40) + next % kTraceBlock)
                             : chain_hash((1ULL << 61) + r.id, next));
    }
    a.there = std::make_unique<PlainRequest>(r);
    a.here = std::make_unique<PlainRequest>(r);
    attempts_.push_back(std::move(a));
  }

  void arrive() {
    std::vector<std::size_t> now;
    for (std::size_t i = 0; i < attempts_.size(); ++i)
      if (!attempts_[i].came && !attempts_[i].over && attempts_[i].arrives <= now_) now.push_back(i);
    std::stable_sort(now.begin(), now.end(), [&](std::size_t a, std::size_t b) {
      return attempts_[a].arrives < attempts_[b].arrives;
    });
    for (const std::size_t i : now) {
      Attempt& a = attempts_[i];
      a.came = true;
      a.group = GroupRouter::room_of(c_.requests[a.request].number) % c_.prefill_groups.count;
      a.group_to = servers_[a.to].turn++ % c_.decode_groups.count;
      servers_[a.from].prefill[a.group]->receive(a.there.get());
      servers_[a.to].decode[a.group_to]->receive(a.here.get());
    }
  }

  void change() {
    std::vector<Change> now;
    for (const Change& c : changes_)
      if (c.at <= now_) now.push_back(c);
    std::erase_if(changes_, [&](const Change& c) { return c.at <= now_; });
    for (const Change& c : now) {
      if (!c.up) continue;
      start(c.server, now_);
      std::vector<std::size_t> waited;
      std::swap(waited, homeless_);
      for (const std::size_t request : waited) send_request(request, now_);
    }
    for (const Change& c : now)
      if (!c.up) die(c.server);
  }

  void die(std::size_t server) {
    std::vector<std::size_t> of;
    for (const PlainFlow& f : links_.flows)
      if (is_of(f, server)) of.push_back(f.request);
    std::sort(of.begin(), of.end());
    cut += static_cast<std::size_t>(std::unique(of.begin(), of.end()) - of.begin());
    std::erase_if(links_.flows, [&](const PlainFlow& f) { return is_of(f, server); });
    links_.share();
    servers_[server] = {};
    std::vector<std::size_t> lost;
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      Attempt& a = attempts_[i];
      if (a.from == server && !a.dead_from) {
        a.dead_from = true;
        if (a.over || a.dead_to || a.here->here) continue;
        lost.push_back(a.request);
        a.over = true;
        if (!a.came) continue;
        // Asked every 5 s of the other's life; the second time that nobody answers it knows.
        double ask = servers_[a.to].since + 5;
        while (ask < now_) ask += 5;
        gives_up_.push_back({ask + 5, i});
      } else if (a.to == server && !a.dead_to) {
        a.dead_to = true;
        if (a.over) continue;
        a.over = true;
        lost.push_back(a.request);
        if (!a.came || a.dead_from || a.here->here) continue;
        if (servers_[a.from].prefill[a.group]->forget_unroomed(a.there.get(), a.here->room)) continue;
        if (a.all) a.there->here = true;  // the transfer fails
      }
    }
    std::sort(lost.begin(), lost.end());
    for (const std::size_t request : lost) {
      ++retried;
      send_request(request, now_);
    }
  }

  void give_up() {
    for (const GiveUp& g : gives_up_) {
      if (g.at > now_ || attempts_[g.attempt].dead_to) continue;
      attempts_[g.attempt].here->failed = true;
      ++given_up;
    }
    std::erase_if(gives_up_, [&](const GiveUp& g) { return g.at <= now_; });
  }

  Launched decide(std::size_t i) {
    Launched out;
    for (const auto& p : servers_[i].prefill) p->poll();
    for (Attempt& a : attempts_)
      if (a.here->room) a.there->room = true;
    for (const auto& p : servers_[i].prefill) out.groups.push_back(p->decide());
    for (const auto& d : servers_[i].decode) out.groups.push_back(d->decide());
    return out;
  }
  static bool any(const Launched& l) {
    return std::any_of(l.groups.begin(), l.groups.end(), [](const auto& b) { return b.has_value(); });
  }
  double took(const Launched& l) const { return plain_step_of_groups(times_, l.groups); }
  // Iterations up to one that waits for a result, or to two that launch nothing, the first of which may have
  // forgotten who is done: of overlapping ones each waits for the batch of the one before.
  void go_round(std::size_t i) {
    Server& l = servers_[i];
    for (int nothing = 0; nothing < 2;) {
      const bool before = !l.launched.empty();
      Launched batch = decide(i);
      const bool more = any(batch);
      nothing = more ? 0 : nothing + 1;
      if (more) {
        l.gpu = std::max(l.gpu, now_) + took(batch);
        batch.end = l.gpu;
        l.launched.push_back(std::move(batch));
      }
      l.waits = l.overlap ? before : more;
      if (l.waits) return;
    }
  }
  void process(std::size_t i) {
    Server& l = servers_[i];
    const Launched done = std::move(l.launched.front());
    l.launched.pop_front();
    l.waits = false;
    for (std::size_t g = 0; g < done.groups.size(); ++g) {
      if (!done.groups[g]) continue;
      if (!l.prefill.empty())
        l.prefill[g]->result(*done.groups[g]);
      else
        l.decode[g]->result(*done.groups[g]);
    }
  }

  void send(PlainRequest& r, std::uint32_t tokens, bool last) {
    Attempt& a = attempts_[r.id];
    a.all = last;
    if (a.dead_to) {
      a.there->here = a.there->here || last;
      return;
    }
    ++a.flows;
    most_parts = std::max(most_parts, ++a.parts);
    if (last) a.times.prefilled = now_;
    links_.begin(now_, tokens, {0, 0, 0, sender_of(a), receiver_of(a), r.id, 0, 0});
    links_.share();
    most_flows = std::max(most_flows, links_.flows.size());
  }
  void end(const PlainFlow& f) {
    Attempt& a = attempts_[f.request];
    if (--a.flows > 0 || !a.all) return;
    a.there->here = a.here->here = true;
    a.times.there = now_;
  }
  void token(PlainRequest& r) {
    Attempt& a = attempts_[r.id];
    if (a.times.first < 0) a.times.first = now_;
    a.times.last = now_;
    if (!r.finished) return;
    const double came = answers[a.request].came;
    answers[a.request] = a.times;
    answers[a.request].came = came;
    answers[a.request].whole = true;
    a.over = true;
  }

  const SglangPairCase& c_;
  const StepTimes& times_;
  PlainLinks links_;
  std::vector<Server> servers_;
  std::vector<Attempt> attempts_;
  std::vector<Change> changes_;
  std::vector<GiveUp> gives_up_;
  std::vector<std::size_t> homeless_;
  std::size_t turns_[2] = {0, 0};
  std::size_t sent_ = 0;
  double now_ = 0;
};

}  // namespace shardline
