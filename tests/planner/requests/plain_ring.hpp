// What the ranks of SGLang's pipeline wait for, launch by launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "planner/requests/step_times.hpp"

namespace shardline {

// What the streams of the first and of the last rank wait for.
class PlainRing {
 public:
  PlainRing(const StageTimes& times, std::size_t buffered) : times_(times), buffered_(buffered) {}
  std::size_t count() const { return ever_.size(); }
  // One more batch; nobody's is not launched.
  void launch(const StepBatch& work, double begins) {
    Times t = ever_.empty() ? Times{} : ever_.back();  // what the streams have done is done
    if (!work.empty()) {
      std::vector<StageTime> of(times_.count());
      times_.of(work, of);
      for (std::size_t s = 0; s < of.size(); ++s) {
        t.reached = begins;
        begins = std::max(begins, free_[s]);
        if (s == 0) t.computed = begins + of[s].busy.value;
        free_[s] = begins + of[s].occupied.value;
        link_[s] = std::max(begins + of[s].busy.value, link_[s]) + of[s].handed.value;
        begins = link_[s];
      }
      t.had = begins;
    }
    ever_.push_back(t);
  }
  // When the first rank has received a batch's tokens, if it asks for them now: it has passed on what it
  // launched in the iteration before. The last rank sends them behind the next batches' hidden states.
  double sees(std::size_t batch) const {
    const bool asks_first = buffered_ > 0;
    const Times& before = ever_[ever_.size() - (asks_first ? 1 : 2)];
    const double sent = asks_first ? ever_[batch + buffered_].reached : 0;
    return std::max({ever_[batch].had, before.computed, sent});
  }

 private:
  struct Times {
    double computed = 0, reached = 0, had = 0;
  };
  const StageTimes& times_;
  const std::size_t buffered_;
  std::vector<Times> ever_;
  std::vector<double> free_ = std::vector<double>(times_.count()), link_ = free_;
};

}  // namespace shardline
