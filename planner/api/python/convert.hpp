// From result structs to Python objects and from Python objects to questions, by the field lists: structs are
// the dataclasses of shardline/_results.py, which make_results.cpp writes from the same lists.
#pragma once

#include <pybind11/pybind11.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "planner/api/columns.hpp"

namespace shardline::python {

namespace py = pybind11;

/// Rows of a result as Python's Rows see them: a dataclass per row on demand, or all of them as columns. All
/// members are called with the GIL held.
class Table {
 public:
  virtual ~Table() = default;
  virtual std::size_t size() const = 0;
  virtual py::object row(std::size_t index) const = 0;
  /// Name to NumPy array. Arrays of numbers, integers and booleans are views of C++ vectors, which they keep
  /// alive; texts are Python strings.
  virtual py::dict columns() const = 0;
};

/// A field's name as an attribute of Python, where it may be a keyword: the only one that results have is
/// `from` (make_results.cpp refuses others).
inline const char* attribute_name(const char* field) {
  return std::strcmp(field, "from") == 0 ? "from_" : field;
}

/// The same object at every call, as its class is: `name` of module shardline.`module`.
py::object python_class(const char* module, const char* name);
/// Bytes that are not UTF-8 (of a path, of a file's line) become U+FFFD, as in JSON.
py::object text_object(const std::string& text);
/// One object for all NaN, so that results without a number at the same places are equal.
py::object number_object(double number);
py::dict arrays_of(std::shared_ptr<const api::Columns> columns);
/// An instance of a dataclass without fields, and setting one. Its own __init__ is that of a frozen class and
/// takes most of the time of a conversion.
py::object new_instance(const py::object& of);
void set_field(const py::object& instance, const char* name, const py::object& value);
/// shardline.Rows of a table.
py::object rows_object(std::shared_ptr<Table> table);

template <class T>
py::object class_of() {
  static const py::handle found = python_class("_results", api::Fields<T>::name).release();  // never freed
  return py::reinterpret_borrow<py::object>(found);
}

template <class T>
py::object to_python(const std::shared_ptr<const T>& value);

/// A vector inside of a result, which it keeps alive.
template <class T>
class TableOf : public Table {
 public:
  explicit TableOf(std::shared_ptr<const std::vector<T>> rows) : rows_(std::move(rows)) {}
  std::size_t size() const override { return rows_->size(); }
  py::object row(std::size_t index) const override {
    return to_python(std::shared_ptr<const T>(rows_, &rows_->at(index)));
  }
  py::dict columns() const override {
    std::shared_ptr<const api::Columns> made;
    {
      const py::gil_scoped_release released;
      made = std::make_shared<const api::Columns>(api::columns_of(*rows_));
    }
    return arrays_of(std::move(made));
  }

 private:
  std::shared_ptr<const std::vector<T>> rows_;
};

namespace detail {

template <class T>
struct ToPython {
  static py::object of(const std::shared_ptr<const T>& value) {
    if constexpr (api::detail::is_described<T>) {
      const py::object out = new_instance(class_of<T>());
      api::Fields<T>::visit([&]<class M>(const char* name, M T::*member, const char*) {
        set_field(out, attribute_name(name), to_python(std::shared_ptr<const M>(value, &((*value).*member))));
      });
      return out;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text_object(*value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return number_object(*value);
    } else {
      static_assert(std::is_integral_v<T>, "a type that no result has");
      return py::cast(*value);
    }
  }
};
template <class T>
struct ToPython<std::optional<T>> {
  static py::object of(const std::shared_ptr<const std::optional<T>>& value) {
    if (!value->has_value()) return py::none();
    return to_python(std::shared_ptr<const T>(value, &**value));
  }
};
template <class T>
struct ToPython<std::vector<T>> {
  static py::object of(const std::shared_ptr<const std::vector<T>>& values) {
    if constexpr (api::is_row<T>) {
      return rows_object(std::make_shared<TableOf<T>>(values));
    } else {
      py::tuple out(values->size());
      for (std::size_t i = 0; i < values->size(); ++i)
        out[i] = to_python(std::shared_ptr<const T>(values, &(*values)[i]));
      return out;
    }
  }
};
template <class T>
struct ToPython<std::map<std::string, T>> {
  static py::object of(const std::shared_ptr<const std::map<std::string, T>>& values) {
    py::dict out;
    for (const auto& [key, value] : *values)
      out[text_object(key)] = to_python(std::shared_ptr<const T>(values, &value));
    return out;
  }
};

template <class T>
void read(const char* name, const py::object& value, T& out) {
  try {
    out = value.cast<T>();
  } catch (const py::cast_error&) {
    throw py::type_error(std::string(name) + ": " + py::str(py::repr(value)).cast<std::string>() +
                         " has another type");
  }
}
template <class T>
void read(const char* name, const py::object& value, std::optional<T>& out) {
  if (!value.is_none()) read(name, value, out.emplace());
}

}  // namespace detail

/// `value` is part of a result that outlives what is made of it here: tables keep the whole alive.
template <class T>
py::object to_python(const std::shared_ptr<const T>& value) {
  return detail::ToPython<T>::of(value);
}

/// A question from the dataclass of its name. Throws TypeError of a value of another type.
template <class T>
T question_of(const py::object& asked) {
  T out;
  api::Fields<T>::visit([&]<class M>(const char* name, M T::*member, const char*) {
    detail::read(name, asked.attr(attribute_name(name)), out.*member);
  });
  return out;
}

}  // namespace shardline::python
