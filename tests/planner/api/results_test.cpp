// Documents of sweep, simulate and list: as documented, the numbers of the CSV files and of the text beside
// them, and those of the library.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "planner/api/convert_plan.hpp"
#include "planner/api/shardline.hpp"
#include "planner/scenario/shipped.hpp"
#include "tests/planner/api/csv_rows.hpp"
#include "tests/planner/api/document.hpp"

namespace shardline::api {
namespace {

using ::testing::HasSubstr;

void expect_estimate(std::map<std::string, std::string>& row, const std::string& name,
                     const std::string& unit, const Json& estimate, double factor) {
  expect_number(row[name + unit], estimate["value"], factor, name);
  expect_number(row[name + "_low" + unit], estimate["low"], factor, name + " low");
  expect_number(row[name + "_high" + unit], estimate["high"], factor, name + " high");
}

void expect_shares(std::map<std::string, std::string>& row, const Json& point) {
  for (const char* basis : {"measured", "fitted", "extrapolated", "assumed"})
    expect_number(row[std::string(basis) + "_share"], point["shares"][basis], 1, basis);
}

Json document_of(const std::string& arguments, const std::string& folder, int code = 0) {
  const Ran ran = run_shardline(arguments + " --json", folder);
  EXPECT_EQ(ran.code, code) << arguments << "\n" << ran.err;
  const Json out = Json::parse(ran.out, nullptr, false);
  EXPECT_FALSE(out.is_discarded()) << arguments << "\n" << ran.out.substr(0, 400);
  EXPECT_EQ(out.dump(2) + "\n", ran.out) << "the library that reads it would write it otherwise";
  EXPECT_EQ(faults_of_document(out), "") << arguments;
  return out;
}

TEST(ApiResults, DecodeSweepHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("decode");
  const Json d = document_of("sweep small.yaml --ttl '25 ms' -o 'out folder' --threads 2", folder);
  EXPECT_EQ(d["command"], "shardline sweep small.yaml --ttl '25 ms' -o 'out folder' --threads 2 --json");
  ASSERT_EQ(d["models"].size(), 2U);
  for (const Json& m : d["models"]) {
    const std::string csv =
        folder + "/out folder/" + m["setting"]["model"].get<std::string>() + "/frontier.csv";
    auto rows = rows_of(csv);
    ASSERT_EQ(rows.size(), m["points"].size());
    ASSERT_GT(rows.size(), 5U);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Json& p = m["points"][i];
      EXPECT_EQ(rows[i]["plan"], p["plan"]);
      EXPECT_EQ(rows[i]["what"], m["setting"]["what"]);
      EXPECT_EQ(rows[i]["users"], std::to_string(p["requests"].get<long long>()));
      EXPECT_EQ(rows[i]["on_frontier"] == "1", p["on_frontier"].get<bool>());
      EXPECT_TRUE(p["ttft_s"].is_null() && p["tpot_s"].is_null());
      expect_estimate(rows[i], "ttl", "_ms", p["ttl_s"], 1e3);
      expect_estimate(rows[i], "tokens_per_s_gpu", "", p["tokens_per_s_gpu"], 1);
      expect_number(rows[i]["memory_gb_per_gpu"], p["memory_bytes_per_gpu"], 1e-9, "memory");
      expect_shares(rows[i], p);
    }
    EXPECT_FALSE(m["meeting"].empty());
    for (const Json& plan : m["meeting"]) EXPECT_LE(plan["point"]["ttl_s"]["value"], 0.025);
    for (const Json& plan : m["frontier"]) EXPECT_TRUE(plan["point"]["on_frontier"]);
  }
}

TEST(ApiResults, PrefillSweepHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("prefill");
  const Json d = document_of("sweep prefill.yaml -o out --threads 2", folder);
  for (const Json& m : d["models"]) {
    auto rows = rows_of(folder + "/out/" + m["setting"]["model"].get<std::string>() + "/frontier.csv");
    ASSERT_EQ(rows.size(), m["points"].size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Json& p = m["points"][i];
      EXPECT_EQ(rows[i]["plan"], p["plan"]);
      EXPECT_EQ(rows[i]["what"], m["setting"]["what"]);
      EXPECT_TRUE(p["ttl_s"].is_null());
      expect_number(rows[i]["ttft_s"], p["ttft_s"]["value"], 1, "ttft");
      expect_number(rows[i]["ttft_low_s"], p["ttft_s"]["low"], 1, "ttft low");
      expect_number(rows[i]["new_tokens_per_s_gpu_high"], p["prompt_tokens_per_s_gpu"]["high"], 1,
                    "rate high");
      expect_number(rows[i]["gpu_seconds_per_request"], p["gpu_seconds_per_request"]["value"], 1, "cost");
      expect_shares(rows[i], p);
    }
  }
}

TEST(ApiResults, ServedSweepHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("served");
  const Json d = document_of("sweep served.yaml -o out --threads 2", folder);
  for (const Json& m : d["models"]) {
    EXPECT_THAT(m["setting"]["what"].get<std::string>(), HasSubstr("served by"));
    const std::string out = folder + "/out/" + m["setting"]["model"].get<std::string>();
    auto rows = rows_of(out + "/frontier.csv");
    ASSERT_EQ(rows.size(), m["points"].size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Json& p = m["points"][i];
      EXPECT_EQ(rows[i]["what"], m["setting"]["what"]);
      EXPECT_TRUE(p["ttl_s"].is_null());
      expect_estimate(rows[i], "tpot", "_ms", p["tpot_s"], 1e3);
      expect_estimate(rows[i], "ttft", "_ms", p["ttft_s"], 1e3);
      expect_number(rows[i]["ttft_burst_ms"], p["ttft_burst_s"], 1e3, "burst");
      expect_number(rows[i]["tokens_per_s_user"], p["tokens_per_s_user"]["value"], 1, "user");
    }
    auto pools = rows_of(out + "/pools.csv");
    ASSERT_EQ(pools.size(), m["pools"].size());
    for (std::size_t i = 0; i < pools.size(); ++i) {
      const Json& p = m["pools"][i];
      expect_estimate(pools[i], "tpot", "_ms", p["tpot_s"], 1e3);
      expect_estimate(pools[i], "matched_tokens_per_s_gpu", "", p["tokens_per_s_gpu"], 1);
      expect_estimate(pools[i], "ttft", "_ms", p["ttft_s"], 1e3);
      EXPECT_EQ(pools[i]["whole_gpus"].empty(), p["whole"].is_null());
    }
  }
}

TEST(ApiResults, SimulateSaysWhatItsTextSays) {
  const std::string folder = scratch_folder("simulate");
  const std::string line =
      "simulate helix_gb200_1m --model llama-3.1-405b --plan helix:kvp=8,tpa=8,tpf=64,batch=4";
  const Json d = document_of(line, folder);
  const std::string text = run_shardline(line, folder).out;
  const Json& p = d["outcome"];
  EXPECT_THAT(text,
              HasSubstr(fmt::format(
                  "TTL {:.4g} ms   {:.1f} tokens/s/user   {:.2f} tokens/s/GPU   4 users on 64 GPUs",
                  p["ttl_s"]["value"].get<double>() * 1e3, p["tokens_per_s_user"]["value"].get<double>(),
                  p["tokens_per_s_gpu"]["value"].get<double>())));
  double sum = d["breakdown"]["waiting_s"];
  for (const Json& part : d["breakdown"]["parts"]) sum += part["time_s"].get<double>();
  EXPECT_NEAR(sum, d["breakdown"]["time_s"].get<double>(), 1e-12);
  EXPECT_EQ(p["ttl_s"]["value"], d["breakdown"]["time_s"]);
  for (const Json& c : d["collectives"]) EXPECT_THAT(text, HasSubstr(c["name"].get<std::string>()));
  EXPECT_FALSE(d["collectives"].empty());
}

TEST(ApiResults, RunJsonNamesTargetWinnersFilesAndItsCommand) {
  const std::string folder = scratch_folder("run");
  const Json d = document_of("sweep small.yaml --ttl '25 ms' -o 'a folder' --costs parameters", folder);
  for (const Json& m : d["models"]) {
    const std::string place = folder + "/a folder/" + m["setting"]["model"].get<std::string>();
    const Json run = Json::parse(std::ifstream(place + "/run.json"));
    EXPECT_EQ(faults_of_document(run), "");
    EXPECT_EQ(run["command"], d["command"]);
    EXPECT_EQ(run["question"], d["question"]);
    EXPECT_EQ(run["target"]["most_ttl_s"], 0.025);
    EXPECT_EQ(run["met"], m["met"]);
    EXPECT_TRUE(run["calibration_hash"].is_null());
    ASSERT_EQ(run["winners"].size(), m["meeting"].size());
    ASSERT_FALSE(run["winners"].empty());
    for (std::size_t i = 0; i < run["winners"].size(); ++i)
      EXPECT_EQ(run["winners"][i]["point"], m["meeting"][i]["point"]);
    for (const Json& file : run["files"])
      EXPECT_TRUE(std::filesystem::exists(place + "/" + file.get<std::string>())) << file;
    // The command of a winner simulates that plan, to the last bit.
    const std::string line = run["winners"][0]["simulate"].get<std::string>().substr(10);
    EXPECT_EQ(document_of(line, folder)["outcome"]["ttl_s"]["value"],
              run["winners"][0]["point"]["ttl_s"]["value"]);
  }
  // And the command of the folder makes it again.
  const std::string again = d["command"].get<std::string>().substr(10);
  Json first = d, second = Json::parse(run_shardline(again, folder).out);
  for (Json* one : {&first, &second}) {
    for (Json& m : (*one)["models"]) m["counts"].erase("seconds");
  }
  EXPECT_EQ(first, second);
}

TEST(ApiResults, APlanThatDoesNotFitIsADocument) {
  const std::string folder = scratch_folder("misfit");
  const Json d = document_of(
      "simulate helix_gb200_1m --model llama-3.1-405b --plan tensor:tpa=8,tpf=8,batch=64", folder, 3);
  EXPECT_FALSE(d["fits"]);
  EXPECT_TRUE(d["breakdown"].is_null());
  EXPECT_NE(d["misfit"], "");
}

TEST(ApiResults, ASweepThatMissesItsTargetIsADocument) {
  const std::string folder = scratch_folder("missed");
  const Json d = document_of("sweep small.yaml --ttl '1 ms' --costs parameters", folder, 3);
  EXPECT_FALSE(d["met"]);
  EXPECT_EQ(d["question"]["most_ttl_s"], 0.001);
  for (const Json& m : d["models"]) EXPECT_EQ(m["setting"]["costs"]["kind"], "parameters");
}

TEST(ApiResults, BadInputPrintsNoDocument) {
  const std::string folder = scratch_folder("bad");
  const Ran ran = run_shardline("sweep no_such_scenario --json", folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("unknown scenario no_such_scenario"));
}

// The library and the program say the same, but for who was asked and the seconds that it took.
TEST(ApiResults, LibraryAndProgramAgree) {
  const std::string folder = scratch_folder("library");
  SweepQuestion question;
  question.scenario = folder + "/small.yaml";
  question.most_ttl_s = 0.025;
  std::uint64_t seen = 0;
  RunOptions options;
  options.threads = 2;
  options.progress = [&](std::uint64_t, std::uint64_t) { ++seen; };
  Json ours = Json::parse(to_json(sweep(question, options)));
  Json theirs = document_of("sweep '" + question.scenario + "' --ttl '25 ms' --threads 1", folder);
  EXPECT_GT(seen, 0U);
  for (Json* d : {&ours, &theirs}) {
    d->erase("command");
    for (Json& m : (*d)["models"]) m["counts"].erase("seconds");
  }
  EXPECT_EQ(ours, theirs);
}

TEST(ApiResults, ColumnsHaveWhatRowsHave) {
  PlanPoint decode, prefill;
  decode.plan = "helix:kvp=2,batch=4,chunks=2";
  decode.options = {{"chunks", "2"}, {"value_up", "after"}};
  decode.ttl_s = Estimate{0.02, 0.01, 0.03};
  decode.shares = Shares{0.5, 0.25, 0.25, 0};
  decode.degrees.kvp = 2;
  prefill.exact = false;
  prefill.ttft_s = Estimate{2};
  Columns c = columns_of(std::vector<PlanPoint>{decode, prefill});
  for (const auto& [name, column] : c.numbers) EXPECT_EQ(column.size(), 2U) << name;
  for (const auto& [name, column] : c.integers) EXPECT_EQ(column.size(), 2U) << name;
  for (const auto& [name, column] : c.booleans) EXPECT_EQ(column.size(), 2U) << name;
  for (const auto& [name, column] : c.texts) EXPECT_EQ(column.size(), 2U) << name;
  EXPECT_EQ(c.names.size(), c.numbers.size() + c.integers.size() + c.booleans.size() + c.texts.size());
  EXPECT_EQ(c.names.front(), "plan");
  EXPECT_EQ(c.names.back(), "on_frontier");
  EXPECT_EQ(c.numbers["ttl_s"][0], 0.02);
  EXPECT_EQ(c.numbers["ttl_s_high"][0], 0.03);
  EXPECT_TRUE(std::isnan(c.numbers["ttl_s_low"][1]) && std::isnan(c.numbers["ttft_s"][0]));
  EXPECT_EQ(c.numbers["ttft_s"][1], 2);
  EXPECT_TRUE(std::isnan(c.numbers["ttft_s_low"][1]) && std::isnan(c.numbers["shares.measured"][1]));
  EXPECT_EQ(c.numbers["shares.measured"][0], 0.5);
  EXPECT_EQ(c.integers["degrees.kvp"], (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(c.booleans["exact"], (std::vector<std::uint8_t>{1, 0}));
  EXPECT_TRUE(std::isnan(c.numbers["on_frontier"][0])) << "what may be null is a number";
  EXPECT_EQ(c.texts["options"], (std::vector<std::string>{"chunks=2,value_up=after", ""}));
}

TEST(ApiResults, ColumnsOfNoRowsAreThere) {
  const Columns c = columns_of(std::vector<FrontierPlan>());
  EXPECT_EQ(c.names.front(), "point.plan");
  EXPECT_EQ(c.names.back(), "maybe_better");
  EXPECT_TRUE(c.texts.at("maybe_better").empty());
  const Columns one = columns_of(std::vector<FrontierPlan>{{PlanPoint{}, {"helix", "tensor"}}});
  EXPECT_EQ(one.texts.at("maybe_better").front(), "helix, tensor");
}

// The library's answer is the document of the command, met and missed.
TEST(ApiResults, LibraryAndCommandPlanAlike) {
  const std::string folder = scratch_folder("library_plan");
  PlanQuestion question;
  question.model = "llama-3.1-8b";
  question.system = "h100-hgx";
  question.gpus = 2;
  question.input_tokens = 8192;
  question.output_tokens = 512;
  const std::string line = "plan llama-3.1-8b --system h100-hgx --gpus 2 --input 8K --output 512";
  for (const double ms : {40.0, 1.0}) {
    question.most_ttl_s = ms / 1000;
    const PlanResult result = plan(question);
    EXPECT_EQ(result.met, ms == 40);
    EXPECT_EQ(result.miss.has_value(), !result.met);
    EXPECT_EQ(result.wider.has_value(), !result.met);
    EXPECT_EQ(result.plans.front().meets, result.met);
    Json ours = Json::parse(to_json(result));
    Json theirs =
        Json::parse(run_shardline(line + " --ttl '" + std::to_string(ms) + " ms' --json", folder).out);
    EXPECT_EQ(faults_of_document(theirs), "");
    for (Json* d : {&ours, &theirs}) {
      d->erase("command");
      (*d)["sweep"]["counts"].erase("seconds");
    }
    EXPECT_EQ(ours, theirs);
  }
}

TEST(ApiResults, PlansOutOfRangeAreBadInput) {
  PlanQuestion question;
  question.model = "llama-3.1-8b";
  question.system = "h100-hgx";
  question.input_tokens = 8192;
  const auto fault = [&] {
    try {
      plan(question);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  question.gpus = 0;
  EXPECT_EQ(fault(), "gpus 0: expected 1 to 128\n");
  question.gpus = 1LL << 40;  // does not wrap around
  EXPECT_EQ(fault().substr(0, 6), "gpus 1");
  question.gpus = 2;
  question.most_ttl_s = 0.01;
  EXPECT_EQ(fault().substr(0, 5), "ttl, ");
  question.output_tokens = 512;
  question.most_ttl_s = -1;
  EXPECT_EQ(fault().substr(0, 6), "ttl -1");
}

TEST(ApiResults, TargetsAreInTheTermsInWhichTheyWereGiven) {
  PlanQuestion asked;
  asked.model = "llama-3.1-8b";
  asked.system = "h100-hgx";
  asked.input_tokens = 8192;
  asked.output_tokens = 512;
  asked.least_tokens_per_s_user = 30;
  const auto read = [&] { return plan_question_of(asked, {}, shipped_catalogs()); };
  EXPECT_EQ(read().ttl, Seconds(1.0 / 30));
  EXPECT_EQ(target_options(read(), Seconds(0)), " --tokens-per-user 30");
  EXPECT_EQ(target_text(read()), "30 tokens/s/user or more (TPOT at most 33.33 ms)");
  asked.most_ttl_s = 0.050;  // less strict
  EXPECT_EQ(target_options(read(), Seconds(2)), " --tokens-per-user 30 --ttft '2 s'");
  asked.most_ttl_s = 0.020;
  EXPECT_EQ(target_options(read(), Seconds(0)), " --ttl '20 ms'");
  EXPECT_EQ(target_text(read()), "TPOT at most 20 ms");
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), 1e-320}) {
    asked.least_tokens_per_s_user = wrong;
    EXPECT_THROW(read(), UserError) << wrong;
  }
}

TEST(ApiResults, AmountsAreReadAsTheCommandLineReadsThem) {
  EXPECT_EQ(seconds_of("ttl", "20 ms"), 0.02);
  EXPECT_EQ(tokens_of("input", "32K"), 32768);
  EXPECT_EQ(tokens_of("input", "32768 tokens"), 32768);
  EXPECT_EQ(count_of("users", "1K"), 1024);
  EXPECT_EQ(count_of("users", "1000"), 1000);
  EXPECT_THROW(count_of("users", "ten"), Error);
  EXPECT_THROW(seconds_of("ttl", "20"), Error);
  EXPECT_THROW(tokens_of("input", "-1"), Error);
}

TEST(ApiResults, LibraryTakesAScenarioAsText) {
  std::ifstream in(std::string(SHARDLINE_SOURCE_DIR) + "/tests/golden/mixed.yaml");
  std::stringstream text;
  text << in.rdbuf();
  SimulateQuestion question;
  question.scenario_text = text.str();
  question.plan = "tensor:tpa=8,tpf=8,batch=1";
  const SimulateResult result = simulate(question);
  ASSERT_TRUE(result.fits);
  EXPECT_TRUE(result.outcome->prompt_tokens_per_s_gpu.has_value());
  EXPECT_GT(result.outcome->ttl_s->value, 0);
}

TEST(ApiResults, ErrorsHaveAKindAndPlaces) {
  SweepQuestion question;
  question.scenario = "fault.yaml";
  question.scenario_text = "summary: x\nmodels: [llama-3.1-405b]\nsistem: gb200-nvl72\n";
  try {
    sweep(question);
    FAIL() << "a scenario with an unknown key was answered";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::bad_input);
    ASSERT_FALSE(e.diagnostics().empty());
    EXPECT_EQ(e.diagnostics().front().file, "fault.yaml");
    EXPECT_GT(e.diagnostics().front().line, 0);
    EXPECT_FALSE(e.diagnostics().front().key.empty());
  }
  question.scenario_text.clear();
  question.scenario = "llama_70b_h100_128k";
  RunOptions options;
  options.cancelled = [] { return true; };
  try {
    sweep(question, options);
    FAIL() << "a sweep that was cancelled was answered";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::interrupted);
  }
}

TEST(ApiResults, ListsHaveTheNamesOfTheirText) {
  const std::string folder = scratch_folder("list");
  for (const char* what : {"models", "systems", "strategies", "options", "scenarios", "acceptance"}) {
    const std::string line = std::string("list ") + what;
    const Json d = document_of(line, folder);
    const std::string text = run_shardline(line, folder).out;
    ASSERT_FALSE(d[what].empty());
    for (const Json& row : d[what])
      EXPECT_THAT(text, HasSubstr(row.contains("name") ? row["name"].get<std::string>()
                                                       : row["key"].get<std::string>()));
  }
}

}  // namespace
}  // namespace shardline::api
