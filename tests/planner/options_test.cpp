// Options of plans: values, their text, and the tables that derive from the rows of strategies.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>

#include "planner/serving/acceptance.hpp"
#include "planner/strategies/columns.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(Options, ValuesDoNotDependOnTheOrderOfSetting) {
  std::mt19937_64 random(5);
  const std::span<const Option* const> own = strategy("dcp").options;
  std::vector<const Option*> options(own.begin(), own.end());
  ASSERT_EQ(options.size(), kMostOptions);
  OptionValues reference;
  for (const Option* o : options) reference.set(*o, static_cast<int>(o->key[0]));
  for (int round = 0; round < 50; ++round) {
    std::shuffle(options.begin(), options.end(), random);
    OptionValues values;
    for (const Option* o : options) values.set(*o, 1 + static_cast<int>(random() % 9));
    values.set(*options[random() % kMostOptions], 0);  // unset, and set again below
    for (const Option* o : options) values.set(*o, static_cast<int>(o->key[0]));
    EXPECT_EQ(values, reference);
    for (const Option* o : options) values.set(*o, o->absent);
    EXPECT_EQ(values, OptionValues{});
  }
}

TEST(Options, AListIsLeftBehindByNoOtherValue) {
  Plan p = parse_plan("kv_runahead:cp=2,batch=1"), never = p;
  const OptionOf<Parts>& parts = *strategy("kv_runahead").parts;
  list_parts(p, {3, 5});
  EXPECT_EQ(p[parts], Parts::listed);
  EXPECT_FALSE(even_parts(p));
  EXPECT_EQ(to_string(p), "kv_runahead:cp=2,batch=1,partition=3/5");
  Plan other = p;
  list_parts(other, {4, 4});
  EXPECT_NE(p, other);
  set_parts(p, Parts::even);
  EXPECT_TRUE(even_parts(p));
  EXPECT_TRUE(listed_parts(p).empty());
  set_parts(never, Parts::even);
  EXPECT_EQ(p, never);
  list_parts(p, {3, 5});
  set_parts(p, Parts::searched);
  EXPECT_EQ(p, parse_plan("kv_runahead:cp=2,batch=1"));
}

// Every value of words and both ends of a range, of every option of every strategy.
TEST(Options, EveryValueHasATextThatParsesBack) {
  int texts = 0;
  for (const Strategy* s : strategies()) {
    for (const Option* option : s->options) {
      std::vector<std::string> values(option->words.begin(), option->words.end());
      if (option->words.empty()) values = {std::to_string(option->least), std::to_string(option->most)};
      if (option->lists) values.emplace_back("7/1/12");
      for (const std::string& value : values) {
        const std::string text = fmt::format("{}:batch=1,{}={}", s->name, option->key, value);
        const Plan p = parse_plan(text);
        const bool absent = p.options.of(*option) == option->absent;
        EXPECT_EQ(to_string(p), absent ? fmt::format("{}:batch=1", s->name) : text);
        EXPECT_EQ(parse_plan(to_string(p)), p);
        Plan many = p;
        many.batch = 7;
        EXPECT_EQ(parse_plan(sharding_text(many)), p);
        ++texts;
      }
      std::vector<std::string> bad{"", "nothing", "1.5"};
      if (option->words.empty())
        bad.insert(bad.end(), {std::to_string(option->least - 1), std::to_string(1LL + option->most)});
      for (const std::string& value : bad)
        EXPECT_THROW(parse_plan(fmt::format("{}:batch=1,{}={}", s->name, option->key, value)), UserError)
            << option->key << "=" << value;
    }
  }
  EXPECT_GT(texts, 20);
}

// Values of an option of numbers that differ from what its strategy tries by itself; all of words.
std::vector<int> asked_values(const Option& option) {
  std::vector<int> out;
  for (std::size_t i = 0; i < option.words.size(); ++i) out.push_back(static_cast<int>(i));
  if (out.empty()) out = {std::max(option.least, 2), std::max(option.least, 2) * 2};
  return out;
}

Case case_for(const Strategy& s, const char* model, bool decodes = false) {
  Case c = decode_case(model, "gb200-nvl72", 8192);
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  if (!s.prefills || decodes) return c;
  c.batch = prefill_batch({{0, 8192}});
  return c;
}

// Whether a sweep of the strategy has plans with this value, and, where it is asked for, no others but plans
// that do without the option.
bool tries(const Case& c, const Strategy& s, const Option& option, int value) {
  SearchSpace space;
  space.options = {{&option, {value}}};
  std::vector<Plan> plans;
  enumerate_plans(c, s, 16, space, plans);
  bool any = false;
  for (const Plan& p : plans) {
    if (!within(p, space)) continue;
    any = any || p.options.of(option) == value;
    EXPECT_TRUE(p.options.of(option) == value || p.options.of(option) == option.absent) << to_string(p);
  }
  return any;
}

// What a scenario asks of an option is what a sweep tries of it: of every option, whatever its strategy
// enumerates by itself.
TEST(Options, ASweepTriesWhatIsAskedAndNothingElse) {
  int asked = 0;
  for (const Strategy* s : strategies()) {
    for (const Option* option : s->options) {
      if (option->lists) continue;
      for (const int value : asked_values(*option)) {
        SCOPED_TRACE(fmt::format("{} {}={}", s->name, option->key, value));
        bool tried = false;
        for (const char* model : {"deepseek-r1", "llama-3.1-405b"})
          tried = tries(case_for(*s, model, !option->prefills), *s, *option, value) || tried;
        EXPECT_TRUE(tried);
        ++asked;
      }
    }
  }
  EXPECT_GT(asked, 25);
}

TEST(Options, WhatASpaceLeavesNoChoiceAboutHoldsWhereATextIsSilent) {
  const Case prefill = case_for(strategy("ring_pass_kv"), "llama-3.1-405b");
  const Case decode = case_for(strategy("helix"), "llama-3.1-405b");
  const Plan ring = parse_plan("ring_pass_kv:cp=8,batch=1");
  SearchSpace space;
  space.options = {{&option_of(ring, "layout"), {1}}};
  EXPECT_EQ(to_string(plan_of(prefill, space, "ring_pass_kv:cp=8,batch=1")),
            "ring_pass_kv:cp=8,batch=1,layout=contiguous");
  EXPECT_EQ(plan_of(prefill, space, "ring_pass_kv:cp=8,batch=1,layout=zigzag"), ring);
  EXPECT_EQ(plan_of(prefill, space, "ulysses:cp=8,batch=1"), parse_plan("ulysses:cp=8,batch=1"));
  space.options.front().values = {0, 1};
  EXPECT_EQ(plan_of(prefill, space, "ring_pass_kv:cp=8,batch=1"), ring);
  // Chunks are tried beside whole prompts, and a row of these names none.
  space.options = {{&kPrefillChunk, {2048}}};
  EXPECT_EQ(plan_of(prefill, space, "ring_pass_kv:cp=8,batch=1"), ring);
  // A batch has a request per chunk.
  EXPECT_EQ(plan_of(decode, {}, "helix:kvp=2,tpf=2,chunks=4").batch, 4);
  EXPECT_EQ(plan_of(decode, {}, "helix:kvp=2,tpf=2,batch=3,chunks=4").batch, 3);
  // What means nothing to a model is not asked of its plans.
  const Plan helix = parse_plan("helix:kvp=2,tpf=2,batch=1");
  space.options = {{&option_of(helix, "value_up"), {1}}};
  EXPECT_EQ(plan_of(decode, space, "helix:kvp=2,tpf=2,batch=1"), helix);
  EXPECT_EQ(value_of(plan_of(case_for(strategy("helix"), "deepseek-r1"), space, "helix:kvp=2,tpf=2,batch=1"),
                     "value_up"),
            1);
}

// A key that a strategy does not read would silently mean nothing in its plans.
TEST(Options, OfOtherStrategiesAreRefusedByName) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 1000);
  int refused = 0;
  for (const Strategy* s : strategies()) {
    for (const Strategy* other : strategies()) {
      for (const Option* option : other->options) {
        if (s->reads(*option) || std::any_of(s->options.begin(), s->options.end(), [&](const Option* own) {
              return std::string_view(own->key) == option->key;
            }))
          continue;
        const std::string value = option->words.empty() ? std::to_string(option->most) : option->words.back();
        EXPECT_THAT(refusal(c, fmt::format("{}:batch=1,{}={}", s->name, option->key, value)),
                    ::testing::MatchesRegex(fmt::format("{} is for .*, not {}", option->key, s->name)));
        // Nor does a check let one pass that a program has set.
        Plan p = parse_plan(fmt::format("{}:batch=1", s->name));
        p.options.set(*option,
                      option->words.empty() ? option->most : static_cast<int>(option->words.size()) - 1);
        EXPECT_TRUE(check_plan(c, p)) << s->name << " " << option->key;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Options, CsvHasAColumnForEveryKeyOfThePhase) {
  const auto decode = plan_columns(StepKind::decode), prefill = plan_columns(StepKind::prefill);
  for (const Strategy* s : strategies()) {
    for (const Option* option : s->options) {
      const bool decodes = s->decodes && option->decodes;
      EXPECT_EQ(std::count(decode.begin(), decode.end(), std::string(option->key)), decodes ? 1 : 0);
      if (s->prefills && option->prefills) {
        EXPECT_THAT(prefill, Contains(option->key));
      }
    }
  }
  EXPECT_THAT(prefill, Not(Contains("kvp")));
  const Plan p = parse_plan("helix:kvp=8,tpf=8,batch=4,chunks=2,value_up=after");
  const auto cells = plan_cells(p, StepKind::decode);
  ASSERT_EQ(cells.size(), decode.size());
  const auto cell = [&](const char* column) {
    return cells[static_cast<std::size_t>(std::find(decode.begin(), decode.end(), column) - decode.begin())];
  };
  EXPECT_EQ(cell("kvp"), "8");
  EXPECT_EQ(cell("chunks"), "2");
  EXPECT_EQ(cell("value_up"), "after");
  EXPECT_EQ(cell("dense_tp"), "");
}

std::string code(const std::string& text) { return "`" + text + "`"; }

// The tables of scenarios/README.md between the lines that say so; made anew here.
TEST(Options, TablesOfTheReadmeAreThoseOfTheRows) {
  std::string keys = "| Strategy | For | Its keys |\n|---|---|---|\n";
  for (const Strategy* s : strategies())
    keys += fmt::format("| {} | {} | {} |\n", code(s->name), kinds_text(*s), keys_text(*s));
  std::string meanings = "| Key | Values | Of | Meaning |\n|---|---|---|---|\n";
  for (const DegreeField& degree : kDegrees)
    meanings += fmt::format("| {} | 1 to 1000000 | degrees | {} |\n", code(degree.key), degree.help);
  for (const OptionRow& row : option_rows())
    meanings += fmt::format("| {} | {} | {} | {} |\n", code(row.key), row.values, row.strategies, row.help);
  const std::string file = "scenarios/README.md", text = testing::read_file(source_path(file));
  const std::string begin = "<!-- made from the rows of strategies -->\n", end = "<!-- end -->\n";
  const std::size_t from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos);
  const std::string wanted = keys + "\n" + meanings;
  const std::string found = text.substr(from + begin.size(), to - from - begin.size());
  if (found == wanted) return;
  const std::filesystem::path made = std::filesystem::path(SHARDLINE_BINARY_DIR) / "scenarios-README.md.new";
  std::ofstream(made) << text.substr(0, from + begin.size()) << wanted << text.substr(to);
  FAIL() << file << " is not what the rows say; what is current: " << made;
}

}  // namespace
}  // namespace shardline
