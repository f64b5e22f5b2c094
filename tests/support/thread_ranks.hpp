// Ranks that are threads of one process: messages as MPI brings them, and ranks that die.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sim/ranks/ranks.hpp"

namespace shardline::testing {

class ThreadRanks {
 public:
  explicit ThreadRanks(std::size_t count) : boxes_(count) {
    for (std::size_t r = 0; r < count; ++r) ends_.push_back(std::make_unique<End>(*this, r));
  }
  ~ThreadRanks() { join(); }
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  void be_patient(std::chrono::milliseconds most) { patience_ = most; }
  Ranks& end(std::size_t rank) { return *ends_.at(rank); }
  /// Runs `work` as every rank but 0.
  void start(std::function<void(Ranks&)> work) {
    for (std::size_t r = 1; r < ends_.size(); ++r) threads_.emplace_back([this, r, work] { work(end(r)); });
  }
  void join() {
    for (std::thread& t : threads_) {
      if (t.joinable()) t.join();
    }
  }
  /// From now on nothing that it sends arrives; `back`: what was held back does, and all that follows.
  void mute(std::size_t rank, bool back = false) {
    const std::lock_guard lock(mutex_);
    End& e = *ends_.at(rank);
    e.mute = !back;
    if (!back) return;
    for (std::string& bytes : std::exchange(e.held, {})) boxes_[0].push_back({rank, std::move(bytes)});
  }
  std::size_t sent_to(std::size_t rank) const { return sent_[rank]; }

 private:
  struct End : Ranks {
    End(ThreadRanks& a, std::size_t r) : all(a), mine(r) {}
    std::size_t rank() const override { return mine; }
    std::size_t count() const override { return all.boxes_.size(); }
    std::size_t on_machine() const override { return all.boxes_.size(); }
    std::chrono::milliseconds patience() const override { return all.patience_; }
    void send(std::size_t to, std::string_view bytes) override {
      const std::lock_guard lock(all.mutex_);
      ++all.sent_[to];
      if (mute)
        held.emplace_back(bytes);
      else
        all.boxes_.at(to).push_back({mine, std::string(bytes)});
    }
    std::optional<RankMessage> receive() override {
      const std::lock_guard lock(all.mutex_);
      auto& box = all.boxes_[mine];
      if (box.empty()) return std::nullopt;
      RankMessage out = std::move(box.front());
      box.pop_front();
      return out;
    }
    void close(bool) override {}

    ThreadRanks& all;
    std::size_t mine;
    bool mute = false;
    std::vector<std::string> held;
  };

  std::mutex mutex_;
  std::vector<std::deque<RankMessage>> boxes_;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::thread> threads_;
  std::size_t sent_[64] = {};
  std::chrono::milliseconds patience_{30'000};
};

}  // namespace shardline::testing
