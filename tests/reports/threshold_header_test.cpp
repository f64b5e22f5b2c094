#include "reports/threshold_header.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "planner/studies/thresholds.hpp"
#include "reports/threshold_tables.hpp"
#include "sim/base/reader.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

/// Invented times with a boundary across the whole table and a jump at T = 1024 N.
RingPoint timed(int ranks, TokenSplit s) {
  const double t = static_cast<double>(s.fresh);
  const double total = static_cast<double>(s.fresh + s.cached);
  const double jump = s.fresh > 1024 * ranks ? 0.03 : 0;
  const double log = 0.11 * std::log(t / (700.0 * ranks)) + 0.09 * std::log(20 * t / total) + jump +
                     0.05 * std::sin(3 * std::log(total));
  return {.ranks = ranks,
          .fresh = s.fresh,
          .cached = s.cached,
          .pass_kv = Seconds(1),
          .pass_q = Seconds(std::exp(log))};
}

ThresholdLine plain(const EmpiricalRule& r) {
  return {r.alpha(), r.beta(), r.gamma(), r.fixed().fresh, r.fixed().miss, r.fixed().constant};
}

EmpiricalRule in_context(int ranks) { return {0.3, 1 + 0.1 * ranks, -1}; }

struct Made {
  AnalyticRule algorithm_1, algorithm_5;  // for any one N
  std::vector<LookupTable> tables;
  std::vector<EmpiricalRule> empirical;
  ThresholdRules rules;
};

Made make() {
  Made made;
  const RingSetting setting{.q_heads = 128,
                            .kv_heads = 8,
                            .element_bytes = 2,
                            .compute = FlopsPerSecond(8 * 800e12),
                            .bandwidth = gigabytes_per_second(8 * 50)};
  made.algorithm_1 = algorithm_1(setting, 2);
  made.algorithm_5 = algorithm_5(setting, 2);
  ThresholdRules& rules = made.rules;
  rules.provenance = {.model = "llama3-405b \"dense\"",
                      .system = "gtt ends with a backslash \\",
                      .version = "0.1.0",
                      .command = "shardline thresholds\n#error \?\?/ */",
                      .ranges = "T 512 to 1Mi, m 1/256 to 1",
                      .precision = "µ bf16",
                      .engine = "vLLM 0.24.0",
                      .interval = "nominal 90 %",
                      .context = "60 requests of \"trace\""};
  rules.kv_hidden_tokens = made.algorithm_5.kv_hidden_tokens;
  rules.message_ratio = made.algorithm_5.message_ratio;
  rules.all_to_all_tokens = made.algorithm_5.all_to_all_tokens;
  rules.appendix_d = plain(appendix_d());
  for (const int ranks : {2, 4, 16}) {
    constexpr long long kLimit = 1 << 20;
    const RefinedTable refined = refined_table(LookupGrid::covering(ranks, 512, kLimit, 1.0 / 256, 4, 2),
                                               ranks, kLimit, [](int n, std::span<const TokenSplit> splits) {
                                                 std::vector<RingPoint> out;
                                                 for (const TokenSplit& s : splits)
                                                   out.push_back(timed(n, s));
                                                 return out;
                                               });
    made.tables.push_back(refined.table);
    made.empirical.push_back(fit_empirical(refined.points));
    const LookupTable& t = made.tables.back();
    rules.rings.push_back({.ranks = ranks,
                           .empirical = plain(made.empirical.back()),
                           .miss_per_octave = t.grid().miss_per_octave,
                           .miss_nodes = t.grid().miss_nodes,
                           .fresh = t.grid().fresh,
                           .lines = t.lines(),
                           .step = t.step(),
                           .values = t.values(),
                           .crossing = ThresholdCrossing{128'000, 0.05, 0.03125, 0.0625},
                           .in_context = plain(in_context(ranks))});
  }
  return made;
}

struct Request {
  int cp;
  long long fresh, cached;
};

/// 10,000 requests of all sizes, the edges of the ranges, and absurd ones.
std::vector<Request> requests() {
  std::mt19937_64 rng(2411);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(rng() >> 11) / 9007199254740992.0;
  };
  constexpr long long kMax = std::numeric_limits<long long>::max();
  constexpr long long kMin = std::numeric_limits<long long>::min();
  std::vector<Request> out;
  for (const int cp : {-1, 0, 1, 2, 3, 4, 8, 16, 1000, std::numeric_limits<int>::max()})
    for (const long long fresh : {kMin, -1LL, 0LL, 1LL, 512LL, 4096LL, 4104LL, 1LL << 20, kMax})
      for (const long long cached : {kMin, -1LL, 0LL, 1LL, 4096LL, kMax}) out.push_back({cp, fresh, cached});
  while (out.size() < 10000) {
    const int cp = std::array{2, 3, 4, 5, 8, 16, 32}[rng() % 7];
    const double fresh = std::exp2(uniform(6, 22));
    const double cached = fresh * (std::exp2(uniform(0, 9)) - 1);
    out.push_back({cp, static_cast<long long>(fresh), static_cast<long long>(cached)});
  }
  return out;
}

int shell(const std::string& command) { return std::system(command.c_str()); }

void put(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

std::string get(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

/// Empty if it compiles, else the compiler's words.
std::string compile(const TemporaryFolder& folder, const std::string& compiler, const std::string& source,
                    const std::string& more) {
  put(folder.path() / "main.cpp", source);
  const std::string log = (folder.path() / "log").string();
  const int rc = shell("cd '" + folder.path().string() + "' && " + compiler +
                       " -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion "
                       "-Wold-style-cast -Werror " +
                       more + " main.cpp > '" + log + "' 2>&1");
  return rc == 0 ? "" : "failed: " + get(log);
}

std::vector<std::string> compilers() {
  std::vector<std::string> out;
  for (const std::string name : {"c++", "g++", "clang++"})
    if (shell("command -v " + name + " > /dev/null 2>&1") == 0) out.push_back(name);
  return out;
}

constexpr const char* kMain = R"(#include "thresholds.hpp"
#include "second.hpp"
#include <cstdio>
int main() {
  namespace s = shardline_thresholds;
  int cp = 0;
  long long t = 0, p = 0;
  while (std::scanf("%d %lld %lld", &cp, &t, &p) == 3) {
    const s::RingVariant v[] = {s::select(cp, t, p), s::algorithm_1(cp, t, p), s::algorithm_5(cp, t, p),
                                s::empirical(cp, t, p), s::appendix_d(cp, t, p),
                                s::in_context(cp, t, p)};
    for (const s::RingVariant x : v) std::putchar(x == s::RingVariant::pass_kv ? 'k' : 'q');
    std::putchar('\n');
  }
  std::puts(s::kModel);
  std::puts(s::kCommand);
  std::printf("%s\n%s\n%s\n", s::kEngine, s::kInterval, s::kContext);
  for (const s::Crossing& c : s::kCrossings)
    std::printf("%d %.0f %g %g %g\n", c.cp, static_cast<double>(c.total_tokens), c.miss_rate, c.lowest_miss_rate, c.most_miss_rate);
}
)";

std::string chosen(const Made& made, const Request& r) {
  const auto letter = [](bool pass_kv) { return pass_kv ? 'k' : 'q'; };
  if (r.cp <= 1) return "kkkkkk";
  AnalyticRule one = made.algorithm_1;
  AnalyticRule five = made.algorithm_5;
  one.ranks = five.ranks = r.cp;
  const LookupTable& table = nearest_table(made.tables, r.cp);
  const auto at = static_cast<std::size_t>(&table - made.tables.data());
  return {letter(table.pass_kv(r.fresh, r.cached)),
          letter(one.pass_kv(r.fresh, r.cached)),
          letter(five.pass_kv(r.fresh, r.cached)),
          letter(made.empirical[at].pass_kv(r.fresh, r.cached)),
          letter(appendix_d().pass_kv(r.fresh, r.cached)),
          letter(in_context(table.ranks()).pass_kv(r.fresh, r.cached))};
}

TEST(ThresholdHeader, DecidesAsThePlanner) {
  if (compilers().empty()) GTEST_SKIP() << "no C++ compiler found";
  const Made made = make();
  const TemporaryFolder folder;
  put(folder.path() / "thresholds.hpp", threshold_header(made.rules));
  put(folder.path() / "second.hpp", "#include \"thresholds.hpp\"\n");
  const std::vector<Request> all = requests();
  std::string input;
  for (const Request& r : all)
    input += std::to_string(r.cp) + " " + std::to_string(r.fresh) + " " + std::to_string(r.cached) + "\n";
  put(folder.path() / "in", input);

  for (const std::string& compiler : compilers()) {
    SCOPED_TRACE(compiler);
    ASSERT_EQ(compile(folder, compiler, kMain, "-O1 -o run"), "");
    ASSERT_EQ(shell("cd '" + folder.path().string() + "' && ./run < in > out"), 0);
    std::istringstream out(get(folder.path() / "out"));
    std::string line;
    std::array<int, 6> pass_kv{};
    for (const Request& r : all) {
      ASSERT_TRUE(std::getline(out, line));
      ASSERT_EQ(line, chosen(made, r)) << r.cp << " " << r.fresh << " " << r.cached;
      for (std::size_t k = 0; k < pass_kv.size(); ++k) pass_kv[k] += line[k] == 'k';
    }
    for (const int count : pass_kv) {  // every rule has both answers often enough to tell
      EXPECT_GT(count, 1000);
      EXPECT_LT(count, 9500);
    }
    EXPECT_TRUE(std::getline(out, line));
    EXPECT_EQ(line, made.rules.provenance.model);
    std::string rest((std::istreambuf_iterator<char>(out)), {});
    EXPECT_EQ(rest,
              made.rules.provenance.command +
                  "\nvLLM 0.24.0\nnominal 90 %\n60 requests of \"trace\"\n2 128000 0.05 0.03125 0.0625\n"
                  "4 128000 0.05 0.03125 0.0625\n16 128000 0.05 0.03125 0.0625\n");
  }
}

TEST(ThresholdHeader, IsUsableInConstantExpressions) {
  if (compilers().empty()) GTEST_SKIP() << "no C++ compiler found";
  const Made made = make();
  const TemporaryFolder folder;
  put(folder.path() / "thresholds.hpp", threshold_header(made.rules));
  const std::vector<Request> all = requests();
  const auto program = [&](bool right) {
    std::string text = "#include \"thresholds.hpp\"\nusing namespace shardline_thresholds;\n";
    const std::array names{"select", "algorithm_1", "algorithm_5", "empirical", "appendix_d", "in_context"};
    for (std::size_t i = 600; i < 640; ++i) {
      const Request& r = all[i];
      const std::string choices = chosen(made, r);
      for (std::size_t k = 0; k < names.size(); ++k)
        text += "static_assert(" + std::string(names[k]) + "(" + std::to_string(r.cp) + ", " +
                std::to_string(r.fresh) + ", " + std::to_string(r.cached) +
                ") == RingVariant::" + ((choices[k] == 'k') == right ? "pass_kv" : "pass_q") + ", \"\");\n";
    }
    return text;
  };
  for (const std::string& compiler : compilers()) {
    SCOPED_TRACE(compiler);
    EXPECT_EQ(compile(folder, compiler, program(true), "-c"), "");
    EXPECT_NE(compile(folder, compiler, program(false), "-c"), "");
  }
}

TEST(ThresholdHeader, HasNoRuleInContextAndNoCrossingsWithoutThem) {
  if (compilers().empty()) GTEST_SKIP() << "no C++ compiler found";
  Made made = make();
  for (ThresholdRing& r : made.rules.rings) r.crossing = {}, r.in_context = {};
  made.rules.provenance.context = "";
  const TemporaryFolder folder;
  put(folder.path() / "thresholds.hpp", threshold_header(made.rules));
  const auto error = [&](const std::string& use) {
    return compile(folder, compilers().front(),
                   "#include \"thresholds.hpp\"\nusing namespace shardline_thresholds;\n" + use, "-c");
  };
  EXPECT_EQ(error("static_assert(*kContext == 0, \"\");\n"), "");
  EXPECT_NE(error("static_assert(in_context(2, 1, 1) == RingVariant::pass_kv, \"\");\n"), "");
  EXPECT_NE(error("static_assert(sizeof(kCrossings) > 0, \"\");\n"), "");
}

double number(const Reader& r) { return r.number(-1e18, 1e18); }

/// The table of the JSON in floating point: ln(pass_q / pass_kv) in counts.
struct JsonTable {
  int cp = 0;
  double per_octave = 0;
  std::vector<double> fresh;
  std::vector<std::vector<double>> values;

  double at(double t, double p) const {
    const double x = std::clamp(std::log2(t), std::log2(fresh.front()), std::log2(fresh.back()));
    std::size_t i = 0;
    while (i + 2 < fresh.size() && std::log2(fresh[i + 1]) < x) ++i;
    const double y = std::min(std::log2((t + p) / t) * per_octave, static_cast<double>(values[0].size() - 1));
    const std::size_t j = std::min(static_cast<std::size_t>(y), values[0].size() - 2);
    const double v = y - static_cast<double>(j);
    const double u = (x - std::log2(fresh[i])) / (std::log2(fresh[i + 1]) - std::log2(fresh[i]));
    return (1 - u) * ((1 - v) * values[i][j] + v * values[i][j + 1]) +
           u * ((1 - v) * values[i + 1][j] + v * values[i + 1][j + 1]);
  }
};

std::vector<JsonTable> read_tables(const std::string& json) {
  std::vector<JsonTable> out;
  const Document d = Document::parse("thresholds.json", json);
  for (const Reader& ring : d.root().at("rings").items()) {
    const Reader table = ring.at("table");
    JsonTable t;
    t.cp = static_cast<int>(number(ring.at("cp")));
    t.per_octave = number(table.at("miss_per_octave"));
    for (const Reader& x : table.at("new_tokens").items()) t.fresh.push_back(number(x));
    for (const Reader& row : table.at("values").items()) {
      t.values.emplace_back();
      for (const Reader& x : row.items()) t.values.back().push_back(number(x));
      EXPECT_EQ(static_cast<double>(t.values.back().size()), number(table.at("miss_nodes")));
    }
    EXPECT_EQ(t.values.size(), t.fresh.size());
    EXPECT_EQ(number(table.at("bytes")), static_cast<double>(t.fresh.size() * (4 + t.values[0].size())));
    out.push_back(t);
  }
  EXPECT_FALSE(d.faulty());
  return out;
}

TEST(ThresholdTables, JsonTableDecidesAsTheHeader) {
  const Made made = make();
  const std::vector<JsonTable> tables = read_tables(threshold_json(made.rules, {}));
  ASSERT_EQ(tables.size(), 3U);
  int compared = 0;
  int too_close = 0;
  for (const Request& r : requests()) {
    for (const JsonTable& t : tables) {
      if (t.cp != r.cp || r.fresh <= 0 || r.fresh > 1LL << 40 || r.cached < 0 || r.cached > 1LL << 40)
        continue;
      const double counts = t.at(static_cast<double>(r.fresh), static_cast<double>(r.cached));
      // 24 digits of log2, 16 of the place in a cell: at most 255 counts by 2^-16, or by 2^-24 of a gap of
      // 2^-9.
      if (std::abs(counts) < 0.02) {
        ++too_close;
        continue;
      }
      ++compared;
      ASSERT_EQ(nearest_table(made.tables, r.cp).pass_kv(r.fresh, r.cached), counts > 0)
          << r.cp << " " << r.fresh << " " << r.cached << " " << counts;
    }
  }
  EXPECT_GT(compared, 3500);
  EXPECT_LT(too_close, 20);
}

TEST(ThresholdTables, JsonHoldsRulesAndRegrets) {
  const Made made = make();
  const ThresholdRegret lost{.rule = "algorithm_1",
                             .ranks = 4,
                             .points = 10,
                             .right = 9,
                             .mean = 0.001,
                             .p99 = 0.01,
                             .worst = 0.0625,
                             .worst_fresh = 6400,
                             .worst_cached = 121600};
  const Document d = Document::parse("thresholds.json", threshold_json(made.rules, {lost, lost}));
  EXPECT_EQ(d.root().at("provenance").at("command").text(), made.rules.provenance.command);
  EXPECT_EQ(number(d.root().at("algorithm_5").at("all_to_all_tokens_per_rank")), 8000);
  EXPECT_EQ(number(d.root().at("algorithm_1").at("kv_hidden_tokens_per_rank")), 1000);
  EXPECT_EQ(number(d.root().at("appendix_d").at("gamma")), 12.112);
  const auto regrets = d.root().at("regret").items();
  ASSERT_EQ(regrets.size(), 2U);
  EXPECT_EQ(regrets[1].at("rule").text(), "algorithm_1");
  EXPECT_EQ(number(regrets[1].at("worst")), 0.0625);
  EXPECT_EQ(number(regrets[1].at("worst_cached_tokens")), 121600);
  EXPECT_FALSE(d.faulty());
}

TEST(ThresholdTables, Csv) {
  const ThresholdRow row{.ranks = 4,
                         .fresh = 1280,
                         .cached = 126720,
                         .pass_kv = Seconds(1.02339),
                         .pass_q = Seconds(0.89871),
                         .test = true,
                         .pass_kv_chosen = {true, false}};
  EXPECT_EQ(
      threshold_csv({"m", "s", "0.1.0", "a\nb", "r", "p", "e", "i", ""}, {"algorithm_1", "table"}, {row}),
      "# model: m\n# system: s\n# version: 0.1.0\n# command: a b\n# ranges: r\n# precision: p\n# engine: "
      "e\n# interval: i\n"
      "cp,new_tokens,cached_tokens,miss_rate,pass_kv_s,pass_q_s,winner,use,told_apart,algorithm_1,table\n"
      "4,1280,126720,0.01,1.02339,0.89871,pass_q,test,,pass_kv,pass_q\n");
  ThresholdRow open = row;
  open.told_apart = false;
  EXPECT_NE(threshold_csv({}, {"algorithm_1", "table"}, {open}).find(",test,0,pass_kv,"), std::string::npos);
}

}  // namespace
}  // namespace shardline
