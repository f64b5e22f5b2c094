#include "planner/handoff/runs.hpp"

#include <algorithm>
#include <numeric>

namespace shardline {

namespace {

// Takes tokens in ascending order and counts the runs that they make.
class Runs {
 public:
  Runs(int source_page, int target_page, std::vector<PageRun>* list)
      : source_page_(source_page), target_page_(target_page), list_(list) {}

  // Some tokens that follow one another on both sides, within one page each.
  void add(std::int64_t token, std::int64_t source, std::int64_t target, std::int64_t rows) {
    const bool follows = open_.rows > 0 && source == open_.source_row + open_.rows &&
                         target == open_.target_row + open_.rows && source % source_page_ != 0 &&
                         target % target_page_ != 0;
    if (!follows) {
      close();
      open_ = {token, source, target, 0};
    }
    open_.rows += rows;
  }
  void close() {
    if (open_.rows == 0) return;
    count_.tokens += open_.rows;
    ++count_.runs;
    const bool whole = open_.rows == source_page_ && open_.rows == target_page_;
    count_.whole += whole ? 1 : 0;
    const std::int64_t source = open_.source_row - open_.source_row % source_page_,
                       target = open_.target_row - open_.target_row % target_page_;
    if (open_.source_row == source && open_.target_row == target) {
      first_source_ = source;
      first_target_ = target;
    }
    const bool ends = open_.source_row + open_.rows == source + source_page_ &&
                      open_.target_row + open_.rows == target + target_page_;
    count_.around += ends && !whole && first_source_ == source && first_target_ == target ? 1 : 0;
    if (list_) list_->push_back(open_);
    open_.rows = 0;
  }
  // As if `times` times more had been added what was since `before`: the open run is that of the last time.
  void repeat(const RunCount& before, std::int64_t times, std::int64_t source_rows,
              std::int64_t target_rows) {
    count_.tokens += (count_.tokens - before.tokens) * times;
    count_.runs += (count_.runs - before.runs) * times;
    count_.whole += (count_.whole - before.whole) * times;
    count_.around += (count_.around - before.around) * times;
    if (first_source_ >= 0) {
      first_source_ += source_rows * times;
      first_target_ += target_rows * times;
    }
    open_.source_row += source_rows * times;
    open_.target_row += target_rows * times;
  }
  bool lists() const { return list_ != nullptr; }
  const RunCount& count() const { return count_; }

 private:
  const std::int64_t source_page_, target_page_;
  std::vector<PageRun>* const list_;
  PageRun open_;
  // The last pages that a run began on both sides: their first rows.
  std::int64_t first_source_ = -1, first_target_ = -1;
  RunCount count_;
};

// Tokens after which a list's rows lie in their pages as they did, and the list goes on as it did.
std::int64_t period_of(const HeldTokens& h, std::int64_t page) {
  const std::int64_t rows = std::min(h.block, h.period);
  return h.period * (page / std::gcd(rows, page));
}

// Part of two lists: tokens of one cycle each.
class Overlap {
 public:
  Overlap(const HeldTokens& source, const HeldTokens& target, int source_page, int target_page)
      : source_(source),
        target_(target),
        source_page_(source_page),
        target_page_(target_page),
        begin_(std::max(source.begin, target.begin)),
        end_(std::min(source.end, target.end)),
        period_(std::lcm(period_of(source, source_page), period_of(target, target_page))) {}

  void count(Runs& runs) const {
    // In the first period runs may go on from what was before, and the second begins as all others do.
    const std::int64_t times = (end_ - begin_) / period_ - 2;
    if (runs.lists() || times < 1) return walk(begin_, end_, runs);
    walk(begin_, begin_ + period_, runs);
    const RunCount before = runs.count();
    const std::int64_t second = begin_ + period_, third = second + period_;
    walk(second, third, runs);
    runs.repeat(before, times, source_.before(third) - source_.before(second),
                target_.before(third) - target_.before(second));
    walk(third + times * period_, end_, runs);
  }

 private:
  // Common tokens of [from, end).
  void walk(std::int64_t from, std::int64_t end, Runs& runs) const {
    for (std::int64_t t = from; t < end;) {
      const std::int64_t next = target_.next(source_.next(t));
      if (next >= end) return;
      if (!source_.holds(next)) {
        t = next;
        continue;
      }
      const std::int64_t source = source_.row_of(next), target = target_.row_of(next);
      const std::int64_t rows =
          std::min({source_.run_end(next) - next, target_.run_end(next) - next,
                    source_page_ - source % source_page_, target_page_ - target % target_page_, end - next});
      runs.add(next, source, target, rows);
      t = next + rows;
    }
  }

  const HeldTokens &source_, &target_;
  const std::int64_t source_page_, target_page_, begin_, end_, period_;
};

RunCount over_lists(const HeldList& source, const HeldList& target, int source_page, int target_page,
                    std::vector<PageRun>* list) {
  SL_CHECK(source_page > 0 && target_page > 0, "a page has rows");
  Runs runs(source_page, target_page, list);
  auto a = source.begin();
  auto b = target.begin();
  while (a != source.end() && b != target.end()) {
    Overlap(*a, *b, source_page, target_page).count(runs);
    a->end <= b->end ? ++a : ++b;
  }
  runs.close();
  return runs.count();
}

}  // namespace

RunCount count_runs(const HeldList& source, const HeldList& target, int source_page, int target_page) {
  return over_lists(source, target, source_page, target_page, nullptr);
}

std::vector<PageRun> list_runs(const HeldList& source, const HeldList& target, int source_page,
                               int target_page) {
  std::vector<PageRun> out;
  over_lists(source, target, source_page, target_page, &out);
  return out;
}

}  // namespace shardline
