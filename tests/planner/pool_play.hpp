// Plays two pools in a closed loop: the oracle of planner/serving/pool_loop [P22].
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "planner/serving/pool_loop.hpp"

namespace shardline {

/// One server that prefills and one that decodes, every step of both. A step of prompts takes all that wait,
/// as far as it has room; a prompt that is computed waits for a place among those that decode, then its KV is
/// handed over; a step that decodes gives a token to all who are there when it begins. Paths are of
/// exponential length, answers of 80 to 120 % of the mean.
class PoolPlay {
 public:
  PoolPlay(const PromptServer& prefill, const AnswerServer& decode, const PoolLoad& load)
      : prefill_(prefill), decode_(decode), load_(load), users_(static_cast<std::size_t>(load.users)) {}

  // Steps of each answer, drawn by this in place of a part of the mean.
  void draw_steps(std::function<int(std::mt19937_64&)> draw) { drawn_ = std::move(draw); }
  // Means of what is answered after a while, of users who start at times drawn over a cycle.
  void steady(int answers, double cycle) {
    for (std::size_t i = 0; i < users_.size(); ++i) ask(i, cycle * part_(random_));
    const int warm = static_cast<int>(5 * users_.size());
    while (done_ < answers + warm) {
      if (!counts_ && done_ >= warm) counts_ = true, from_ = now_, first_ = done_;
      next();
    }
  }
  // The first answers to users who all come at once, over a path that all have.
  void burst() {
    counts_ = true;
    for (std::size_t i = 0; i < users_.size(); ++i) coming_.emplace(load_.path.value, i);
    while (prompts_ < static_cast<int>(users_.size())) next();
  }
  double ttft() const { return response_ / prompts_; }
  double requests_per_s() const { return (done_ - first_) / (now_ - from_); }
  double together() const { return static_cast<double>(taken_) / steps_; }

 private:
  struct User {
    double asked = 0;
    int left = 0;
    bool first = true;
  };
  void ask(std::size_t user, double at) {
    users_[user].asked = at;
    coming_.emplace(at - load_.path.value * std::log(1 - part_(random_)), user);
  }

  // To the next moment at which anything happens, and all that happens then.
  void next() {
    now_ = std::min({computing_.empty() ? kNever : ends_, decoding_.empty() ? kNever : token_,
                     coming_.empty() ? kNever : coming_.begin()->first,
                     handed_.empty() ? kNever : handed_.begin()->first});
    for (; !coming_.empty() && coming_.begin()->first <= now_; coming_.erase(coming_.begin()))
      waiting_.push_back(coming_.begin()->second);
    if (!computing_.empty() && ends_ <= now_) {
      for (const std::size_t i : computing_) prefilled_.push_back(i);
      computing_.clear();
    }
    if (!decoding_.empty() && token_ <= now_) decode_token();
    for (; !handed_.empty() && handed_.begin()->first <= now_; handed_.erase(handed_.begin()))
      ready_.push_back(handed_.begin()->second);
    begin();
  }

  int some_steps() { return std::max(1, static_cast<int>(std::lround(decode_.steps * length_(random_)))); }

  void decode_token() {
    std::vector<std::size_t> go_on;
    for (const std::size_t i : decoding_) {
      User& u = users_[i];
      if (u.first && counts_) response_ += now_ - u.asked, ++prompts_;
      u.first = false;
      if (--u.left > 0) {
        go_on.push_back(i);
        continue;
      }
      ++done_;
      --held_;
      ask(i, now_);
    }
    decoding_ = go_on;
    token_ = kNever;
  }

  void begin() {
    if (computing_.empty() && !waiting_.empty()) {
      while (!waiting_.empty() && static_cast<double>(computing_.size()) < prefill_.most()) {
        computing_.push_back(waiting_.front());
        waiting_.pop_front();
      }
      ends_ = now_ + prefill_.prompt(static_cast<double>(computing_.size())).value;
      if (counts_) ++steps_, taken_ += static_cast<int>(computing_.size());
    }
    for (; !prefilled_.empty() && held_ < decode_.room; prefilled_.pop_front(), ++held_)
      handed_.emplace(now_ + load_.handoff.value, prefilled_.front());
    if (decoding_.empty() || token_ == kNever) {  // a step ends: the next one takes all who are there
      for (const std::size_t i : ready_) {
        users_[i].first = true;
        users_[i].left = drawn_ ? drawn_(random_) : some_steps();
        decoding_.push_back(i);
      }
      ready_.clear();
      token_ = now_ + decode_.step.value;
    }
  }

  static constexpr double kNever = 1e300;
  const PromptServer& prefill_;
  const AnswerServer& decode_;
  const PoolLoad& load_;
  std::vector<User> users_;
  std::multimap<double, std::size_t> coming_, handed_;  // by when they are there
  std::deque<std::size_t> waiting_, prefilled_;
  std::vector<std::size_t> computing_, decoding_, ready_;
  std::function<int(std::mt19937_64&)> drawn_;
  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> length_{0.8, 1.2}, part_{0, 1};
  double now_ = 0, from_ = 0, ends_ = kNever, token_ = kNever, response_ = 0;
  int done_ = 0, first_ = 0, prompts_ = 0, held_ = 0, steps_ = 0, taken_ = 0;
  bool counts_ = false;
};

}  // namespace shardline
