#include "planner/requests/transfer_links.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

TransferLinks::TransferLinks(const TransferRates& rates, std::size_t senders, std::size_t receivers)
    : rates_(rates),
      sent_(senders),
      received_(receivers),
      room_out_(senders),
      room_in_(receivers),
      free_out_(senders),
      free_in_(receivers),
      open_out_(senders),
      open_in_(receivers) {
  SL_CHECK(rates.fixed >= Seconds(0) && rates.token >= Seconds(0), "a hand-off takes time");
  SL_CHECK(rates.submit >= Seconds(0) && rates.submit_token >= Seconds(0), "to submit takes time");
  SL_CHECK(rates.senders >= 1 && rates.receivers >= 1, "links carry a hand-off");
}

void TransferLinks::begin(Seconds now, std::size_t from, std::size_t to, std::uint32_t tokens,
                          std::uint64_t number) {
  go_on(now);
  Flow f{};
  f.submission = rates_.submission(tokens);
  f.remaining = (rates_.token * static_cast<double>(tokens)).value;
  f.from = from;
  f.to = to;
  f.tokens = tokens;
  f.number = number;
  submit(f);
  flows_.push_back(f);
  share();
}

// Behind what its side submits already.
void TransferLinks::submit(Flow& f) {
  Seconds& free = free_of(f);
  free = f.submitted = std::max(now_, free) + f.submission;
  f.flows = f.submitted + rates_.fixed;
}

// Where some are gone: those that had not begun to be submitted follow one another anew.
void TransferLinks::submit_anew() {
  std::fill(free_out_.begin(), free_out_.end(), now_);
  std::fill(free_in_.begin(), free_in_.end(), now_);
  const auto waits = [&](const Flow& f) { return f.submitted - f.submission > now_; };
  for (const Flow& f : flows_) {
    if (f.submitted > now_ && !waits(f)) free_of(f) = f.submitted;
  }
  for (Flow& f : flows_) {
    if (waits(f)) submit(f);
  }
}

std::optional<std::uint64_t> TransferLinks::step() {
  SL_CHECK(next_.value < kNever, "something is on its way");
  const Seconds at = next_;
  std::size_t ends = flows_.size();
  for (std::size_t i = 0; i < flows_.size() && ends == flows_.size(); ++i) {
    const Flow& f = flows_[i];
    if (f.flows <= now_ && f.rate > 0 && now_ + Seconds(f.remaining / f.rate) <= at) ends = i;
  }
  go_on(at);
  if (ends == flows_.size()) {
    share();
    return std::nullopt;
  }
  const std::uint64_t number = flows_[ends].number;
  flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(ends));
  share();
  return number;
}

std::vector<TransferLinks::Cut> TransferLinks::cut_sender(Seconds now, std::size_t from) {
  return cut(now, &Flow::from, from);
}

std::vector<TransferLinks::Cut> TransferLinks::cut_receiver(Seconds now, std::size_t to) {
  return cut(now, &Flow::to, to);
}

std::vector<TransferLinks::Cut> TransferLinks::cut(Seconds now, std::size_t Flow::*side,
                                                   std::size_t replica) {
  go_on(now);
  std::vector<Cut> out;
  for (const Flow& f : flows_) {
    if (f.*side != replica) continue;
    const double waits = f.flows > now_ ? f.tokens : 0;  // all of it, or nothing where tokens take no time
    out.push_back({f.number, rates_.token > Seconds(0) ? f.remaining / rates_.token.value : waits});
  }
  std::erase_if(flows_, [&](const Flow& f) { return f.*side == replica; });
  submit_anew();
  share();
  return out;
}

void TransferLinks::go_on(Seconds now) {
  const double took = (now - now_).value;
  SL_CHECK(took >= 0, "time does not go back");
  for (Flow& f : flows_) {
    if (f.flows > now_) continue;
    const double done = std::min(f.remaining, f.rate * took);
    f.remaining -= done;
    sent_[f.from] += done / rates_.senders;
    received_[f.to] += done / rates_.receivers;
  }
  now_ = now;
}

// Progressive filling: the links with the least room for each of their flows fix the rates of these. A flow
// has rate 1 at most, so that links with more room than flows bind nobody.
void TransferLinks::share() {
  std::fill(room_out_.begin(), room_out_.end(), rates_.senders);
  std::fill(room_in_.begin(), room_in_.end(), rates_.receivers);
  std::fill(open_out_.begin(), open_out_.end(), 0);
  std::fill(open_in_.begin(), open_in_.end(), 0);
  std::size_t open = 0;
  for (Flow& f : flows_) {
    f.rate = 0;
    f.fixed = f.flows > now_;
    if (f.fixed) continue;
    ++open;
    ++open_out_[f.from];
    ++open_in_[f.to];
  }
  while (open > 0) {
    double least = 1;
    for (const Flow& f : flows_) {
      if (f.fixed) continue;
      least = std::min({least, room_out_[f.from] / open_out_[f.from], room_in_[f.to] / open_in_[f.to]});
    }
    // Links that are as full as any are found before their room changes.
    std::size_t before = open;
    for (Flow& f : flows_) {
      if (f.fixed) continue;
      const double room =
          std::min({1.0, room_out_[f.from] / open_out_[f.from], room_in_[f.to] / open_in_[f.to]});
      if (room > least * (1 + 1e-12)) continue;
      f.rate = least;
      f.fixed = true;
      room_out_[f.from] -= least;
      room_in_[f.to] -= least;
      --open_out_[f.from];
      --open_in_[f.to];
      --open;
    }
    SL_CHECK(open < before, "each round fixes a rate");
  }
  next_ = Seconds(kNever);
  for (const Flow& f : flows_) {
    if (f.flows > now_)
      next_ = std::min(next_, f.flows);
    else
      next_ = std::min(next_, now_ + Seconds(f.remaining / f.rate));
  }
}

}  // namespace shardline
