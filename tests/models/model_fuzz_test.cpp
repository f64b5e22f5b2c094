// Mutated inputs give a UserError or a valid model, never anything else.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "models/catalog.hpp"
#include "models/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

constexpr int kMutants = 6000;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : rng_(seed) {}

  std::string mutate(std::string text, const std::string& other) {
    const std::size_t changes = 1 + below(4);
    for (std::size_t i = 0; i < changes; ++i) change(text, other);
    return text;
  }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(rng_() % n); }

 private:
  void change(std::string& text, const std::string& other) {
    static const std::vector<std::string> kPieces = {"0",
                                                     "-1",
                                                     "010",
                                                     "1e308",
                                                     "9223372036854775808",
                                                     "nan",
                                                     "null",
                                                     "~",
                                                     "{}",
                                                     "[]",
                                                     "[[",
                                                     "\"",
                                                     "'",
                                                     ": ",
                                                     "\n",
                                                     "  ",
                                                     "\t",
                                                     "&a ",
                                                     "*a",
                                                     "!!int ",
                                                     "<<: ",
                                                     "- ",
                                                     "? ",
                                                     "#",
                                                     "%",
                                                     "true",
                                                     "tokens",
                                                     "gqa",
                                                     "mla",
                                                     "deepseek_v3",
                                                     std::string(1, '\0'),
                                                     "\xff",
                                                     "\xef\xbb\xbf",
                                                     "65536",
                                                     "131072",
                                                     "1.5",
                                                     ",",
                                                     "}",
                                                     "]"};
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, other.substr(below(other.size()), below(60)));
        break;
      case 5:
        move_line(text);
        break;
      default:
        replace_number(text, at);
        break;
    }
  }
  void move_line(std::string& text) {
    const std::size_t from = text.find('\n', below(text.size() + 1));
    if (from == std::string::npos) return;
    const std::size_t end = std::min(text.find('\n', from + 1), text.size());
    const std::string line = text.substr(from, end - from);
    if (below(2) == 0) text.erase(from, end - from);
    const std::size_t to = text.find('\n', below(text.size() + 1));
    if (to != std::string::npos) text.insert(to, line);
  }
  void replace_number(std::string& text, std::size_t at) {
    const std::size_t from = text.find_first_of("0123456789", at);
    if (from == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", from), text.size());
    static const std::vector<std::string> kNumbers = {"0",    "1",    "2",     "3",       "7",
                                                      "4095", "4096", "16384", "67108864"};
    text.replace(from, end - from, kNumbers[below(kNumbers.size())]);
  }

  std::mt19937_64 rng_;
};

void fuzz(const std::vector<std::filesystem::path>& files,
          const std::function<Model(const std::string&, const std::string&)>& parse) {
  std::vector<std::string> texts;
  for (const auto& file : files) texts.push_back(testing::read_file(file));
  ASSERT_FALSE(texts.empty());
  int valid = 0;
  for (std::uint64_t seed = 0; seed < kMutants; ++seed) {
    Mutator mutator(seed);
    const std::string& base = texts[mutator.below(texts.size())];
    const std::string text = mutator.mutate(base, texts[mutator.below(texts.size())]);
    try {
      const Model m = parse("fuzz", text);
      EXPECT_TRUE(check(m).empty()) << "seed " << seed;
      EXPECT_TRUE(std::isfinite(flops_per_token(m, 1e6).value)) << "seed " << seed;
      EXPECT_LE(active_parameters(m), parameter_count(m)) << "seed " << seed;
      ++valid;
    } catch (const UserError& e) {
      EXPECT_GT(std::string_view(e.what()).size(), 5u) << "seed " << seed;
    } catch (const std::exception& e) {
      ADD_FAILURE() << "seed " << seed << ": " << e.what() << "\n" << text;
    }
  }
  // Mutants on both sides of the line, or the test shows nothing.
  EXPECT_GT(valid, kMutants / 50);
  EXPECT_LT(valid, kMutants * 9 / 10);
}

TEST(ModelFuzz, Yaml) { fuzz(testing::files_in(testing::catalog_dir(), ".yaml"), parse_model); }

TEST(ModelFuzz, HuggingFaceConfig) { fuzz(testing::files_in(testing::hf_dir(), ".json"), parse_hf_config); }

}  // namespace
}  // namespace shardline
