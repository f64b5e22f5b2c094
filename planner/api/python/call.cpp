#include "planner/api/python/call.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace shardline::python {

namespace {

// How often the waiting thread takes the GIL: often enough for a person who pressed Ctrl-C, and too seldom to
// be felt by other Python threads.
constexpr std::chrono::milliseconds kLook{20};

struct Progress {
  std::uint64_t done = 0, total = 0;
  bool operator==(const Progress&) const = default;
};

// What the two threads tell each other.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
  std::mutex progress_mutex;
  Progress progress;
};

// The calls of all threads, for the interpreter's end: threads that compute are no longer there for it then.
class Calls {
 public:
  void begin() {
    // A process that was forked has none of its parent's threads.
    if (process_.exchange(getpid()) != getpid()) running_ = 0;
    ++running_;
  }
  void end() { --running_; }
  bool ending() const { return ending_.load(std::memory_order_relaxed); }
  void cancel_all() {
    ending_ = true;
    constexpr std::chrono::milliseconds kAgain{2};
    while (process_ == getpid() && running_ > 0) std::this_thread::sleep_for(kAgain);
  }

 private:
  std::atomic<pid_t> process_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> ending_{false};
};

Calls& calls() {
  static Calls& all = *new Calls;  // there until the process is gone
  return all;
}

// A thread that Python ends while it waits for the GIL is unwound: its worker ends first.
class Worker {
 public:
  template <class Work>
  Worker(Shared& shared, Work work) : shared_(shared), thread_(std::move(work)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    shared_.stop = true;
    thread_.join();
  }

 private:
  Shared& shared_;
  std::thread thread_;
};

// With the GIL: true if the answer is no longer wanted; throws what Python raised.
bool look(Shared& shared, const Callbacks& callbacks, Progress& shown) {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  Progress now;
  {
    const std::lock_guard lock(shared.progress_mutex);
    now = shared.progress;
  }
  if (!callbacks.progress.is_none() && now != shown) {
    shown = now;
    callbacks.progress(now.done, now.total);
  }
  return !callbacks.cancelled.is_none() && py::bool_(callbacks.cancelled());
}

// Until the worker has finished. What Python raised meanwhile is returned, for the worker must stop first.
std::optional<py::error_already_set> wait(Shared& shared, const Callbacks& callbacks) {
  std::optional<py::error_already_set> raised;
  Progress shown;
  std::unique_lock lock(shared.mutex);
  while (!shared.changed.wait_for(lock, kLook, [&] { return shared.finished; })) {
    if (shared.stop) continue;
    lock.unlock();
    {
      const py::gil_scoped_acquire held;
      try {
        if (look(shared, callbacks, shown)) shared.stop = true;
      } catch (py::error_already_set& e) {
        raised.emplace(std::move(e));
        shared.stop = true;
      }
    }
    lock.lock();
  }
  return raised;
}

}  // namespace

void run_without_gil(api::RunOptions options, const Callbacks& callbacks,
                     const std::function<void(const api::RunOptions&)>& answer) {
  Shared shared;
  options.cancelled = [&shared] { return shared.stop.load(std::memory_order_relaxed) || calls().ending(); };
  options.progress = [&shared](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(shared.progress_mutex);
    shared.progress = {done, total};
  };
  std::optional<py::error_already_set> raised;
  // Not by py::gil_scoped_release, whose destructor takes the GIL: at the interpreter's end that ends the
  // thread, which no destructor may.
  const bool wanted = !calls().ending();
  PyThreadState* const released = PyEval_SaveThread();
  {
    const Worker worker(shared, [&] {
      calls().begin();
      try {
        answer(options);
      } catch (...) {
        shared.failure = std::current_exception();
      }
      {
        const std::lock_guard lock(shared.mutex);
        shared.finished = true;
        shared.changed.notify_one();
      }
      calls().end();
    });
    raised = wait(shared, callbacks);
  }
  // What was asked is no longer wanted, and nobody is there whom an exception could be told.
  while (wanted && calls().ending()) std::this_thread::sleep_for(std::chrono::seconds(1));
  PyEval_RestoreThread(released);
  // A signal that came while the answer was finished is the interpreter's.
  if (raised) throw std::move(*raised);
  if (!shared.failure) return;
  try {
    std::rethrow_exception(shared.failure);
  } catch (const api::Error& e) {
    raise(e);
  }
}

void end_calls() {
  const py::gil_scoped_release released;
  calls().cancel_all();
}

void raise(const api::Error& error) {
  const char* name = "InternalError";
  if (error.kind() == api::ErrorKind::bad_input) name = "BadInput";
  if (error.kind() == api::ErrorKind::interrupted) name = "Interrupted";
  const py::object type = python_class("_errors", name);
  const auto diagnostics = std::make_shared<const std::vector<api::Diagnostic>>(error.diagnostics());
  const py::object exception = type(text_object(error.what()), py::tuple(to_python(diagnostics)));
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw py::error_already_set();
}

}  // namespace shardline::python
