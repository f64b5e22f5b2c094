// Loaded before a program (LD_PRELOAD): allocation number FAIL_ALLOCATION of it fails, or its write number
// FAIL_WRITE, once each; no thread is made where MOST_THREADS are there. COUNT_TO names a file that gets both
// counts at the end. Counted from main() on: what global objects of libraries allocate before it (CLI11's
// validators) nobody could catch.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> g_allocations = 0, g_writes = 0;
std::atomic<bool> g_counts = false;

long asked(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

long fail_allocation() {
  static const long at = asked("FAIL_ALLOCATION");
  return at;
}

struct Report {
  ~Report() {
    const char* const name = std::getenv("COUNT_TO");
    if (name == nullptr) return;
    char text[64];
    const int length = std::snprintf(text, sizeof text, "%ld %ld\n", g_allocations.load(), g_writes.load());
    const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    using Write = ssize_t (*)(int, const void*, size_t);
    static const auto write_out = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "write"));
    if (file >= 0 && write_out(file, text, static_cast<size_t>(length)) >= 0) close(file);
  }
} g_report;

void* allocate(std::size_t size, std::size_t alignment) {
  if (g_counts && ++g_allocations == fail_allocation()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  if (void* const memory = allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate_or_throw(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return allocate_or_throw(size, static_cast<std::size_t>(a));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" ssize_t write(int file, const void* data, size_t size) {
  using Write = ssize_t (*)(int, const void*, size_t);
  static const auto next = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "write"));
  static const long at = asked("FAIL_WRITE");
  if (g_counts && ++g_writes == at) {
    errno = ENOSPC;
    return -1;
  }
  return next(file, data, size);
}

namespace {

using Main = int (*)(int, char**, char**);
Main g_main = nullptr;

int counted_main(int argc, char** argv, char** environment) {
  g_counts = true;
  return g_main(argc, argv, environment);
}

}  // namespace

// The C library's entry, which runs the initialisers of global objects and then calls main.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  g_main = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  static const auto next = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* with) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  static const long most = asked("MOST_THREADS");
  if (most > 0) {
    long there = 0;
    if (DIR* const tasks = opendir("/proc/self/task")) {
      while (const dirent* const entry = readdir(tasks)) there += entry->d_name[0] == '.' ? 0 : 1;
      closedir(tasks);
    }
    if (there >= most) return EAGAIN;
  }
  return create(thread, attributes, run, with);
}
