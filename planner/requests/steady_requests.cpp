#include "planner/requests/steady_requests.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

std::uint32_t& SteadyRequests::begin_of(std::int64_t origin) {
  const auto block = static_cast<std::int64_t>(begins_.size());
  const std::int64_t beyond = origin % block;  // of the sign of origin
  return begins_[static_cast<std::size_t>(beyond > 0 ? block - beyond : -beyond)];
}

void SteadyRequests::add(Id id, std::uint64_t step, std::uint32_t cached, std::uint64_t end) {
  SL_CHECK(end >= step, "who decodes has a token left");
  const std::int64_t origin = std::int64_t{cached} - static_cast<std::int64_t>(step);
  const auto last = static_cast<std::int64_t>(end);
  ++count_;
  origins_ += origin;
  ++begin_of(origin);
  ends_.push_back({-last, origin, id});
  std::push_heap(ends_.begin(), ends_.end());
  if (longest_.size() > 2 * std::size_t{count_} + 16) {
    const auto now = static_cast<std::int64_t>(step);
    std::erase_if(longest_, [&](const Steady& s) { return s.other < now; });
    std::make_heap(longest_.begin(), longest_.end());
  }
  longest_.push_back({origin, last, id});
  std::push_heap(longest_.begin(), longest_.end());
}

std::uint64_t SteadyRequests::cached(std::uint64_t step) const {
  return static_cast<std::uint64_t>(origins_ +
                                    static_cast<std::int64_t>(count_) * static_cast<std::int64_t>(step));
}

std::uint32_t SteadyRequests::longest(std::uint64_t step) {
  const auto now = static_cast<std::int64_t>(step);
  SL_CHECK(count_ > 0, "somebody decodes");
  while (longest_.front().other < now) {
    std::pop_heap(longest_.begin(), longest_.end());
    longest_.pop_back();
  }
  return static_cast<std::uint32_t>(longest_.front().key + now);
}

std::uint64_t SteadyRequests::begin_blocks(std::uint64_t step, std::uint64_t steps) const {
  std::uint64_t sum = steps / begins_.size() * count_;
  for (std::uint64_t i = steps % begins_.size(); i > 0; --i) sum += begin_blocks(step + i - 1);
  return sum;
}

std::uint64_t SteadyRequests::next_end() const {
  SL_CHECK(count_ > 0, "somebody decodes");
  return static_cast<std::uint64_t>(-ends_.front().key);
}

void SteadyRequests::end(std::vector<Id>& out) {
  const std::int64_t key = ends_.front().key;
  while (!ends_.empty() && ends_.front().key == key) {
    const Steady s = ends_.front();
    std::pop_heap(ends_.begin(), ends_.end());
    ends_.pop_back();
    --count_;
    origins_ -= s.other;
    --begin_of(s.other);
    out.push_back(s.id);
  }
}

void SteadyRequests::clear(std::vector<Id>& out) {
  for (const Steady& s : ends_) out.push_back(s.id);
  ends_.clear();
  longest_.clear();
  std::fill(begins_.begin(), begins_.end(), 0U);
  count_ = 0;
  origins_ = 0;
}

}  // namespace shardline
