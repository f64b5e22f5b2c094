#include "cuda_probe/gpu/races.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_probe/gpu/gpu.hpp"

namespace shardline {

void Clock::advance(std::uint32_t stream) {
  if (stream >= counts_.size()) counts_.resize(stream + 1);
  ++counts_[stream];
}

void Clock::join(const Clock& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
}

void RaceLog::clear() {
  segments_.clear();
  work_.clear();
}

void RaceLog::add(const Touches& touches, std::uint32_t stream, const Clock& clock) {
  const auto index = static_cast<WorkIndex>(work_.size());
  work_.push_back({touches.work(), stream, clock.at(stream)});
  for (const Touch& t : touches.all()) {
    split(t.begin);
    split(t.end);
    t.write ? write(t, index, clock) : read(t, index, clock);
  }
}

void RaceLog::split(std::uintptr_t at) {
  auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return;
  auto& [begin, segment] = *std::prev(after);
  if (begin == at || segment.end <= at) return;
  Segment rest = segment;
  segment.end = at;
  segments_.emplace_hint(after, at, std::move(rest));
}

void RaceLog::require_ordered(WorkIndex earlier, const char* did, WorkIndex later, const char* does,
                              const Clock& clock, std::uintptr_t from, std::uintptr_t to) const {
  if (earlier < 0) return;
  const Work& a = work_[static_cast<std::size_t>(earlier)];
  if (clock.at(a.stream) >= a.count) return;
  throw GpuError(fmt::format("race: {} {} {} bytes that {} {}, and no event orders them",
                             work_[static_cast<std::size_t>(later)].name, does, to - from, a.name, did));
}

void RaceLog::read(const Touch& touch, WorkIndex work, const Clock& clock) {
  const std::uint32_t stream = work_[static_cast<std::size_t>(work)].stream;
  std::uintptr_t done = touch.begin;
  auto next = segments_.lower_bound(touch.begin);
  while (done < touch.end) {
    if (next == segments_.end() || next->first > done) {
      const std::uintptr_t end =
          next == segments_.end() ? touch.end : std::min(touch.end, std::uintptr_t{next->first});
      segments_.emplace_hint(next, done, Segment{end, -1, {work}});
      done = end;
      continue;
    }
    Segment& segment = next->second;
    require_ordered(segment.writer, "writes", work, "reads", clock, next->first, segment.end);
    std::erase_if(segment.readers,
                  [&](WorkIndex r) { return work_[static_cast<std::size_t>(r)].stream == stream; });
    segment.readers.push_back(work);
    done = segment.end;
    ++next;
  }
}

void RaceLog::write(const Touch& touch, WorkIndex work, const Clock& clock) {
  auto next = segments_.lower_bound(touch.begin);
  while (next != segments_.end() && next->first < touch.end) {
    const Segment& segment = next->second;
    require_ordered(segment.writer, "writes", work, "writes", clock, next->first, segment.end);
    for (const WorkIndex reader : segment.readers)
      require_ordered(reader, "reads", work, "writes", clock, next->first, segment.end);
    next = segments_.erase(next);
  }
  segments_.emplace_hint(next, touch.begin, Segment{touch.end, work, {}});
}

}  // namespace shardline
