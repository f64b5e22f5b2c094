// shardline._shardline: the library's functions. What users call is in shardline/__init__.py.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/api/installation.hpp"
#include "planner/api/other_names.hpp"
#include "planner/api/python/call.hpp"
#include "planner/api/sharding.hpp"
#include "planner/api/shardline.hpp"

namespace shardline::python {

namespace {

api::RunOptions options_of(int threads, const std::string& engine, const std::string& costs, bool any_gpus,
                           bool any_context, std::vector<std::string> settings, double memory_bytes) {
  api::RunOptions out;
  out.threads = threads;
  out.engine = engine;
  out.costs = costs;
  out.any_gpus = any_gpus;
  out.any_context = any_context;
  out.settings = std::move(settings);
  out.memory_bytes = memory_bytes;
  return out;
}

// A function that takes a question's dataclass, and the options of a run by name.
template <class Question, class Result>
void add(py::module_& m, const char* name,
         Result (*ask)(const Question& question, const api::RunOptions& options)) {
  m.def(
      name,
      [ask](const py::object& asked, int threads, const std::string& engine, const std::string& costs,
            bool any_gpus, bool any_context, const std::vector<std::string>& set, double memory,
            const py::object& progress, const py::object& cancelled) {
        const auto question = question_of<Question>(asked);
        return answer(options_of(threads, engine, costs, any_gpus, any_context, set, memory),
                      {progress, cancelled}, [&](const api::RunOptions& o) { return ask(question, o); });
      },
      py::arg("question"), py::kw_only(), py::arg("threads") = 0, py::arg("engine") = "",
      py::arg("costs") = "", py::arg("any_gpus") = false, py::arg("any_context") = false,
      py::arg("set") = std::vector<std::string>{}, py::arg("memory") = 0.0, py::arg("progress") = py::none(),
      py::arg("cancelled") = py::none());
}

// Of texts that the library reads as the command line does.
template <class Value>
auto reader(Value (*read)(const std::string& name, const std::string& text)) {
  return [read](const std::string& name, const std::string& text) {
    try {
      return read(name, text);
    } catch (const api::Error& e) {
      raise(e);
    }
  };
}

}  // namespace

PYBIND11_MODULE(_shardline, m) {
  m.doc() = "The library behind shardline.";
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_calls));
  py::class_<Table, std::shared_ptr<Table>>(m, "Table", "Rows of a result, held by C++.")
      .def("__len__", &Table::size)
      .def("row", &Table::row, py::arg("index"))
      .def("columns", &Table::columns);
  add<api::PlanQuestion>(m, "plan", &api::plan);
  add<api::SweepQuestion>(m, "sweep", &api::sweep);
  add<api::SimulateQuestion>(m, "simulate", &api::simulate);
  add<api::ExplainQuestion>(m, "explain", &api::explain);
  add<api::CompareQuestion>(m, "compare", &api::compare);
  add<api::HandoffQuestion>(m, "handoff", &api::handoff);
  add<api::ServeQuestion>(m, "serve", &api::serve);
  add<api::ThresholdsQuestion>(m, "thresholds", &api::thresholds);
  add<api::PartitionQuestion>(m, "partition", &api::partition);
  add<api::ScenarioQuestion>(m, "conversation", &api::conversation);
  m.def(
      "list",
      [](const std::string& what) {
        return answer({}, {}, [&](const api::RunOptions& o) { return api::list(what, o); });
      },
      py::arg("what"));
  m.def("seconds", reader(&api::seconds_of), py::arg("name"), py::arg("text"));
  m.def("tokens", reader(&api::tokens_of), py::arg("name"), py::arg("text"));
  m.def("count", reader(&api::count_of), py::arg("name"), py::arg("text"));
  m.def("bytes", reader(&api::bytes_of), py::arg("name"), py::arg("text"));
  m.def("rate", reader(&api::rate_of), py::arg("name"), py::arg("text"));
  m.def("meant_option", &api::meant_option, py::arg("found"), py::arg("options"));
  m.def(
      "sharding",
      [](const std::string& plan) {
        try {
          return api::sharding_of_plan(plan);
        } catch (const api::Error& e) {
          raise(e);
        }
      },
      py::arg("plan"));
  m.def("machine_memory", &api::machine_memory);
  m.def("data_folder", [] {
    try {
      return api::data_folder().string();
    } catch (const std::exception& e) {
      raise(api::Error(api::ErrorKind::bad_input, e.what()));
    }
  });
  m.attr("__version__") = api::library_version();
}

}  // namespace shardline::python
