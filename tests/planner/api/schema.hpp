// What the field lists of planner/api say, as data: struct by struct, for the tests of its README.md and
// documents.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/fields.hpp"

namespace shardline::api {

struct FieldText {
  std::string name, type, meaning;
};
struct StructText {
  std::string name, schema, about;
  std::vector<FieldText> fields;
};

/// Structs in the order in which they are first met.
class Schema {
 public:
  template <class T>
  void add() {
    for (const StructText& s : structs_) {
      if (s.name == Fields<T>::name) return;
    }
    const std::size_t at = structs_.size();
    const char* schema = Fields<T>::schema;
    structs_.push_back({Fields<T>::name, schema != nullptr ? schema : "", Fields<T>::about, {}});
    Fields<T>::visit([&]<class M>(const char* name, M T::*, const char* meaning) {
      const std::string type = type_of<M>();
      structs_[at].fields.push_back({name, type, meaning});
    });
  }
  const std::vector<StructText>& structs() const { return structs_; }

 private:
  template <class T>
  struct Kind {
    static std::string of(Schema& s) {
      if constexpr (requires { Fields<T>::name; }) {
        s.add<T>();
        return Fields<T>::name;
      } else if constexpr (std::is_same_v<T, bool>) {
        return "boolean";
      } else if constexpr (std::is_integral_v<T>) {
        return "integer";
      } else if constexpr (std::is_floating_point_v<T>) {
        return "number";
      } else {
        static_assert(std::is_same_v<T, std::string>, "a type that no document has");
        return "text";
      }
    }
  };
  template <class T>
  struct Kind<std::optional<T>> {
    static std::string of(Schema& s) { return Kind<T>::of(s) + " or null"; }
  };
  template <class T>
  struct Kind<std::vector<T>> {
    static std::string of(Schema& s) { return "list of " + Kind<T>::of(s); }
  };
  template <class T>
  struct Kind<std::map<std::string, T>> {
    static std::string of(Schema& s) { return "object of " + Kind<T>::of(s); }
  };
  template <class T>
  std::string type_of() {
    return Kind<T>::of(*this);
  }

  std::vector<StructText> structs_;
};

/// Of all documents.
const std::vector<StructText>& all_structs();

}  // namespace shardline::api
