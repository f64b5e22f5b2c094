// Documents from field lists. Not installed: nlohmann-json stays inside.
#pragma once

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/fields.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/harmless.hpp"

namespace shardline::api {

/// Writes a document as it goes: a tree of all values takes several times the memory of their text, and a
/// sweep that keeps every configuration has millions.
class JsonWriter {
 public:
  /// Structs by their field lists, in their order. JSON has neither NaN nor infinity: null. Text that is not
  /// UTF-8 (a path, a file's line) has U+FFFD for what is not.
  template <class T>
  void write(const T& value) {
    if constexpr (requires { Fields<T>::name; }) {
      write_struct(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      text_ += std::isfinite(value) ? nlohmann::json(value).dump() : "null";
    } else {
      text_ +=
          harmless_json(nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  }
  template <class T>
  void write(const std::optional<T>& value) {
    if (value)
      write(*value);
    else
      text_ += "null";
  }
  template <class T>
  void write(const std::vector<T>& values) {
    open('[');
    for (const T& value : values) {
      next();
      write(value);
    }
    close(']');
  }
  template <class T>
  void write(const std::map<std::string, T>& values) {
    open('{');
    for (const auto& [key, value] : values) member(key, value);
    close('}');
  }
  /// With a newline at its end.
  std::string document() && { return std::move(text_) + "\n"; }

 private:
  template <class T>
  void write_struct(const T& value) {
    static_assert(every_member_listed<T>);
    open('{');
    if (Fields<T>::schema != nullptr) member("schema", std::string(Fields<T>::schema));
    Fields<T>::visit(
        [&](const char* name, auto pointer, const char*) { member(std::string(name), value.*pointer); });
    close('}');
  }
  template <class T>
  void member(const std::string& name, const T& value) {
    next();
    write(name);
    text_ += ": ";
    write(value);
  }
  void open(char bracket) {
    text_ += bracket;
    ++depth_;
    first_ = true;
  }
  void next() {
    check_();  // a document may have millions of values, and their text hundreds of megabytes
    grow_asking(text_, kMostOfValues);
    if (!first_) text_ += ',';
    first_ = false;
    line();
  }
  void close(char bracket) {
    --depth_;
    if (!first_) line();  // nothing stands between the brackets of what is empty
    first_ = false;
    text_ += bracket;
  }
  void line() {
    text_ += '\n';
    text_.append(2 * depth_, ' ');
  }

  static constexpr std::size_t kMostOfValues = 4096;  // bytes of nearly all of them

  std::string text_;
  CancelCheck check_;
  std::size_t depth_ = 0;
  bool first_ = true;
};

template <class T>
std::string document_of(const T& result) {
  JsonWriter writer;
  writer.write(result);
  return std::move(writer).document();
}

}  // namespace shardline::api
