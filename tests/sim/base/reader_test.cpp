// Getters: what they return, and the whole of each message.
#include "sim/base/reader.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace shardline {
namespace {

constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();

/// The message of every fault after `read`, or "" if there is none.
std::string error_of(const std::string& text, const std::function<void(Reader)>& read) {
  try {
    const Document document = Document::parse("t.yaml", text);
    read(document.root());
    document.finish();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// The message for the value of `x`, given as the only content of a text.
std::string value_error(const std::string& value, const std::function<void(Reader)>& read) {
  return error_of(fmt::format("x: {}\n", value), [&](Reader r) { read(r.at("x")); });
}

std::string faulty_value(const std::string& value, const std::string& what, const std::string& details = "") {
  return fmt::format("t.yaml:1:4: x: {}\n  x: {}\n     ^\n{}", what, value, details);
}

void integer(Reader r) { r.integer(1, 64); }
void fraction(Reader r) { r.number(0, 1); }
void flag(Reader r) { r.boolean(); }
void context(Reader r) { r.tokens(1, 1'048'576); }
void bandwidth(Reader r) { r.quantity(gigabytes_per_second(1), gigabytes_per_second(10'000)); }

TEST(Reader, FaultsAtAWordStandWhereItDoes) {
  const auto place = [](const std::string& value, std::size_t number, const char* word) {
    const std::string message =
        value_error(value, [&](Reader r) { r.fault_at_word(number, word, "is wrong"); });
    return message.substr(0, message.find(':', message.find(':', 7) + 1));
  };
  EXPECT_EQ(place("1 2  30 4", 2, "30"), "t.yaml:1:9");
  EXPECT_EQ(place("\"1 2 30\"", 2, "30"), "t.yaml:1:9");
  EXPECT_EQ(place(">-  # integers\n    1 2\n    30 4", 2, "30"), "t.yaml:3:5");
  EXPECT_EQ(place("|\n    1 2\n\n    30 4\n", 3, "4"), "t.yaml:4:8");
  EXPECT_EQ(place("\"1\\n30\"", 1, "30"), "t.yaml:1:4");  // an escape: at the text
  EXPECT_EQ(place("1 2", 5, "7"), "t.yaml:1:4");
}

TEST(Reader, ReadsEveryKind) {
  const Document d =
      Document::parse("t.yaml",
                      "gpus: 8\nratio: 0.5\nexact: true\nlink: 450 GB/s\nlaunch: 4us\nmemory: 186 GB\n"
                      "peak: 10 PFLOP/s\nwork: 3 TFLOP\ncontext: 1M tokens\nname: ring\nsizes: [1, 2]\n"
                      "none: ~\n\"q k\": -5\n");
  const Reader r = d.root();
  EXPECT_TRUE(r.is_map());
  EXPECT_EQ(r.at("gpus").integer(8, 8), 8);  // both bounds belong to the range
  EXPECT_EQ(r.at("ratio").number(0.5, 0.5), 0.5);
  EXPECT_TRUE(r.at("exact").boolean());
  EXPECT_EQ(r.at("link").quantity(BytesPerSecond(0), BytesPerSecond(450e9)).value, 450e9);
  EXPECT_EQ(r.at("launch").quantity(Seconds(4e-6), Seconds(1)).value, 4e-6);
  EXPECT_EQ(r.at("memory").quantity(Bytes(0), Bytes(1e12)).value, 186e9);
  EXPECT_EQ(r.at("peak").quantity(FlopsPerSecond(0), FlopsPerSecond(1e18)).value, 1e16);
  EXPECT_EQ(r.at("work").quantity(Flops(0), Flops(1e18)).value, 3e12);
  EXPECT_EQ(r.at("context").tokens(1, 1'048'576), 1'048'576);
  EXPECT_EQ(r.at("name").one_of({"helix", "ring"}), 1U);
  EXPECT_EQ(r.at("name").text(), "ring");
  ASSERT_EQ(r.at("sizes").items().size(), 2U);
  EXPECT_EQ(r.at("sizes").items()[1].integer(0, 9), 2);
  EXPECT_EQ(r.at("sizes").items()[1].path(), "sizes[1]");
  EXPECT_TRUE(r.at("none").is_null());
  EXPECT_EQ(r.at("q k").integer(kMin64, kMax64), -5);
  EXPECT_EQ(r.keys().size(), 13U);
  EXPECT_TRUE(r.has("gpus"));
  EXPECT_FALSE(r.has("gpu"));
  EXPECT_FALSE(r.find("gpu").has_value());
  EXPECT_EQ(r.at("name").location().line, 10);
  EXPECT_EQ(r.at("name").location().column, 7);
  r.no_other_keys();
  EXPECT_FALSE(d.faulty());
  EXPECT_NO_THROW(d.finish());
}

TEST(Reader, UnknownKeys) {
  const auto read = [](Reader r) {
    const Reader plan = r.at("plan");
    plan.find("kv_parallel");
    plan.find("tp_attention");
    plan.find("kv_parallel");  // asked twice, listed once
    plan.no_other_keys();
  };
  EXPECT_EQ(error_of("plan:\n  kv_paralel: 8\n", read),
            "t.yaml:2:3: unknown key plan.kv_paralel\n"
            "    kv_paralel: 8\n"
            "    ^\n"
            "expected one of: kv_parallel, tp_attention\n"
            "did you mean kv_parallel?\n");
  EXPECT_EQ(error_of("plan: {kv_parallel: 8, zz: 1}\n", read),
            "t.yaml:1:24: unknown key plan.zz\n"
            "  plan: {kv_parallel: 8, zz: 1}\n"
            "                         ^\n"
            "expected one of: kv_parallel, tp_attention\n");
  EXPECT_EQ(error_of("x: 1\n", [](Reader r) { r.has("x"), r.no_other_keys(); }),
            "t.yaml:1:1: unknown key x\n  x: 1\n  ^\n");
  EXPECT_EQ(error_of("x: 1\n", [](Reader r) { r.allow_other_keys(), r.no_other_keys(); }), "");
}

TEST(Reader, MissingKeysBlameTheParent) {
  const auto read = [](Reader r) {
    EXPECT_EQ(r.at("scenario").at("gpus").integer(3, 64), 3);  // the lowest bound
    EXPECT_EQ(r.at("scenario").at("links").items().size(), 0U);
    EXPECT_EQ(r.at("scenario").at("links").at("deeper").text(), "");  // no further fault
    EXPECT_EQ(r.at("scenario").at("gpus").at("x").quantity(Bytes(5), Bytes(6)).value, 5.0);
    r.at("scenario").at("gpus").fault("never shown");
  };
  EXPECT_EQ(error_of("a: 1\nscenario:\n  nodes: 1\n", read),
            "t.yaml:2:1: missing key gpus in scenario\n  scenario:\n  ^\n"
            "t.yaml:2:1: missing key links in scenario\n  scenario:\n  ^\n");
  EXPECT_EQ(error_of("- a: 1\n- b: 2\n", [](Reader r) { r.items()[1].at("a"); }),
            "t.yaml:2:3: missing key a in [1]\n  - b: 2\n    ^\n");
  EXPECT_EQ(error_of("a: 1\n", [](Reader r) { r.at("b"); }), "t.yaml:1:1: missing key b\n  a: 1\n  ^\n");
}

TEST(Reader, WrongKinds) {
  const auto mapping = [](Reader r) { r.at("y"); };
  const auto sequence = [](Reader r) { r.items(); };
  const auto text = [](Reader r) { r.text(); };
  EXPECT_EQ(value_error("[1]", mapping), faulty_value("[1]", "expected a mapping, found a sequence"));
  EXPECT_EQ(value_error("7", mapping), faulty_value("7", "expected a mapping, found 7"));
  EXPECT_EQ(value_error("~", mapping), faulty_value("~", "expected a mapping, found nothing"));
  EXPECT_EQ(value_error("{a: 1}", sequence), faulty_value("{a: 1}", "expected a sequence, found a mapping"));
  EXPECT_EQ(value_error("\"a\"", sequence),
            faulty_value("\"a\"", "expected a sequence, found the quoted text \"a\""));
  EXPECT_EQ(value_error("[1]", text), faulty_value("[1]", "expected a text, found a sequence"));
  EXPECT_EQ(value_error("[1]", integer), faulty_value("[1]", "expected an integer, found a sequence"));
  EXPECT_EQ(value_error("{a: 1}", flag), faulty_value("{a: 1}", "expected true or false, found a mapping"));
  // Block collections and empty values are blamed on their key, not on the next line.
  EXPECT_EQ(error_of("x:\n  - 1\n", [](Reader r) { r.at("x").keys(); }),
            "t.yaml:1:1: x: expected a mapping, found a sequence\n  x:\n  ^\n");
  EXPECT_EQ(error_of("x:\nnull_y: 1\n", [](Reader r) { r.at("x").text(); }),
            "t.yaml:1:1: x: expected a text, found nothing\n  x:\n  ^\n");
}

TEST(Reader, Integers) {
  EXPECT_EQ(value_error("64", integer), "");
  EXPECT_EQ(value_error("0", integer), faulty_value("0", "expected 1 to 64, found 0"));
  EXPECT_EQ(value_error("65", integer), faulty_value("65", "expected 1 to 64, found 65"));
  EXPECT_EQ(value_error("99999999999999999999", integer),
            faulty_value("99999999999999999999", "expected 1 to 64, found 99999999999999999999"));
  EXPECT_EQ(value_error("-1", [](Reader r) { r.integer(0, kMax64); }),
            faulty_value("-1", "expected at least 0, found -1"));
  EXPECT_EQ(value_error("1", [](Reader r) { r.integer(kMin64, 0); }),
            faulty_value("1", "expected at most 0, found 1"));
  EXPECT_EQ(value_error("9223372036854775808", [](Reader r) { r.integer(kMin64, kMax64); }),
            faulty_value("9223372036854775808", "expected an integer of 64 bits, found 9223372036854775808"));
  EXPECT_EQ(value_error("010", integer),
            faulty_value("010", "expected an integer, found 010",
                         "a leading zero means octal to some readers: write it without\n"));
  EXPECT_EQ(value_error("0x10", integer), faulty_value("0x10", "expected an integer, found 0x10",
                                                       "hexadecimal numbers are not accepted\n"));
  EXPECT_EQ(value_error("0o17", integer),
            faulty_value("0o17", "expected an integer, found 0o17", "octal numbers are not accepted\n"));
  EXPECT_EQ(value_error("\"8\"", integer),
            faulty_value("\"8\"", "expected an integer, found the quoted text \"8\"", "remove the quotes\n"));
  EXPECT_EQ(value_error("'a'", integer),
            faulty_value("'a'", "expected an integer, found the quoted text \"a\""));
  EXPECT_EQ(value_error("1.0", integer), faulty_value("1.0", "expected an integer, found 1.0"));
  EXPECT_EQ(value_error("8 gpus", integer), faulty_value("8 gpus", "expected an integer, found 8 gpus"));
  EXPECT_EQ(value_error("1_000", integer),
            faulty_value("1_000", "expected an integer, found 1_000", "write it without separators\n"));
  EXPECT_EQ(value_error("+5", integer),
            faulty_value("+5", "expected an integer, found +5", "write it without the +\n"));
}

TEST(Reader, Numbers) {
  EXPECT_EQ(value_error("1e-05", fraction), "");
  EXPECT_EQ(value_error("1.0", fraction), "");
  EXPECT_EQ(value_error("1.5", fraction), faulty_value("1.5", "expected 0 to 1, found 1.5"));
  EXPECT_EQ(value_error("half", fraction), faulty_value("half", "expected a number, found half"));
  EXPECT_EQ(value_error(".inf", fraction), faulty_value(".inf", "expected a number, found .inf"));
  EXPECT_EQ(value_error("NaN", fraction),
            faulty_value("NaN", "expected a finite number in the range of a double, found NaN"));
  EXPECT_EQ(value_error("1e999", fraction),
            faulty_value("1e999", "expected a finite number in the range of a double, found 1e999"));
  EXPECT_EQ(value_error("00.5", fraction),
            faulty_value("00.5", "expected a number, found 00.5",
                         "a leading zero means octal to some readers: write it without\n"));
  EXPECT_EQ(
      value_error("\"0.5\"", fraction),
      faulty_value("\"0.5\"", "expected a number, found the quoted text \"0.5\"", "remove the quotes\n"));
}

TEST(Reader, Booleans) {
  EXPECT_EQ(value_error("false", flag), "");
  for (const std::string yes : {"yes", "on", "Y", "True"})
    EXPECT_EQ(value_error(yes, flag),
              faulty_value(yes, "expected true or false, found " + yes, "write true\n"));
  for (const std::string no : {"no", "OFF", "n", "FALSE"})
    EXPECT_EQ(value_error(no, flag),
              faulty_value(no, "expected true or false, found " + no, "write false\n"));
  EXPECT_EQ(value_error("1", flag), faulty_value("1", "expected true or false, found 1"));
  EXPECT_EQ(value_error("\"true\"", flag),
            faulty_value("\"true\"", "expected true or false, found the quoted text \"true\"",
                         "remove the quotes\n"));
}

TEST(Reader, QuantitiesAndTokens) {
  const std::string wanted = "expected a bandwidth such as \"450 GB/s\", found ";
  EXPECT_EQ(value_error("\"450 GB/s\"", bandwidth), "");  // JSON needs the quotes
  EXPECT_EQ(value_error("450", bandwidth), faulty_value("450", wanted + "a number without a unit"));
  EXPECT_EQ(value_error("450 GB", bandwidth), faulty_value("450 GB", wanted + "the unit \"GB\""));
  EXPECT_EQ(value_error("[1]", bandwidth), faulty_value("[1]", wanted + "a sequence"));
  EXPECT_EQ(value_error("~", bandwidth), faulty_value("~", wanted + "nothing"));
  EXPECT_EQ(value_error("450 MB/s", bandwidth),
            faulty_value("450 MB/s", "expected 1 GB/s to 10 TB/s, found 450 MB/s"));
  const auto time = [](Reader r) {
    r.quantity(Seconds(0), Seconds(std::numeric_limits<double>::infinity()));
  };
  EXPECT_EQ(value_error("-1 s", time), faulty_value("-1 s", "expected at least 0 s, found -1 s"));
  EXPECT_EQ(value_error("1000", context),
            faulty_value("1000",
                         "expected a count of tokens such as \"128Ki tokens\", found a number without a "
                         "unit: write \"1000 tokens\""));
  EXPECT_EQ(value_error("2M tokens", context),
            faulty_value("2M tokens", "expected 1 to 1048576 tokens, found 2M tokens"));
}

TEST(Reader, Names) {
  const auto name = [](Reader r) { EXPECT_EQ(r.one_of({"helix", "ring"}), 0U); };
  EXPECT_EQ(value_error("helx", name),
            faulty_value("helx", "unknown name helx", "expected one of: helix, ring\ndid you mean helix?\n"));
  EXPECT_EQ(value_error("[helix]", name), faulty_value("[helix]", "expected a name, found a sequence"));
}

TEST(Reader, AllFaultsInOrderOfPositionAndOnce) {
  EXPECT_EQ(error_of("a: x\nb: y\nc: 3\n",
                     [](Reader r) {
                       r.at("b").integer(0, 1);
                       r.at("a").integer(0, 1);
                       r.at("b").integer(0, 1);
                       r.no_other_keys();
                     }),
            "t.yaml:1:4: a: expected an integer, found x\n  a: x\n     ^\n"
            "t.yaml:2:4: b: expected an integer, found y\n  b: y\n     ^\n"
            "t.yaml:3:1: unknown key c\n  c: 3\n  ^\nexpected one of: b, a\n");
}

// Two edits of four letters: far, but a key that is missing was meant.
TEST(Reader, UnknownKeysAreTakenForMissingOnes) {
  const auto message = [](const std::string& text) -> std::string {
    const Document d = Document::parse("t.yaml", text);
    const Reader r = d.root();
    r.at("models");
    r.find("mode");
    r.no_other_keys();
    try {
      d.finish();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("modle: x\n"),
            "t.yaml:1:1: missing key models\n  modle: x\n  ^\n"
            "t.yaml:1:1: unknown key modle\n  modle: x\n  ^\n"
            "expected one of: models, mode\ndid you mean mode?\n");
  EXPECT_EQ(message("mdls: x\n"),
            "t.yaml:1:1: missing key models\n  mdls: x\n  ^\n"
            "t.yaml:1:1: unknown key mdls\n  mdls: x\n  ^\n"
            "expected one of: models, mode\ndid you mean models?\n");
}

TEST(Reader, ManyFaultsAreCounted) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("k{}: 1\n", i);
  const std::string error = error_of(text, [](Reader r) { r.no_other_keys(); });
  EXPECT_TRUE(error.ends_with("t.yaml: 800 more faults\n")) << error.substr(error.size() - 100);
}

TEST(Reader, LongValuesAreShortened) {
  const std::string error = value_error(std::string(70, 'x'), integer);
  EXPECT_TRUE(
      error.starts_with("t.yaml:1:4: x: expected an integer, found " + std::string(60, 'x') + "...\n"))
      << error;
}

/// The paths of keys of all faults, in order.
std::vector<std::string> keys_of(const std::string& text, const std::function<void(Reader)>& read,
                                 const std::vector<std::string>& settings = {}) {
  std::vector<std::string> out;
  try {
    Document document = Document::parse("t.yaml", text);
    for (const std::string& s : settings) document.set("--set", s);
    read(document.root());
    document.finish();
  } catch (const UserError& error) {
    for (const Diagnostic& d : error.diagnostics()) out.push_back(d.where.key);
  }
  return out;
}

TEST(Reader, FaultsNameTheirKey) {
  using Keys = std::vector<std::string>;
  const auto read = [](Reader r) {
    const Reader a = r.at("a");
    a.at("b").integer(1, 8);
    if (const auto list = r.find("list")) {
      for (const Reader& item : list->items()) item.at("n").integer(1, 8);
    }
    a.no_other_keys();
    r.no_other_keys();
  };
  EXPECT_EQ(keys_of("a: {b: 1}\n", read), Keys{});
  EXPECT_EQ(keys_of("a: {b: 9}\n", read), Keys{"a.b"});
  EXPECT_EQ(keys_of("a: {c: 1}\n", read), (Keys{"a.b", "a.c"}));  // what is missing, and what is unknown
  EXPECT_EQ(keys_of("c: 1\n", read), (Keys{"a", "c"}));
  EXPECT_EQ(keys_of("a: {b: 1}\nlist: [{n: 1}, {n: x}, {}]\n", read), (Keys{"list[1].n", "list[2].n"}));
  EXPECT_EQ(keys_of("a: {b: 1, b: 2}\n", read), Keys{"a.b"});
  EXPECT_EQ(keys_of("a:\n  b: !!int 1\n", read), Keys{"a.b"});
  EXPECT_EQ(keys_of("a:\n  <<: {}\n  b: 1\n", read), Keys{"a.<<"});
  EXPECT_EQ(keys_of("a: [\n", read), Keys{""});  // no YAML has no keys
}

// What --input takes, a setting takes, too; files say the unit.
TEST(Reader, CountsOfSettingsAreAsOnACommandLine) {
  const auto read = [](const std::string& setting) {
    Document document = Document::parse("t.yaml", "n: 1\nlength: 1 token\n");
    document.set("--set", setting);
    const auto n = document.root().at("n").integer(1, 1 << 20);
    const auto length = document.root().at("length").tokens(1, 1 << 20);
    return document.faulty() ? std::pair{0LL, 0LL} : std::pair<long long, long long>{n, length};
  };
  EXPECT_EQ(read("n=4K"), std::pair(4096LL, 1LL));
  EXPECT_EQ(read("n=1Ki"), std::pair(1024LL, 1LL));
  EXPECT_EQ(read("length=4K"), std::pair(1LL, 4096LL));
  EXPECT_EQ(read("length=4096"), std::pair(1LL, 4096LL));
  EXPECT_EQ(read("length=4K tokens"), std::pair(1LL, 4096LL));
  for (const char* none :
       {"n=4 GB", "n=2.5", "n=0.3K", "n=1e3", "n=4 tokens", "n=2M", "n=-1K", "length=4 GiB"})
    EXPECT_EQ(read(none), std::pair(0LL, 0LL)) << none;
  const auto of_file = [](Reader r) { r.at("n").integer(1, 8192); };
  EXPECT_EQ(keys_of("n: 4K\n", of_file), std::vector<std::string>{"n"});
}

TEST(Reader, FaultsOfSettingsNameTheirKey) {
  using Keys = std::vector<std::string>;
  const auto read = [](Reader r) {
    r.at("a").at("b").integer(1, 8);
    r.at("a").no_other_keys();
    r.no_other_keys();
  };
  const std::string text = "a: {b: 1}\n";
  EXPECT_EQ(keys_of(text, read, {"a.b=2"}), Keys{});
  EXPECT_EQ(keys_of(text, read, {"a.b=9"}), Keys{"a.b"});
  EXPECT_EQ(keys_of(text, read, {"a.c=9"}), Keys{"a.c"});
  EXPECT_EQ(keys_of(text, read, {"a.b=1", "a.b=2"}), Keys{"a.b"});
  EXPECT_EQ(keys_of(text, read, {"a.b.c=1"}), Keys{"a.b.c"});
  EXPECT_EQ(keys_of(text, read, {"a.c={d: 1, d: 2}"}), (Keys{"a.c", "a.c.d"}));
  EXPECT_EQ(keys_of(text, read, {"a.b="}), Keys{"a.b"});
}

}  // namespace
}  // namespace shardline
