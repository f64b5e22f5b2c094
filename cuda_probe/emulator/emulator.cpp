#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "cuda_probe/emulator/block.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace shardline::emulator {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
// No block's shared memory begins at address 0 of its window, so that 0 is never a valid address.
constexpr std::uint32_t kSharedBase = 1024;

thread_local Block* block_now = nullptr;

struct Stopped {};

/// Stacks of fibres that have ended, for those of the next block: pages that are new each time take longer
/// than a small kernel.
thread_local std::vector<std::unique_ptr<std::byte[]>> free_stacks;

/// Tells the thread where its stack lies: AddressSanitizer must know.
struct StackAllocator {
  Thread* thread;
  boost::context::stack_context allocate() {
    if (free_stacks.empty()) free_stacks.emplace_back(new std::byte[kStackBytes]);
    std::byte* const stack = free_stacks.back().release();
    free_stacks.pop_back();
    thread->stack = stack;
    boost::context::stack_context c;
    c.size = kStackBytes;
    c.sp = stack + kStackBytes;
    return c;
  }
  void deallocate(boost::context::stack_context& c) {
    free_stacks.emplace_back(static_cast<std::byte*>(c.sp) - c.size);
  }
};

// AddressSanitizer must be told of each change of stacks.
struct StackNote {
#if defined(__SANITIZE_ADDRESS__)
  static inline thread_local const void* main_stack = nullptr;
  static inline thread_local std::size_t main_size = 0;
#endif
};

}  // namespace

Block::Block(const Grid& g, const Options& o, int x, int y, int z, std::byte* shared, std::mt19937_64& random,
             Counts& c)
    : grid(g), options(o), index{x, y, z}, counts(c), shared_(shared), random_(random), ready_(g.threads) {
  warps_.resize(static_cast<std::size_t>(g.threads + 31) / 32);
  groups_.resize(static_cast<std::size_t>(g.threads + 127) / 128);
  warpgroups.resize(groups_.size());
  async_view_.assign(shared, shared + g.shared_bytes);
}

Block& Block::current() {
  if (block_now == nullptr) throw EmulationError("device code called outside a kernel");
  return *block_now;
}

void Block::fail(const std::string& what) const {
  throw EmulationError("block (" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " +
                       std::to_string(index[2]) + "), thread " + std::to_string(running_) + ": " + what);
}

void Block::sleep(const char* what) {
  Thread& t = self();
  if (options.order == ThreadOrder::random && random_() % 16 == 0) finish_copies(t);
  ready_.erase(running_);
  t.waits_for = what;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, StackNote::main_stack, StackNote::main_size);
#endif
  main_ = std::move(main_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &StackNote::main_stack, &StackNote::main_size);
#endif
  if (stopping_) throw Stopped{};
}

void Block::wake(std::vector<int>& list) {
  for (const int t : list) ready_.insert(t);
  list.clear();
}

bool Block::join(Meeting& m, int size, const char* what, void* part) {
  const int first = running_ / size * size;
  if (first + size > grid.threads) fail(std::string(what) + ": its warp or warpgroup is not whole");
  if (m.arrived == 0) {
    m.what = what;
    m.parts.assign(static_cast<std::size_t>(size), nullptr);
  } else if (m.what != what && std::strcmp(m.what, what) != 0) {
    fail(std::string("calls ") + what + " while others of its warp or warpgroup call " + m.what);
  }
  m.parts[static_cast<std::size_t>(running_ - first)] = part;
  if (++m.arrived == size) return true;
  m.waiting.push_back(running_);
  return false;
}

void Block::leave(Meeting& m) {
  m.arrived = 0;
  wake(m.waiting);
}

void Block::check_shared(const void* p, std::size_t size, const char* what) const {
  const auto* b = static_cast<const std::byte*>(p);
  if (b < shared_ || b + size > shared_ + grid.shared_bytes)
    fail(std::string(what) + ": address outside shared memory");
}

std::uint32_t Block::address_of(const void* p) const {
  check_shared(p, 1, "shared_address");
  return kSharedBase + static_cast<std::uint32_t>(static_cast<const std::byte*>(p) - shared_);
}

std::byte* Block::at(std::uint32_t address, std::size_t size, const char* what) const {
  if (address < kSharedBase) fail(std::string(what) + ": address outside shared memory");
  std::byte* p = shared_ + (address - kSharedBase);
  check_shared(p, size, what);
  return p;
}

void Block::write_async(std::uint32_t address, const void* from, std::size_t size) {
  std::byte* p = at(address, size, "copy_tensor");
  std::memcpy(p, from, size);
  std::memcpy(async_view_.data() + (p - shared_), from, size);
}

const std::byte* Block::read_async(std::uint32_t address, std::size_t size, const char* what) const {
  const std::byte* p = at(address, size, what);
  if (std::memcmp(p, async_view_.data() + (p - shared_), size) != 0)
    fail(std::string(what) + ": reads what was written without fence_for_async, or too early");
  return p;
}

int ReadySet::choose(ThreadOrder order, std::mt19937_64& random) const {
  if (count_ == 0) return -1;
  const auto at = [](std::size_t word, int bit) { return static_cast<int>(word) * 64 + bit; };
  std::size_t w = 0;
  if (order == ThreadOrder::ascending) {
    while (words_[w] == 0) ++w;
    return at(w, std::countr_zero(words_[w]));
  }
  if (order == ThreadOrder::descending) {
    w = words_.size() - 1;
    while (words_[w] == 0) --w;
    return at(w, 63 - std::countl_zero(words_[w]));
  }
  auto skip = static_cast<int>(random() % count_);
  for (; skip >= std::popcount(words_[w]); ++w) skip -= std::popcount(words_[w]);
  std::uint64_t rest = words_[w];
  for (; skip > 0; --skip) rest &= rest - 1;
  return at(w, std::countr_zero(rest));
}

// What nobody waits for stays under way as long as anything else can happen.
bool Block::finish_async() {
  if (async_.empty()) return false;
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < async_.size(); ++i) {
    if (!async_[i].barrier->waiting.empty()) wanted.push_back(i);
  }
  if (wanted.empty()) wanted.push_back(0);
  const std::size_t which = wanted[options.order == ThreadOrder::random ? random_() % wanted.size() : 0];
  const std::function<void()> work = std::move(async_[which].work);
  async_.erase(async_.begin() + static_cast<std::ptrdiff_t>(which));
  work();
  return true;
}

void Block::resume(Thread& t) {
  running_ = t.id;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, t.stack, kStackBytes);
#endif
  t.fiber = std::move(t.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  running_ = -1;
}

void Block::run(const std::function<void(std::byte*)>& body) {
  block_now = this;
  for (int i = 0; i < grid.threads; ++i) {
    threads_.push_back(std::make_unique<Thread>());
    Thread* t = threads_.back().get();
    t->id = i;
    ready_.insert(i);
    t->fiber = boost::context::fiber(
        std::allocator_arg, StackAllocator{t}, [this, t, &body](boost::context::fiber&& back) {
#if defined(__SANITIZE_ADDRESS__)
          __sanitizer_finish_switch_fiber(nullptr, &StackNote::main_stack, &StackNote::main_size);
#endif
          main_ = std::move(back);
          try {
            if (!stopping_) body(shared_);
          } catch (const Stopped&) {
          } catch (...) {
            if (!error_) error_ = std::current_exception();
          }
          t->done = true;
          ready_.erase(t->id);
#if defined(__SANITIZE_ADDRESS__)
          __sanitizer_start_switch_fiber(nullptr, StackNote::main_stack, StackNote::main_size);
#endif
          return std::move(main_);
        });
  }
  try {
    while (!error_) {
      const int next = ready_.choose(options.order, random_);
      if (next >= 0) {
        resume(*threads_[static_cast<std::size_t>(next)]);
        continue;
      }
      const auto stuck =
          std::find_if(threads_.begin(), threads_.end(), [](const auto& t) { return !t->done; });
      if (stuck == threads_.end()) {
        if (!async_.empty()) fail("the block ended before its tensor copies");
        break;
      }
      if (finish_async()) continue;
      running_ = (*stuck)->id;
      fail(std::string("waits for ever in ") + (*stuck)->waits_for);
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  stopping_ = true;
  for (const auto& t : threads_) {
    if (!t->done) resume(*t);
  }
  block_now = nullptr;
  if (error_) std::rethrow_exception(error_);
}

Counts run(const Grid& grid, const Options& options, const std::function<void(std::byte*)>& body) {
  if (grid.threads < 1 || grid.threads > 1024) throw EmulationError("a block has 1 to 1024 threads");
  Counts counts;
  std::mt19937_64 random(options.seed);
  std::vector<int> blocks(static_cast<std::size_t>(grid.x) * static_cast<std::size_t>(grid.y) *
                          static_cast<std::size_t>(grid.z));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (options.order == ThreadOrder::descending) std::reverse(blocks.begin(), blocks.end());
  if (options.order == ThreadOrder::random) std::shuffle(blocks.begin(), blocks.end(), random);
  // To the byte, so that a sanitizer sees what lies beyond.
  const std::size_t bytes = (grid.shared_bytes + 1023) / 1024 * 1024;
  std::unique_ptr<std::byte, decltype(&std::free)> shared(
      bytes == 0 ? nullptr : static_cast<std::byte*>(std::aligned_alloc(1024, bytes)), &std::free);
  for (const int b : blocks) {
    if (bytes > 0) std::memset(shared.get(), 0xff, bytes);
    Block block(grid, options, b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y, shared.get(), random,
                counts);
    block.run(body);
  }
  return counts;
}

int thread() { return Block::current().self().id; }
int block(int axis) { return Block::current().index[axis]; }

void sync_all() { sync_named(0, Block::current().grid.threads, true); }

void sync_named(int id, int threads, bool wait) {
  Block& b = Block::current();
  if (id < 0 || id > 15 || threads % 32 != 0) b.fail("a barrier takes whole warps and has an id of 0 to 15");
  NamedBarrier& n = b.named[id];
  if (n.arrived == 0) n.threads = threads;
  if (n.threads != threads) b.fail("threads meet at a barrier with different counts");
  if (++n.arrived == threads) {
    n.arrived = 0;
    ++b.counts.barriers;
    b.wake(n.waiting);
    return;
  }
  if (!wait) return;
  n.waiting.push_back(b.self().id);
  b.sleep(id == 0 ? "sync_threads" : "sync_named");
}

void sync_warp() {
  Block::current().meet(32, "sync_warp", nullptr, [](std::vector<void*>&) {});
}

std::uint32_t shuffle_bits(std::uint32_t value, int lane) {
  struct Part {
    std::uint32_t value, result;
    int lane;
  } mine{value, 0, lane};
  Block::current().meet(32, "shuffle", &mine, [](std::vector<void*>& parts) {
    for (void* p : parts) {
      auto* part = static_cast<Part*>(p);
      part->result = static_cast<Part*>(parts[static_cast<std::size_t>(part->lane & 31)])->value;
    }
  });
  return mine.result;
}

std::uint32_t ballot(bool value) {
  struct Part {
    bool value;
    std::uint32_t result;
  } mine{value, 0};
  Block::current().meet(32, "ballot", &mine, [](std::vector<void*>& parts) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < parts.size(); ++i)
      bits |= static_cast<std::uint32_t>(static_cast<Part*>(parts[i])->value ? 1 : 0) << i;
    for (void* p : parts) static_cast<Part*>(p)->result = bits;
  });
  return mine.result;
}

std::uint32_t shared_address(const void* p) { return Block::current().address_of(p); }

}  // namespace shardline::emulator
