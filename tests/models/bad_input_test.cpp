// Every file in tests/bad/model and tests/bad/config fails with exactly the message in its .expected file.
#include <gtest/gtest.h>

#include <functional>

#include "models/catalog.hpp"
#include "models/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

void expect_messages(const std::string& folder, const std::string& extension, std::size_t at_least,
                     const std::function<Model(const std::string&, const std::string&)>& parse) {
  const auto files = testing::files_in(testing::source_dir() / "tests" / "bad" / folder, extension);
  EXPECT_GE(files.size(), at_least);
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename());
    std::string message = "no error\n";
    try {
      parse(file.filename().string(), testing::read_file(file));
    } catch (const UserError& e) {
      message = e.what();
    }
    auto expected = file;
    expected.replace_extension(".expected");
    if (message == testing::read_file(expected)) continue;
    const auto fresh =
        std::filesystem::path(SHARDLINE_BINARY_DIR) / (folder + "." + file.stem().string() + ".new");
    std::ofstream(fresh, std::ios::binary) << message;
    ADD_FAILURE() << "differs from " << expected.filename() << "; the message is in " << fresh << ":\n"
                  << message;
  }
}

TEST(BadInput, ModelYaml) { expect_messages("model", ".yaml", 10, parse_model); }

TEST(BadInput, HuggingFaceConfig) { expect_messages("config", ".json", 12, parse_hf_config); }

}  // namespace
}  // namespace shardline
