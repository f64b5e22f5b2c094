// Mutated texts must end in success or UserError; the sanitizers watch the rest.
#include "sim/base/reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace shardline {
namespace {

using Rng = std::mt19937_64;

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> texts = {
      "plan:\n  kv_parallel: 8\n  tp_attention: 2\n  link: 450 GB/s\n  context: 1M tokens\n",
      "# comment\ngpus:\n  - name: b200\n    memory: 186 GB\n    launch: 4 us\n  - {name: h100, memory: \"80 "
      "GB\"}\n"
      "lossless: true\n",
      "base: &base {tp: 8, kv: [1, 2, 3]}\nprefill: *base\ndecode: {plan: *base, note: 'it''s'}\n",
      "{\n\t\"architectures\": [\"LlamaForCausalLM\"],\n\t\"hidden_size\": 8192,\n\t\"rms_norm_eps\": "
      "1e-05,\n"
      "\t\"rope_scaling\": null,\n\t\"tie_word_embeddings\": false,\n\t\"text\": \"a\\tb\\u00e9\\\"\"\n}\n",
      "text: |\n  line one\n  line two\nfolded: >-\n  a\n  b\nquoted: \"a: b # c\"\nplain: a b c\nnone: "
      "~\nempty:\n",
      "? key\n: value\n---\n%TAG ! tag:x,2000:\nother: !!int 3\n...\n",
      "deep: {a: {b: {c: [[[[1, 2], 3], 4], {d: e}]}}}\r\nname: caf\xc3\xa9 \xe6\xbc\xa2\n",
      "- 1\n- 0x10\n- 010\n- .inf\n- 1e999\n- -9223372036854775808\n- 0.1Ki tokens\n- yes\n-\n- - - nested\n",
  };
  return texts;
}

const std::array<const char*, 24> kScraps = {
    "[", "{",  "]",  "}",     ": ",    "- ", "? ", "&a ",  "*a", "<<: *a",      "!!str ",       "\"",
    "'", "\n", "\t", "---\n", "...\n", "| ", "> ", "\x04", "# ", "%YAML 1.2\n", "\xef\xbb\xbf", ","};

std::size_t below(Rng& rng, std::size_t n) { return n == 0 ? 0 : rng() % n; }

void mutate(Rng& rng, std::string& text) {
  const std::size_t at = below(rng, text.size() + 1);
  const std::size_t length = below(rng, std::min<std::size_t>(text.size() - at, 40) + 1);
  switch (rng() % 9) {
    case 0:
      if (at < text.size())
        text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << rng() % 8));
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(at, length));
      break;
    case 3:
      text.resize(at);
      break;
    case 4: {
      const std::string& other = corpus()[below(rng, corpus().size())];
      text = text.substr(0, at) + other.substr(below(rng, other.size()));
      break;
    }
    case 5: {  // a nesting bomb
      static const std::array<const char*, 8> kBombs = {"[",  "{",    "[[{a: ", "- ",
                                                        "? ", "&x [", "a:\n ",  "{? "};
      const char* bomb = kBombs[below(rng, kBombs.size())];
      std::string bombs;
      for (std::size_t i = below(rng, 300); i > 0; --i) bombs += bomb;
      text.insert(at, bombs);
      break;
    }
    case 6:
      text.insert(at, kScraps[below(rng, kScraps.size())]);
      break;
    case 7:
      text.insert(at, 1, static_cast<char>(rng()));
      break;
    default:
      text.replace(at, length, kScraps[below(rng, kScraps.size())]);
      break;
  }
}

/// Calls every getter that fits, and some that do not.
void read_everything(const Reader& r, int depth) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (depth > 70) FAIL() << "deeper than the limit";
  r.location();
  r.path();
  if (r.is_map()) {
    for (const std::string& key : r.keys())
      if (key.size() % 3 != 0) read_everything(r.at(key), depth + 1);
    r.at("absent").items();
    r.find("plan");
    r.no_other_keys();
  } else if (r.is_sequence()) {
    for (const Reader& item : r.items()) read_everything(item, depth + 1);
    r.number(0, 1);
  } else {
    r.text();
    r.boolean();
    r.integer(-5, kMax);
    r.number(-1e9, 1e9);
    r.tokens(1, kMax);
    r.quantity(Bytes(0), Bytes(1e12));
    r.one_of({"helix", "ring"});
    r.at("x");
  }
}

/// True if the text parses; its contents may still have faults.
bool parses(const std::string& text) {
  bool parsed = false;
  try {
    const Document document = Document::parse("fuzz.yaml", text);
    parsed = true;
    read_everything(document.root(), 0);
    document.finish();
  } catch (const UserError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
    for (const Diagnostic& d : error.diagnostics()) {
      EXPECT_FALSE(d.what.empty());
      EXPECT_GE(d.where.column, d.where.line > 0 ? 1 : 0);
    }
  }
  return parsed;
}

/// Returns how many mutants were accepted.
int fuzz(std::uint64_t seed, int mutants) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  int accepted = 0;
  for (int i = 0; i < mutants && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("mutant " + std::to_string(i));
    std::string text = corpus()[below(rng, corpus().size())];
    for (std::size_t edits = 1 + below(rng, 6); edits > 0; --edits) mutate(rng, text);
    if (parses(text)) ++accepted;
  }
  return accepted;
}

TEST(ReaderFuzz, MutantsEndInUserErrorOrSuccess) {
  int accepted = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) accepted += fuzz(seed, 4000);
  // The mutants must reach the getters, not only the parser's first checks.
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 20000);
}

TEST(ReaderFuzz, EveryPrefixOfTheCorpus) {
  for (const std::string& text : corpus())
    for (std::size_t n = 0; n <= text.size(); ++n) {
      SCOPED_TRACE(n);
      parses(text.substr(0, n));
    }
}

TEST(ReaderFuzz, EveryShortTextOfSyntaxCharacters) {
  constexpr std::string_view kAlphabet = "a:-?[]{},&*!|>'\"#% \n";
  const std::size_t n = kAlphabet.size();
  for (std::size_t i = 0; i < n * n * n; ++i) {
    const std::string text = {kAlphabet[i % n], kAlphabet[i / n % n], kAlphabet[i / n / n]};
    SCOPED_TRACE(text);
    parses(text);
  }
}

}  // namespace
}  // namespace shardline
