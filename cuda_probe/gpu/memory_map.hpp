// The stand-in device's memory: which bytes are allocated, and which of them a piece of work touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace shardline {

/// Bytes [begin, end) that a piece of work reads or writes.
struct Touch {
  std::uintptr_t begin = 0, end = 0;
  bool write = false;
};

/// Allocations. Fresh memory is filled with 0xFF (NaN in bfloat16 and float32). Released memory stays known
/// until forget_released(), so that work that still uses it is found.
class MemoryMap {
 public:
  void* allocate(std::size_t bytes);
  /// Throws GpuError unless `memory` was allocated here and not yet released.
  void release(void* memory);
  void forget_released();
  /// Throws GpuError, naming the work and its operand, unless all bytes lie in one live allocation.
  void check(const std::string& work, const char* operand, const void* begin, std::size_t bytes) const;

 private:
  static constexpr std::align_val_t kAlignment{256};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
    bool released = false;
  };
  std::map<std::uintptr_t, Block> blocks_;  // by address
};

/// An array [rows][heads][width] of elements; strides in elements. Index arrays: one row, one head.
struct Cells {
  std::int64_t rows = 1, row = 0, heads = 1, head = 0, width = 0;
};
constexpr Cells flat(std::int64_t count) { return {.width = count}; }

/// What one piece of work touches; each addition is checked against the allocations at once (GpuError), so
/// that index arrays may be read as soon as they have been added.
class Touches {
 public:
  Touches(const MemoryMap& memory, std::string work) : memory_(memory), work_(std::move(work)) {}

  const std::string& work() const { return work_; }
  std::span<const Touch> all() const { return touches_; }

  template <class T>
  void read(const char* operand, const T* p, const Cells& c) {
    add(operand, p, c, sizeof(T), false);
  }
  template <class T>
  void write(const char* operand, const T* p, const Cells& c) {
    add(operand, p, c, sizeof(T), true);
  }
  /// Throws GpuError if a byte is written twice or both read and written.
  void forbid_overlap() const;
  /// Throws GpuError "WORK: WHAT" unless the condition holds.
  void require(bool condition, const char* what) const;

 private:
  void add(const char* operand, const void* p, const Cells& c, std::size_t element, bool write);

  const MemoryMap& memory_;
  std::string work_;
  std::vector<Touch> touches_;
};

}  // namespace shardline
