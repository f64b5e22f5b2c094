#include "cuda_probe/gpu/memory_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_probe/gpu/gpu.hpp"

namespace shardline {

void* MemoryMap::allocate(std::size_t bytes) {
  // A gap behind each block: a run past its end must not land in the next one.
  const std::size_t whole = bytes + 256;
  auto* memory = static_cast<std::byte*>(::operator new(whole, kAlignment));
  std::memset(memory, 0xff, whole);
  Block block{std::unique_ptr<std::byte, Free>(memory), bytes, false};
  blocks_.emplace(reinterpret_cast<std::uintptr_t>(memory), std::move(block));
  return memory;
}

void MemoryMap::release(void* memory) {
  if (memory == nullptr) return;
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == blocks_.end()) throw GpuError("release: memory that was not allocated on this device");
  if (found->second.released) throw GpuError("release: memory released twice");
  found->second.released = true;
}

void MemoryMap::forget_released() {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.released; });
}

void MemoryMap::check(const std::string& work, const char* operand, const void* begin,
                      std::size_t bytes) const {
  if (bytes == 0) return;
  if (begin == nullptr) throw GpuError(fmt::format("{}: {} is null", work, operand));
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin())
    throw GpuError(fmt::format("{}: {} is not memory of this device", work, operand));
  const auto& [start, block] = *std::prev(after);
  if (at - start >= block.bytes + 256)
    throw GpuError(fmt::format("{}: {} is not memory of this device", work, operand));
  if (block.released) throw GpuError(fmt::format("{}: {} uses released memory", work, operand));
  if (at - start + bytes > block.bytes) {
    throw GpuError(fmt::format("{}: {} touches bytes [{}, {}) of an allocation of {}", work, operand,
                               at - start, at - start + bytes, block.bytes));
  }
}

void Touches::require(bool condition, const char* what) const {
  if (!condition) throw GpuError(fmt::format("{}: {}", work_, what));
}

void Touches::add(const char* operand, const void* p, const Cells& c, std::size_t element, bool write) {
  require(c.rows >= 0 && c.heads >= 0 && c.width >= 0 && c.row >= 0 && c.head >= 0,
          "negative size or stride");
  const auto start = reinterpret_cast<std::uintptr_t>(p);
  const std::size_t bytes = static_cast<std::size_t>(c.width) * element;
  if (bytes == 0) return;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::uintptr_t begin = start + static_cast<std::size_t>(r * c.row + h * c.head) * element;
      memory_.check(work_, operand, reinterpret_cast<const void*>(begin), bytes);
      if (!touches_.empty() && touches_.back().write == write && touches_.back().end == begin) {
        touches_.back().end = begin + bytes;
      } else {
        touches_.push_back({begin, begin + bytes, write});
      }
    }
  }
}

void Touches::forbid_overlap() const {
  std::vector<Touch> sorted = touches_;
  std::sort(sorted.begin(), sorted.end(), [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
  std::uintptr_t read_end = 0, write_end = 0;
  for (const Touch& t : sorted) {
    require(!(t.write && t.begin < write_end), "writes the same bytes twice");
    require(!(t.write && t.begin < read_end) && !(!t.write && t.begin < write_end),
            "source and target overlap");
    (t.write ? write_end : read_end) = std::max(t.write ? write_end : read_end, t.end);
  }
}

}  // namespace shardline
