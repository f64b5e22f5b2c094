// What rank 0 spends on a job that another rank does: choosing, sending and taking it. Ranks here answer at
// once and MPI's part is left out, so the inverse is the most jobs a second that one command hands out.
#include <benchmark/benchmark.h>

#include <deque>
#include <string>
#include <vector>

#include "sim/ranks/dealt_work.hpp"

namespace shardline {
namespace {

// Every message with a job is answered with 24 KB, as the play of 10,000 requests is.
class InstantRanks : public Ranks {
 public:
  explicit InstantRanks(std::size_t count) : count_(count) {
    for (std::size_t r = 1; r < count; ++r) {
      std::string hello(9, '\0');
      hello[0] = 'h';
      hello[1] = 8;  // threads
      come_.push_back({r, hello + "1"});
    }
  }
  std::size_t rank() const override { return 0; }
  std::size_t count() const override { return count_; }
  std::size_t on_machine() const override { return 1; }
  void send(std::size_t to, std::string_view bytes) override {
    if (bytes[0] != 'j') return;
    std::string answer(bytes.substr(0, 9));
    answer[0] = 'r';
    come_.push_back({to, answer + std::string(24'000, 'x')});
  }
  std::optional<RankMessage> receive() override {
    if (come_.empty()) return std::nullopt;
    RankMessage out = std::move(come_.front());
    come_.pop_front();
    return out;
  }
  void close(bool) override {}

 private:
  std::size_t count_;
  std::deque<RankMessage> come_;
};

void BM_DealtJobs(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<DealtJob> jobs;
  for (std::size_t i = 0; i < 100'000; ++i) jobs.push_back({std::string(24, 'j'), i % 5000, i / 1000});
  for (auto _ : state) {
    InstantRanks ranks(count);
    WorkDealer dealer(ranks, 1, "1", [](std::string_view) { return std::string(); });
    std::size_t taken = 0;
    dealer.deal(jobs, [&](std::size_t, std::string_view result) {
      benchmark::DoNotOptimize(result.data());
      ++taken;
      return true;
    });
    if (taken != jobs.size()) state.SkipWithError("a job is missing");
  }
  state.counters["jobs"] =
      benchmark::Counter(static_cast<double>(jobs.size()) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(BM_DealtJobs)->Arg(2)->Arg(100)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
