// Every file in tests/bad/model and tests/bad/config fails with exactly the message in its .expected file.
#include "tests/support/bad_input.hpp"

#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"

namespace shardline {
namespace {

TEST(BadInput, ModelYaml) { testing::expect_messages("model", ".yaml", 10, parse_model); }

TEST(BadInput, HuggingFaceConfig) { testing::expect_messages("config", ".json", 12, parse_hf_config); }

}  // namespace
}  // namespace shardline
