// What messages call the arguments of a question: options of a command line, unless a library asks.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// Of "max-local-prefill": "--max-local-prefill" of the command line, "max_local_prefill" of the library.
std::string argument_name(std::string_view option);

/// The same with what is given: of "costs" and "parameters" "--costs parameters", or `costs="parameters"`.
std::string argument_given(std::string_view option, std::string_view value);

/// While it lives, messages of this thread, and of those that parallel_for gives a part of its work, are
/// worded for who asked the library (or, of false, the command line). Scopes nest: the inner one holds.
class LibraryArguments {
 public:
  explicit LibraryArguments(bool library = true);
  ~LibraryArguments();
  LibraryArguments(const LibraryArguments&) = delete;
  LibraryArguments& operator=(const LibraryArguments&) = delete;

 private:
  bool outer_;
};

/// Whether the library was asked in this thread, to be given to another.
bool asked_by_library();

}  // namespace shardline
