// Times of steps from those of their blocks, each computed once for all plans and batches that share
// it.
#pragma once

#include <unordered_map>
#include <vector>

#include "planner/layers/step.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// What Evaluator says of a plan, to the bit. Blocks do not depend on all of a plan [P7], so few are new.
/// Context parallelism, prefills in chunks and hosts that launch kernels go to the evaluator.
class BlockTimes {
 public:
  /// Keeps a reference to the evaluator.
  explicit BlockTimes(Evaluator& evaluator);

  /// Turns to a plan, whose batch does not matter. Call first.
  void start(const Plan& plan);
  /// Of the plan, with this batch.
  Seconds simulate(int batch) { return time(Kind::simulated, batch); }
  Seconds bound(int batch) { return time(Kind::bound, batch); }
  Seconds floor(int batch) { return time(Kind::floor, batch); }

 private:
  enum class Kind : std::uint8_t { floor, bound, simulated };
  static constexpr std::size_t kKinds = 3;
  static constexpr double kUnknown = -1;
  struct View {
    StepBlock block;
    Plan plan;  // of batch 0
    bool operator==(const View&) const = default;
  };
  struct ViewHash {
    std::size_t operator()(const View& v) const;
  };
  struct Part {
    StepBlock block;
    Plan view;
    std::uint64_t id = 0;
  };
  struct Known {
    std::uint64_t key = 0;  // id of the view, then its batch; no batch is 0
    std::array<double, kKinds> times{};
  };

  Seconds time(Kind kind, int batch);
  double block_time(Kind kind, const Part& part, int batch);

  Evaluator& evaluator_;
  PassScratch scratch_;
  Schedule whole_, block_;
  Plan plan_;
  bool in_blocks_ = false;
  std::vector<Part> parts_;
  std::vector<double> makespans_;
  std::unordered_map<View, std::uint64_t, ViewHash> ids_;
  std::vector<Known> known_;  // direct-mapped
};

}  // namespace shardline
