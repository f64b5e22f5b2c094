// Writes shardline/_results.py: a dataclass per struct of planner/api, its fields and their meaning from the
// field lists. Usage: shardline_make_results FILE
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "planner/api/shardline.hpp"

namespace shardline::python {

namespace {

constexpr std::size_t kWidth = 100;

// `text` broken between words; what follows the first line is indented by `indent`.
std::string wrapped(const std::string& text, std::size_t column, const std::string& indent) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    if (!out.empty() && column + 1 + word.size() > kWidth) {
      out += "\n" + indent;
      column = indent.size();
    } else if (!out.empty()) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
    at = end + 1;
  }
  return out;
}

// A keyword of Python 3.11 is no attribute.
std::string attribute(const std::string& field) {
  static const std::set<std::string> kKeywords{
      "False",  "None",     "True",   "and", "as",    "assert", "async",    "await",   "break",
      "class",  "continue", "def",    "del", "elif",  "else",   "except",   "finally", "for",
      "global", "if",       "import", "in",  "is",    "lambda", "nonlocal", "not",     "or",
      "pass",   "raise",    "return", "try", "while", "with",   "yield"};
  if (kKeywords.contains(field)) throw std::runtime_error("a field is a keyword of Python: " + field);
  return field == "from" ? "from_" : field;
}

// As part of a docstring.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : std::string(1, c);
  return out;
}

// What JSON calls null is None where the struct has an optional, and nan where it has a plain number.
class Writer {
 public:
  // `base`: a class of _tables.py that gives the dataclass its methods.
  template <class T>
  void add(const std::string& base = "") {
    if (!seen_.insert(api::Fields<T>::name).second) return;
    std::string fields, meanings;
    api::Fields<T>::visit([&]<class M>(const char* field, M T::*, const char* meaning) {
      const std::string name = attribute(field);
      const std::string head = "        " + name + ": ";
      fields += "    " + name + ": " + type_of<M>() + "\n";
      meanings += head + wrapped(escaped(meaning), head.size(), "            ") + "\n";
    });
    const char* const schema = api::Fields<T>::schema;
    text_ += std::string("\n\n@dataclass(frozen=True)\nclass ") + api::Fields<T>::name +
             (base.empty() ? "" : "(" + base + ")") + ":\n    \"\"\"" +
             wrapped(escaped(api::Fields<T>::about), 7, "    ") + "\n\n    Attributes:\n" + meanings +
             "    \"\"\"\n\n" +
             (schema != nullptr ? std::string("    SCHEMA: ClassVar[str] = \"") + schema + "\"\n" : "") +
             fields;
  }
  std::string module() const {
    std::string out =
        "\"\"\"Results and questions as dataclasses.\n\nMade from the field lists of planner/api when "
        "shardline "
        "was built; the same as its documents of --json.\nUnits end the names: _s seconds, _bytes bytes, "
        "_gpu per GPU, _user per user. None: does not apply;\nnan: a number that is not known.\n\"\"\"\n\n"
        "from __future__ import annotations\n\nfrom dataclasses import dataclass\nfrom typing import "
        "ClassVar, "
        "Dict, Optional, Tuple\n\nfrom ._tables import PlanTables, Rows, SweepTables\n\n__all__ = [\n";
    for (const std::string& name : seen_) out += "    \"" + name + "\",\n";
    return out + "]\n" + text_;
  }

 private:
  template <class T>
  struct Type {
    static std::string of(Writer& w) {
      if constexpr (api::detail::is_described<T>) {
        w.add<T>();
        return api::Fields<T>::name;
      } else if constexpr (std::is_same_v<T, bool>) {
        return "bool";
      } else if constexpr (std::is_integral_v<T>) {
        return "int";
      } else if constexpr (std::is_floating_point_v<T>) {
        return "float";
      } else {
        static_assert(std::is_same_v<T, std::string>, "a type that no result has");
        return "str";
      }
    }
  };
  template <class T>
  struct Type<std::optional<T>> {
    static std::string of(Writer& w) { return "Optional[" + w.type_of<T>() + "]"; }
  };
  template <class T>
  struct Type<std::vector<T>> {
    static std::string of(Writer& w) {
      const std::string row = w.type_of<T>();
      if constexpr (api::is_row<T>) return "Rows[" + row + "]";
      return "Tuple[" + row + ", ...]";
    }
  };
  template <class T>
  struct Type<std::map<std::string, T>> {
    static std::string of(Writer& w) { return "Dict[str, " + w.type_of<T>() + "]"; }
  };
  template <class T>
  std::string type_of() {
    return Type<T>::of(*this);
  }

  std::set<std::string> seen_;
  std::string text_;
};

std::string results() {
  Writer w;
  w.add<api::PlanResult>("PlanTables");
  w.add<api::SweepResult>("SweepTables");
  w.add<api::SimulateQuestion>();
  w.add<api::SimulateResult>();
  w.add<api::ExplainResult>();
  w.add<api::CompareResult>();
  w.add<api::HandoffResult>();
  w.add<api::ServeResult>();
  w.add<api::ThresholdsResult>();
  w.add<api::PartitionResult>();
  w.add<api::ConversationResult>();
  w.add<api::ListResult>();
  return w.module();
}

}  // namespace

}  // namespace shardline::python

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ofstream out(argv[1], std::ios::binary);
  out << shardline::python::results();
  return out.flush() ? 0 : 1;
}
