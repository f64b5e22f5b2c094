#include "planner/api/python/convert.hpp"

#include <pybind11/numpy.h>

#include <limits>
#include <unordered_map>

namespace shardline::python {

namespace {

// A view of `values`, read-only, for others may look at the same numbers.
template <class T>
py::array view(const std::vector<T>& values, const py::dtype& type, const py::capsule& owner) {
  py::array out(type, static_cast<py::ssize_t>(values.size()), values.data(), owner);
  out.attr("flags").attr("writeable") = false;
  return out;
}

// Of Python's strings, each text once: most columns of texts repeat a few.
py::array text_array(const std::vector<std::string>& texts) {
  py::array out(py::dtype("O"), static_cast<py::ssize_t>(texts.size()));
  auto* const cells = static_cast<PyObject**>(out.mutable_data());
  std::unordered_map<std::string, py::object> known;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    py::object& text = known[texts[i]];
    if (!text) text = text_object(texts[i]);
    Py_XDECREF(cells[i]);
    cells[i] = py::object(text).release().ptr();
  }
  return out;
}

}  // namespace

py::object python_class(const char* module, const char* name) {
  return py::module_::import((std::string("shardline.") + module).c_str()).attr(name);
}

py::object text_object(const std::string& text) {
  PyObject* const out = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (out == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(out);
}

py::object number_object(double number) {
  static const py::handle unknown =
      py::cast(std::numeric_limits<double>::quiet_NaN()).release();  // never freed
  return std::isnan(number) ? py::reinterpret_borrow<py::object>(unknown) : py::cast(number);
}

py::dict arrays_of(std::shared_ptr<const api::Columns> columns) {
  using Owner = std::shared_ptr<const api::Columns>;
  const api::Columns& c = *columns;
  const py::capsule owner(new Owner(std::move(columns)),
                          [](void* kept) { delete static_cast<Owner*>(kept); });
  py::dict out;
  for (const std::string& name : c.names) {
    const py::object key = text_object(name);
    if (const auto n = c.numbers.find(name); n != c.numbers.end())
      out[key] = view(n->second, py::dtype::of<double>(), owner);
    else if (const auto i = c.integers.find(name); i != c.integers.end())
      out[key] = view(i->second, py::dtype::of<std::int64_t>(), owner);
    else if (const auto b = c.booleans.find(name); b != c.booleans.end())
      out[key] = view(b->second, py::dtype::of<bool>(), owner);
    else
      out[key] = text_array(c.texts.at(name));
  }
  return out;
}

py::object new_instance(const py::object& of) {
  auto* const type = reinterpret_cast<PyTypeObject*>(of.ptr());
  PyObject* const out = type->tp_alloc(type, 0);
  if (out == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(out);
}

void set_field(const py::object& instance, const char* name, const py::object& value) {
  const auto key = py::reinterpret_steal<py::object>(PyUnicode_InternFromString(name));
  // As object.__setattr__, which frozen classes leave alone.
  if (!key || PyObject_GenericSetAttr(instance.ptr(), key.ptr(), value.ptr()) != 0)
    throw py::error_already_set();
}

py::object rows_object(std::shared_ptr<Table> table) {
  static const py::handle rows = python_class("_tables", "Rows").release();  // never freed
  return rows(py::cast(std::move(table)));
}

}  // namespace shardline::python
