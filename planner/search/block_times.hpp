// Times of steps from those of their blocks, each computed once for all plans and batches that share
// it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/layers/step.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// Block times that are known, shared by the threads of a search. All of them find the same times, so who was
/// first does not matter.
class KnownBlocks {
 public:
  struct View {
    StepBlock block;
    Plan plan;  // of batch 0
    bool operator==(const View&) const = default;
  };
  /// A number for a view, 1 at least, the same whenever it is asked for. Before find() and keep().
  std::uint64_t id(const View& view);
  enum class Kind : std::uint8_t { bound, simulated };
  std::optional<double> find(std::uint64_t id, int batch, Kind kind) const;
  void keep(std::uint64_t id, int batch, Kind kind, double seconds);

 private:
  static constexpr int kBits = 19;
  struct ViewHash {
    std::size_t operator()(const View& v) const;
  };
  // Direct-mapped. The key is kept mixed with the value's bits (R. Hyatt, A lockless transposition table), so
  // that halves of two writes do not make a known time.
  struct Slot {
    std::atomic<std::uint64_t> mixed{0}, value{0};
  };
  static std::uint64_t key_of(std::uint64_t id, int batch, Kind kind) {
    return id << 33 | std::uint64_t{static_cast<std::uint32_t>(batch)} << 1 |
           static_cast<std::uint64_t>(kind);
  }
  std::size_t place(std::uint64_t id, int batch, Kind kind) const;

  std::mutex mutex_;
  std::unordered_map<View, std::uint64_t, ViewHash> ids_;
  std::vector<Slot> slots_;  // none until a view is asked for
};

/// What Evaluator says of a plan, to the bit. Blocks do not depend on all of a plan [P7], so few are new.
/// Context parallelism, prefills in chunks and hosts that launch kernels go to the evaluator.
class BlockTimes {
 public:
  /// Keeps a reference to the evaluator. `known` of the same case, by default of its own.
  explicit BlockTimes(Evaluator& evaluator, std::shared_ptr<KnownBlocks> known = nullptr);

  /// Turns to a plan, whose batch does not matter. Call first.
  void start(const Plan& plan);
  /// Of the plan, with this batch.
  Seconds simulate(int batch) { return time(Kind::simulated, batch); }
  Seconds bound(int batch) { return time(Kind::bound, batch); }

 private:
  using Kind = KnownBlocks::Kind;
  struct Part {
    StepBlock block;
    Plan view;
    std::uint64_t id = 0;
  };

  Seconds time(Kind kind, int batch);
  double block_time(Kind kind, const Part& part, int batch);

  Evaluator& evaluator_;
  PassScratch scratch_;
  Schedule whole_, block_;
  Plan plan_;
  bool in_blocks_ = false;
  std::vector<StepBlock> blocks_;
  std::vector<Part> parts_;
  std::vector<double> makespans_;
  std::shared_ptr<KnownBlocks> known_;
};

}  // namespace shardline
