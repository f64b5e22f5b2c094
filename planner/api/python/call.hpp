// How Python asks the library: the GIL is released, signals are answered, faults become Python's exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>

#include "planner/api/error.hpp"
#include "planner/api/options.hpp"
#include "planner/api/python/convert.hpp"

namespace shardline::python {

/// Python functions, or None: `progress(done, total)`, and `cancelled()`, which stops if it is true. Called
/// in the thread that asked.
struct Callbacks {
  py::object progress = py::none(), cancelled = py::none();
};

/// Runs `answer` on a thread of its own without the GIL, while this one waits and looks for signals, as only
/// Python's main thread is given them. Throws Python's exceptions: KeyboardInterrupt after Ctrl-C, what a
/// callback raised, and those of shardline/_errors.py for api::Error.
void run_without_gil(api::RunOptions options, const Callbacks& callbacks,
                     const std::function<void(const api::RunOptions&)>& answer);

/// At the end of the interpreter, before threads that still compute are ended: their calls are cancelled, and
/// waited for.
void end_calls();

/// api::Error as Python's exception, which it sets and throws.
[[noreturn]] void raise(const api::Error& error);

/// The answer as a dataclass. `ask(options)` returns a result struct.
template <class Ask>
py::object answer(const api::RunOptions& options, const Callbacks& callbacks, Ask ask) {
  using Result = decltype(ask(options));
  std::shared_ptr<const Result> result;
  run_without_gil(options, callbacks,
                  [&](const api::RunOptions& o) { result = std::make_shared<const Result>(ask(o)); });
  return to_python(result);
}

}  // namespace shardline::python
