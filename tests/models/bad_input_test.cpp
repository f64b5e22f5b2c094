// Every file in tests/bad/model and tests/bad/config fails with exactly the message in its .expected file.
#include "tests/support/bad_input.hpp"

#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"

namespace shardline {
namespace {

TEST(BadInput, ModelYaml) { testing::expect_messages("model", ".yaml", 10, parse_model); }

TEST(BadInput, HuggingFaceConfig) {
  testing::expect_messages("config", ".json", 12, [](const std::string& file, const std::string& text) {
    return parse_hf_config(file, text);
  });
}

}  // namespace
}  // namespace shardline
