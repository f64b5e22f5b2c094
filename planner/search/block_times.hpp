// Times of steps from those of their blocks, each computed once for all plans and batches that share
// it.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/layers/step.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// Block times that are known, shared by the threads of a search. All of them find the same times, so who was
/// first does not matter.
class KnownBlocks {
 public:
  /// Of one case, and of these batches: times lie in their order.
  explicit KnownBlocks(std::vector<int> batches) : batches_(std::move(batches)) {}
  const std::vector<int>& batches() const { return batches_; }

  enum class Kind : std::uint8_t { bound, simulated };
  struct View {
    StepBlock block;
    Plan plan;  // of batch 1, or of as many as the block counts a batch
    bool operator==(const View&) const = default;
  };

  /// Times of one view by the place of its batch among batches(). Safe to use from several threads.
  class Times {
   public:
    explicit Times(bool detached) : detached_(detached) {}
    /// Whether it has ops on detached lanes, which outlast their own block.
    bool detached() const { return detached_; }
    /// The known ones of batches [first, first + out.size()), and kUnknown for the others; false if there are
    /// any.
    bool read(Kind kind, std::size_t first, std::span<double> out) const;
    void write(Kind kind, std::size_t first, std::span<const double> times);

   private:
    const bool detached_;
    mutable std::mutex mutex_;
    std::array<std::vector<double>, 2> times_;  // [kind]
  };
  static constexpr double kUnknown = -1;

  /// Of a view, which stay where they are; `detached()` says what it is where it is new.
  template <class Detached>
  Times& of(const View& view, Detached detached) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = views_.find(view); it != views_.end()) return it->second;
    }
    const bool is = detached();  // two threads may do it twice
    const std::lock_guard lock(mutex_);
    return views_.try_emplace(view, is).first->second;
  }

 private:
  struct ViewHash {
    std::size_t operator()(const View& v) const;
  };
  const std::vector<int> batches_;
  std::mutex mutex_;
  std::unordered_map<View, Times, ViewHash> views_;
};

/// What Evaluator says of a plan, to the bit. Blocks do not depend on all of a plan [P7], so few are new, and
/// those of a plan's batches are timed together. Context parallelism, prefills in chunks and hosts that
/// launch kernels go to the evaluator.
class BlockTimes {
 public:
  /// Keeps a reference to the evaluator. `known` of its case.
  BlockTimes(Evaluator& evaluator, std::shared_ptr<KnownBlocks> known);

  /// Turns to a plan, whose batch does not matter. Call first.
  void start(const Plan& plan);
  /// Seconds of the plan with batches [first, last) of those known of, until the next call.
  std::span<const double> simulate(std::size_t first, std::size_t last) {
    return times(Kind::simulated, first, last);
  }
  std::span<const double> bounds(std::size_t first, std::size_t last) {
    return times(Kind::bound, first, last);
  }
  Seconds simulate(std::size_t i) { return Seconds(simulate(i, i + 1).front()); }
  Seconds bound(std::size_t i) { return Seconds(bounds(i, i + 1).front()); }

 private:
  using Kind = KnownBlocks::Kind;
  struct Part {
    StepBlock block;
    Plan view;
    KnownBlocks::Times* times = nullptr;
  };

  std::span<const double> times(Kind kind, std::size_t first, std::size_t last);
  void block_times(Kind kind, const Part& part, std::size_t first, std::span<double> out);
  const Block& lower_view(const Part& part, int batch);

  Evaluator& evaluator_;
  std::shared_ptr<KnownBlocks> known_;
  PassScratch scratch_;
  Schedule program_, block_;
  Plan plan_;
  bool in_blocks_ = false;
  std::vector<StepBlock> blocks_;
  std::vector<Part> parts_;
  std::vector<double> makespans_, times_;  // [block][batch], [batch]
};

}  // namespace shardline
