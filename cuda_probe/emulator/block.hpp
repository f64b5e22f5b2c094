// One block of threads under emulation: a fibre per thread, and what they wait for.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "cuda_probe/emulator/warp.hpp"

namespace shardline::emulator {

/// Threads that must all come before any goes on.
struct Meeting {
  const char* what = nullptr;
  int arrived = 0;
  std::vector<void*> parts;
  std::vector<int> waiting;
};

struct NamedBarrier {
  int arrived = 0, threads = 0;
  std::vector<int> waiting;
};

/// mbarrier: a phase ends when `pending` arrivals and `bytes` are both zero.
struct PhaseBarrier {
  int count = 0, pending = 0;
  std::int64_t bytes = 0;
  std::uint32_t phase = 0;
  bool fenced = false;  // the copy engine knows it
  std::vector<int> waiting;
};

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
};

/// One product of a warpgroup, with the registers of its threads.
struct Product {
  std::vector<float*> d;
  std::vector<const std::uint32_t*> a;
  std::uint64_t a_descriptor, b_descriptor;
  int columns;
  bool b_rows_are_k, accumulate;
  bool done[4] = {};  // per warp: each multiplies its own 16 rows
};

struct Warpgroup {
  std::deque<Product> products;
  std::int64_t retired = 0;  // products that left the front
};

struct Thread {
  int id = 0;
  void* stack = nullptr;  // lowest byte of the fibre's
  boost::context::fiber fiber;
  bool done = false;
  const char* waits_for = "";
  std::deque<std::vector<AsyncCopy>> copy_groups;
  std::vector<AsyncCopy> open_copies;
  std::vector<std::int64_t> product_groups;  // products issued at each commit
  std::int64_t products = 0;
  bool fenced = false;
};

/// Threads that can go on, a bit each: the next is chosen at every switch, from up to 1024.
class ReadySet {
 public:
  explicit ReadySet(int threads) : words_(static_cast<std::size_t>(threads + 63) / 64) {}
  /// A thread that is not in it.
  void insert(int thread) {
    words_[static_cast<std::size_t>(thread / 64)] |= std::uint64_t{1} << (thread % 64);
    ++count_;
  }
  /// A thread that is in it.
  void erase(int thread) {
    words_[static_cast<std::size_t>(thread / 64)] &= ~(std::uint64_t{1} << (thread % 64));
    --count_;
  }
  /// By `order`: the lowest, the highest, or any; -1: none.
  int choose(ThreadOrder order, std::mt19937_64& random) const;

 private:
  std::vector<std::uint64_t> words_;
  std::uint64_t count_ = 0;
};

class Block {
 public:
  Block(const Grid& grid, const Options& options, int x, int y, int z, std::byte* shared,
        std::mt19937_64& random, Counts& counts);
  /// Until all threads have ended.
  void run(const std::function<void(std::byte*)>& body);

  static Block& current();
  Thread& self() { return *threads_[static_cast<std::size_t>(running_)]; }
  [[noreturn]] void fail(const std::string& what) const;
  /// The running thread stops until woken.
  void sleep(const char* what);
  void wake(std::vector<int>& threads);

  /// Comes together with the other threads of its warp (32) or warpgroup (128); the last to come calls
  /// act(parts), in the order of the threads.
  template <class Act>
  void meet(int size, const char* what, void* part, Act act) {
    auto& list = size == 32 ? warps_ : groups_;
    Meeting& m = list[static_cast<std::size_t>(running_ / size)];
    if (join(m, size, what, part)) {
      act(m.parts);
      leave(m);
    } else {
      sleep(what);
    }
  }

  /// Bytes [p, p + size) of shared memory; fails outside it.
  void check_shared(const void* p, std::size_t size, const char* what) const;
  std::uint32_t address_of(const void* p) const;
  std::byte* at(std::uint32_t address, std::size_t size, const char* what) const;

  // The copy engine and wgmma see shared memory as it was at the last fence_for_async, and what the engine
  // itself wrote.
  void fence_async() {
    if (grid.shared_bytes > 0) std::memcpy(async_view_.data(), shared_, grid.shared_bytes);
  }
  void write_async(std::uint32_t address, const void* from, std::size_t size);
  /// Fails where the last write was an ordinary one without a fence since.
  const std::byte* read_async(std::uint32_t address, std::size_t size, const char* what) const;

  /// Whether the next copy is given to later(); in random order some copies end when they are issued, while
  /// products are still under way.
  bool ends_late() { return options.late && (options.order != ThreadOrder::random || random_() % 2 == 0); }
  /// Work that ends when a thread waits for `barrier`, or nothing else can go on.
  void later(const PhaseBarrier& barrier, std::function<void()> work) {
    async_.push_back({&barrier, std::move(work)});
  }
  /// The rows of warp `warp` of the warpgroup.
  void finish(Product& p, std::uint32_t warp);
  /// The oldest copies of a thread that it has not waited for; false: there are none.
  static bool finish_copies(Thread& t);

  Grid grid;
  Options options;
  int index[3];
  Counts& counts;
  std::map<int, NamedBarrier> named;
  std::map<const void*, PhaseBarrier> phases;
  std::vector<Warpgroup> warpgroups;

 private:
  bool join(Meeting& m, int size, const char* what, void* part);
  void leave(Meeting& m);
  bool finish_async();
  void resume(Thread& t);

  std::byte* shared_;
  std::vector<std::byte> async_view_;
  std::mt19937_64& random_;
  std::vector<std::unique_ptr<Thread>> threads_;
  ReadySet ready_;
  std::vector<Meeting> warps_, groups_;
  struct Async {
    const PhaseBarrier* barrier;
    std::function<void()> work;
  };
  std::vector<Async> async_;
  boost::context::fiber main_;
  int running_ = -1;
  bool stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace shardline::emulator
