#include "sim/base/argument_names.hpp"

#include <algorithm>

namespace shardline {

namespace {

thread_local bool g_library = false;

}  // namespace

std::string argument_name(std::string_view option) {
  if (!g_library) return "--" + std::string(option);
  if (option == "as") return "read_as";  // `as` is a keyword of Python
  std::string out(option);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string argument_given(std::string_view option, std::string_view value) {
  const std::string quote = g_library ? "\"" : "";
  return argument_name(option) + (g_library ? "=" : " ") + quote + std::string(value) + quote;
}

LibraryArguments::LibraryArguments(bool library) : outer_(g_library) { g_library = library; }
LibraryArguments::~LibraryArguments() { g_library = outer_; }
bool asked_by_library() { return g_library; }

}  // namespace shardline
