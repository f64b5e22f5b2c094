// Finds two pieces of work of different streams that touch the same bytes, one of them writing, with nothing
// ordering them. Vector clocks over streams: exact whatever order the work happens to run in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_probe/gpu/memory_map.hpp"

namespace shardline {

/// Per stream, how many of its pieces of work come before; streams past the end: none.
class Clock {
 public:
  std::uint64_t at(std::uint32_t stream) const { return stream < counts_.size() ? counts_[stream] : 0; }
  /// One more piece of the stream's own work.
  void advance(std::uint32_t stream);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> counts_;
};

/// Who last wrote and who read since, for every byte touched since clear().
class RaceLog {
 public:
  /// Work must be added in an order that its clocks allow; `clock` counts the work itself. Throws GpuError
  /// naming both pieces of work.
  void add(const Touches& touches, std::uint32_t stream, const Clock& clock);
  /// Everything so far comes before everything to come.
  void clear();

 private:
  struct Work {
    std::string name;
    std::uint32_t stream = 0;
    std::uint64_t count = 0;  // its place in its stream
  };
  using WorkIndex = std::int32_t;
  struct Segment {
    std::uintptr_t end = 0;
    WorkIndex writer = -1;
    std::vector<WorkIndex> readers;  // at most one per stream
  };
  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void read(const Touch& touch, WorkIndex work, const Clock& clock);
  void write(const Touch& touch, WorkIndex work, const Clock& clock);
  void require_ordered(WorkIndex earlier, const char* did, WorkIndex later, const char* does,
                       const Clock& clock, std::uintptr_t from, std::uintptr_t to) const;

  Segments segments_;  // by first byte, disjoint
  std::vector<Work> work_;
};

}  // namespace shardline
