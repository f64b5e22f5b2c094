// Whoever reads a long text can be stopped while its parser, of which nothing else is known, is at it.
#include "sim/base/asking_text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <istream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/reader.hpp"

namespace shardline {
namespace {

std::string repeated(const std::string& part, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

std::string numbered_keys(std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += "k" + std::to_string(i) + ": 1\n";
  return out;
}

// As if it had one key; most of these texts are faulty.
template <class Parse>
void read_whole(Parse parse, const std::string& text) {
  try {
    const Document document = parse("text", text);
    document.root().find("name");
    document.root().no_other_keys();
    document.finish();
  } catch (const UserError&) {
  }
}

// How often it is asked while `text` is read.
template <class Parse>
std::size_t questions(Parse parse, const std::string& text) {
  std::size_t asked = 0;
  const CancelQuestion count = [&] {
    ++asked;
    return false;
  };
  const CancelScope scope(&count);
  read_whole(parse, text);
  return asked;
}

TEST(AskingText, HandsOnEveryByte) {
  for (const std::size_t size : {0, 1, 2047, 2048, 2049, 10'000}) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(i * 7 % 256);
    AskingText pieces(text);
    std::istream in(&pieces);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text) << size;
  }
}

// Where something is lost on the way out, the sanitizer of leaks says so.
TEST(AskingText, ATextIsLeftWhereItsReaderIsStopped) {
  const std::string list = "a: &a [" + repeated("1,", 4'000) + "1]\n";
  for (const std::string& text : {std::string("name: x\n"), "\xef\xbb\xbf" + list, list + list}) {
    const std::size_t all = questions(Document::parse, text);
    ASSERT_GE(all, 1u);
    for (std::size_t stop = 1; stop <= all; ++stop) {
      std::size_t asked = 0;
      const CancelQuestion question = [&] { return ++asked == stop; };
      const CancelScope scope(&question);
      EXPECT_THROW(read_whole(Document::parse, text), Cancelled) << stop << " of " << all;
      EXPECT_EQ(asked, stop);
    }
  }
}

// A list of two hundred thousand unknown names took almost a second.
TEST(AskingText, FaultsThatAreOnlyCountedAreAskedFor) {
  std::string names;
  for (int i = 0; i < 20'000; ++i) names += "x" + std::to_string(i) + ",";
  const Document document = Document::parse("text", "names: [" + names + "x]");
  const std::vector<std::string> known{"tensor", "pipeline"};
  const std::vector<Reader> items = document.root().at("names").items();
  std::size_t asked = 0;
  const CancelQuestion question = [&] { return ++asked == 50; };
  const CancelScope scope(&question);
  EXPECT_THROW(for (const Reader& item : items) item.one_of(known), Cancelled);
}

TEST(AskingText, EveryPieceOfALongTextIsAskedFor) {
  constexpr std::size_t kBytes = 400'000, kLeast = kBytes / 4096;
  for (const std::string part : {"\n", "# long\n", "&a ", "! ", "long words "}) {
    const std::string text = repeated(part, kBytes / part.size());
    EXPECT_GE(questions(Document::parse, text), kLeast) << part;
  }
  EXPECT_GE(questions(Document::parse, "[" + repeated("1,", kBytes / 2) + "1]"), kLeast);
  EXPECT_GE(questions(Document::parse_json, "[" + repeated("1,", kBytes / 2) + "1]"), kBytes / 2 / 256);
}

TEST(AskingText, AShortTextOfManyValuesIsAskedFor) {
  std::string text = "a0: &a0 [" + repeated("1,", 9) + "1]\n";  // each the tenfold of the one above
  for (int i = 1; i < 5; ++i) {
    const std::string alias = fmt::format("*a{}", i - 1);
    text += fmt::format("a{}: &a{} [{}{}]\n", i, i, repeated(alias + ",", 9), alias);
  }
  EXPECT_GE(questions(Document::parse, text), 100'000 / 256);
}

TEST(AskingText, UnknownKeysAreAskedForToo) {
  constexpr std::size_t kKeys = 20'000, kOfKeys = kKeys / 256;
  const std::string text = numbered_keys(kKeys);
  const std::size_t read = questions([](auto name, auto t) { return Document::parse(name, t); }, "name: x\n");
  EXPECT_GE(questions(Document::parse, text), read + text.size() / 4096 + 2 * kOfKeys);
}

}  // namespace
}  // namespace shardline
