// Runs the data flow of a Schedule on the devices of a Transport. Knows ops, slots and messages, but no
// strategy.
#pragma once

#include <array>
#include <vector>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cuda/kernels.hpp"
#include "cuda_probe/execute/cuda/lanes.hpp"
#include "sim/base/units.hpp"

namespace shardline {

struct DeviceOptions {
  double scale = 0;         // of the scores; 0: 1/sqrt(qk_dim) of the action
  bool collectives = true;  // those of the transport where messages are theirs; else always messages
};

/// From when an op's predecessors on its rank had ended until it ended there, since the start of the run. For
/// messages this includes waiting for the other ranks.
struct OpTime {
  Seconds start, end;
  Seconds duration() const { return end - start; }
};

struct DeviceResult {
  std::vector<Output<float>> outputs;  // parallel to Dataflow::outputs; empty for ranks of other processes
  int ranks = 0;
  std::vector<OpTime> times;  // [op][rank]; zero where the op does not run in this process
  const OpTime& time(OpIndex op, int rank) const {
    return times[static_cast<std::size_t>(op) * static_cast<std::size_t>(ranks) +
                 static_cast<std::size_t>(rank)];
  }
  /// End of the last op.
  Seconds makespan() const;
};

/// Inputs as the devices hold them: every number rounded to bfloat16.
Tensors<float> rounded_to_bf16(const Tensors<double>& tensors);

/// Each block runs once, one after the other. Each rank has one stream per lane; ops wait for each other as
/// the schedule says (dependencies, order of a lane, ends of blocks), by events only: the host waits at the
/// end of a run. A chain's message takes the send lane of both its ends. Slots are bfloat16 (log-sum-exps
/// float32), begin as NaN, and padding rows of inputs hold 1e30, as do padding rows of keys: kernels multiply
/// them by zero. Messages of an op are one grouped exchange, or a collective.
class DeviceExecutor {
 public:
  /// Allocates and uploads all that the run needs beside its inputs. All are kept by reference; the lanes'
  /// events are the executor's while it lives. Throws ExecutionError where unsupported() names a reason or
  /// the transport has fewer ranks than the data flow, GpuError.
  DeviceExecutor(const Schedule& schedule, const Tensors<float>& inputs, Lanes& lanes,
                 const DeviceOptions& options = {});

  /// May be called again: every run starts anew. Throws GpuError, ExecutionError.
  DeviceResult run();

 private:
  struct OpPlan {
    ExchangePlan exchange;                      // of an op with messages
    std::vector<std::vector<Launch>> launches;  // [rank], of an op that computes
    std::vector<Event> start, end;              // [rank]
  };

  bool local(int rank) const { return transport_.local(rank); }
  Event began(int rank) const;
  void plan_op(OpIndex op, const DeviceOptions& options);
  void fill_padding_keys();
  void load_inputs();
  void start();
  void enqueue_op(const Block& block, OpIndex op);
  void end_block();
  Output<float> download(const Binding& binding);
  void synchronize();

  const Schedule& schedule_;
  const Dataflow& flow_;
  const Tensors<float>& inputs_;
  Lanes& lanes_;
  Transport& transport_;
  int ranks_;
  Layout layout_;
  RankMemory memory_;
  std::vector<std::array<Event, 2>> block_end_;  // [rank][lane]
  std::vector<Gpu*> devices_;                    // each once
  std::vector<Event> began_;                     // per device
  std::vector<OpPlan> ops_;
};

}  // namespace shardline
