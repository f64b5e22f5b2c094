// Which requests each step of vLLM computes, the slow and plain way.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/decided_step.hpp"
#include "planner/requests/request_slots.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "planner/serving/trace.hpp"

namespace shardline {

/// The scheduler of vLLM V1 block by block and request by request, as planner/requests/README.md [R1] and
/// [R4] say it: slow, and what VllmScheduler must be equal to.
class BlockwiseVllm : public Scheduler {
 public:
  struct Request : Scheduler::Request {
    std::uint32_t in_flight = 0;                // of `generated`, in steps that have not ended
    std::uint32_t filled = 0;                   // blocks whose text can be found
    std::uint32_t computed = 0, generated = 0;  // tokens, up to the step that was decided last
    bool began = false;
    bool remote = false, reading = false, read = false, fails = false;  // of pairs
    std::uint32_t tokens() const { return prompt + generated; }
    std::vector<KvBlock> blocks;
    std::vector<BlockHash> chain;
    std::vector<std::uint64_t> text;  // of the trace's blocks
  };

  explicit BlockwiseVllm(const VllmKnobs& knobs, PairRole role = PairRole::none);

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override;
  void forget(Id id) override;

  std::size_t depth() const override { return knobs_.async_scheduling ? 2 : 1; }
  std::size_t decided() const override { return steps_.size(); }
  bool schedule() override;
  void schedule_or_dummy() override;
  void look_at_once() override { notice(told_, true); }
  const StepBatch& front() const override;

  std::uint64_t steps_alike() const override;
  Ended finish_steps(std::uint64_t steps = 1) override;

  void take_reads(std::vector<Read>& out) override {
    out.insert(out.end(), reads_.begin(), reads_.end());
    reads_.clear();
  }
  void has_read(Id id) override { told_.push_back(id); }
  void was_read(std::uint64_t number, bool /*at_once*/) override { told_.push_back(number); }
  bool read_fails(Id id) override {
    requests_[id].fails = true;
    told_.push_back(id);
    return knobs_.recompute_failed_loads;
  }
  void take_failed(std::vector<Failed>& out) override {
    out.insert(out.end(), failed_.begin(), failed_.end());
    failed_.clear();
  }
  bool waits_for_transfers() const override { return reading_ > 0 || !kept_blocks_.empty(); }

  const Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return running_.size(); }
  std::size_t waiting() const override { return waiting_.size(); }
  std::uint64_t preemptions() const override { return preemptions_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const BlockPool& pool() const { return pool_; }

 private:
  std::uint32_t blocks_of(std::uint64_t tokens) const;
  bool grow(Id id, std::uint32_t tokens);
  void fill(Id id);
  void extend(Id id, std::size_t blocks);
  bool schedule_running(std::uint32_t& budget);
  bool admit(Id id, std::uint32_t& budget);
  bool compute_unread(Id id, std::uint32_t& budget);
  bool read(Id id);
  bool decide();
  void notice(std::vector<std::uint64_t>& told, bool at_once);
  void fail(Id id, bool at_once);
  void preempt(Id id);
  void count(Id id, std::uint32_t tokens);
  void more_alike(std::uint32_t steps);
  void leave(Id id);
  std::uint64_t blocks_for(std::uint64_t steps) const;

  VllmKnobs knobs_;
  PairRole role_;
  std::vector<Read> reads_;
  std::vector<Failed> failed_;
  std::uint32_t reading_ = 0;
  std::vector<std::uint64_t> told_;
  std::deque<std::vector<std::uint64_t>> told_of_;  // by step
  std::map<std::uint64_t, std::vector<KvBlock>> kept_blocks_;
  BlockPool pool_;
  RequestSlots<Request> requests_;
  std::vector<Id> running_, ended_;
  std::deque<Id> waiting_;
  std::deque<DecidedStep> steps_;  // decided, not ended
  std::uint32_t text_block_ = kTraceBlock;
  std::uint64_t preemptions_ = 0, added_ = 0;
  bool kept_ = true;  // nobody lost its blocks in the step decided last
};

}  // namespace shardline
