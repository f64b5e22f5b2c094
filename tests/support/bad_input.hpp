// Every file of a folder of tests/bad fails with exactly the message in its .expected file. A different
// message is written to the build folder (SHARDLINE_BINARY_DIR) as FOLDER.NAME.new, never into the source
// tree.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "sim/base/error.hpp"
#include "tests/support/files.hpp"

namespace shardline::testing {

inline void expect_messages(const std::string& folder, const std::string& extension, std::size_t at_least,
                            const std::function<void(const std::string&, const std::string&)>& parse) {
  const auto files = files_in(source_dir() / "tests" / "bad" / folder, extension);
  EXPECT_GE(files.size(), at_least);
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename());
    std::string message = "no error\n";
    try {
      parse(file.filename().string(), read_file(file));
    } catch (const UserError& e) {
      message = e.what();
    }
    auto expected = file;
    expected.replace_extension(".expected");
    if (message == read_file(expected)) continue;
    const auto fresh =
        std::filesystem::path(SHARDLINE_BINARY_DIR) / (folder + "." + file.stem().string() + ".new");
    std::ofstream(fresh, std::ios::binary) << message;
    ADD_FAILURE() << "differs from " << expected.filename() << "; the message is in " << fresh << ":\n"
                  << message;
  }
}

}  // namespace shardline::testing
