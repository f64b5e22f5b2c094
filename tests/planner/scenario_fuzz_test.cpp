// Mutated scenarios, systems and plans give a UserError or a usable value, never anything else. Seeds are
// fixed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "calibrate/validate/context_truth.hpp"
#include "hardware/cost/kernel_cost.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/files.hpp"
#include "tests/support/loads.hpp"
#include "tests/support/mutator.hpp"

namespace shardline {
namespace {

constexpr int kMutants = testing::part_of(6000);

const std::vector<std::string>& words() {
  static const std::vector<std::string> kWords{
      "tokens", "1M tokens", "us",       "GB/s",  "gpus",   "batch",   "helix", "tensor",
      "kvp=",   "tpa=8",     "batch=0",  "from",  "double", "zipf",    "skew",  "model",
      "fp8",    "0.5",       "value_up", "after", "=",      ":",       "1Ki",   "[helix]",
      "8192,1", "nan",       "inf",      "ttl",   "ring",   "compare", "GB",    "64"};
  return kWords;
}

std::vector<std::string> texts_in(const std::string& folder) {
  std::vector<std::string> texts;
  for (const auto& file : testing::files_in(source_path(folder), ".yaml"))
    texts.push_back(testing::read_file(file));
  return texts;
}

/// A catalogue of the shipped systems without their calibrations, whose thousands of lines take milliseconds
/// to read: the parser of scenarios does not care how a system is priced, and other tests read calibrated
/// ones.
std::filesystem::path systems_without_calibration() {
  const std::filesystem::path folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / "fuzz_systems";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& file : testing::files_in(source_path("hardware/catalog"), ".yaml")) {
    std::istringstream in(testing::read_file(file));
    std::ofstream out(folder / file.filename());
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("calibration:")) out << line << "\n";
    }
  }
  return folder;
}

/// `read` throws UserError, or returns and has checked what it read. `least_valid` of the mutants must be
/// valid.
void fuzz(const std::vector<std::string>& texts, int least_valid,
          const std::function<void(const std::string&)>& read) {
  ASSERT_FALSE(texts.empty());
  int valid = 0;
  for (std::uint64_t seed = 0; seed < kMutants; ++seed) {
    testing::Mutator mutator(seed, words());
    const std::string& base = texts[mutator.below(texts.size())];
    const std::string text = mutator.mutate(base, texts[mutator.below(texts.size())]);
    SCOPED_TRACE(seed);
    try {
      read(text);
      ++valid;
    } catch (const UserError& e) {
      EXPECT_GT(std::string_view(e.what()).size(), 5u);
      EXPECT_FALSE(e.diagnostics().empty());
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what() << "\n" << text;
    }
  }
  // Mutants on both sides of the line, or the test shows nothing.
  EXPECT_GE(valid, least_valid);
  EXPECT_LE(valid, kMutants * 9 / 10);
}

// What a question that was read promises to those that answer it.
void expect_sound(const Study& study, const ThresholdGrid& g) {
  ASSERT_FALSE(g.cp.empty());
  EXPECT_LE(g.cp.back() * g.tpa, study.study.system.gpus());
  EXPECT_LT(g.fresh_from, g.fresh_to);
}

void expect_sound(const Study& study, const PartitionGrid& g) {
  ASSERT_FALSE(g.contexts.empty());
  ASSERT_FALSE(g.processes.empty());
  EXPECT_GE(g.processes.front(), 2);
  EXPECT_LE(g.processes.back() * g.tpa, study.study.system.gpus());
  EXPECT_GE(g.contexts.front() / g.granularity, g.processes.back());
}

void expect_sound(const Study& study, const Conversation& talk) {
  EXPECT_FALSE(talk.turns.empty());
  EXPECT_LE(talk.cp * talk.tpa, study.study.system.gpus());
}

void expect_sound(const Study& study, const Sweep& sweep) {
  EXPECT_FALSE(sweep.search.strategies.empty());
  ASSERT_FALSE(sweep.search.gpus.empty());
  EXPECT_GE(sweep.search.gpus.front(), 1);
  EXPECT_LE(sweep.search.gpus.back(), study.study.system.gpus());
  ASSERT_FALSE(sweep.search.batches.empty());
  EXPECT_GE(sweep.search.batches.front(), 1);
  EXPECT_GE(study.study.longest(), 1);
  for (const OptionRange& range : sweep.search.space.options) EXPECT_FALSE(range.values.empty());
  if (sweep.noise) {
    EXPECT_EQ(study.study.batch.kind(), StepKind::prefill);
    EXPECT_GE(sweep.noise->load, 0);
    EXPECT_LT(sweep.noise->load, 1);
    EXPECT_GT(sweep.noise->burst, Seconds(0));
    EXPECT_GE(sweep.noise->flows, 1);
    EXPECT_GE(sweep.noise->seeds, 1);
  }
  EXPECT_EQ(study.study.batch.prefill.empty(), study.study.batch.kind() == StepKind::decode);
}

TEST(Fuzz, Scenario) {
  std::vector<std::string> texts = texts_in("scenarios");
  // Routing tables of a model with experts take milliseconds; the parser does not care which model it is.
  for (std::string& text : texts) {
    for (auto at = text.find("deepseek-r1"); at != std::string::npos; at = text.find("deepseek-r1")) {
      text.replace(at, std::string_view("deepseek-r1").size(), "llama-3.1-70b");
    }
  }
  texts.push_back(
      "name: dense\nsystem: h100-hgx\nmodels: [llama-3.1-8b, llama-7b]\ncontext: 128Ki tokens\n"
      "precision: {weights: fp8, kv: bf16, math: fp8}\nstrategies: [tensor, kv_shard]\ngpus: [1, 2, 4, 8]\n"
      "batch: {from: 1, to: 64, step: double}\npipeline_stages: [1, 2]\nall_reduce: ring\n"
      "constraints: {ttl: 50 ms}\nduplicate_kv: true\npareto: {x: ttl, y: users}\n");
  texts.push_back(
      "name: small\nsummary: s\nsystem: gb200-nvl72\nmodels:\n  - deepseek-r1\ncontext: 1M "
      "tokens\nkv_block: 32 tokens\n"
      "strategies:\n  - helix\n  - tensor\ngpus: 8\nbatch:\n  from: 1\n  to: 16\n  step: 3\noptions: "
      "{chunks: [1, 2]}\n"
      "routing: {kind: zipf, skew: 0.5, load: mean}\ncompare:\n  candidate: [helix]\n  baseline: [tensor]\n");
  const Catalogs catalogs{source_path("models/catalog"), systems_without_calibration(),
                          source_path("scenarios")};
  fuzz(texts, kMutants / 50, [&](const std::string& text) {
    const Scenario s = parse_scenario("fuzz", text, catalogs);
    EXPECT_FALSE(s.studies.empty());
    for (const Study& study : s.studies) {
      EXPECT_GT(study.study.system.device.achieved(study.study.precision.math).value, 0);
      std::visit([&](const auto& asked) { expect_sound(study, asked); }, study.question);
    }
  });
}

TEST(Fuzz, System) {
  fuzz(texts_in("hardware/catalog"), kMutants / 50, [](const std::string& text) {
    const System s = parse_system("fuzz", text);
    EXPECT_GE(s.gpus(), 1);
    EXPECT_GT(s.device.achieved_memory().value, 0);
    if (s.gpus() > 32) return;  // the fabric below is cubic in the GPUs
    const Fabric fabric(s.fabric);
    for (int size = 2; size <= s.gpus(); size *= 2) {
      const GroupFabric g = group_fabric(fabric, {size, 1});
      for (const OpKind kind :
           {OpKind::all_reduce, OpKind::all_gather, OpKind::all_to_all, OpKind::send_recv}) {
        const double t = collective(kind, g, Bytes(1e6)).total().value;
        EXPECT_TRUE(std::isfinite(t) && t > 0) << t;
      }
    }
  });
}

TEST(Fuzz, PublishedTables) {
  const Catalogs catalogs{source_path("models/catalog"), systems_without_calibration(),
                          source_path("scenarios")};
  fuzz({testing::read_file(source_path("calibrate/validate/context_parallel.yaml"))}, kMutants / 50,
       [&](const std::string& text) {
         const ContextTruth t = parse_context_truth("fuzz", text, catalogs);
         for (const TruthTable& table : t.tables) {
           EXPECT_FALSE(table.rows.empty());
           for (const TruthRow& row : table.rows) {
             EXPECT_GE(row.tokens, 1);
             EXPECT_GE(row.batch, 1);
             for (const auto& time : row.times) EXPECT_GE(time.value_or(Seconds(0)), Seconds(0));
           }
         }
       });
}

TEST(Fuzz, Plan) {
  std::vector<Case> cases{decode_case("deepseek-r1", "gb200-nvl72", 1'000'000),
                          decode_case("llama-3.1-405b", "gb200-nvl72", 1'000'000)};
  cases.push_back(cases.back());
  cases.back().batch = prefill_batch({{1000, 777}, {0, 3}});
  const std::vector<std::string> texts{"tensor:tpa=8,tpf=8,batch=4",
                                       "pipeline:pp=4,tpa=8,tpf=8,in_flight=4,batch=2",
                                       "dp_ep:dp=32,tpa=2,ep=64,dense_tp=2,batch=16",
                                       "kv_shard:kvp=8,tpa=8,tpf=8,batch=1",
                                       "helix:kvp=8,tpa=8,tpf=64,batch=4,chunks=2",
                                       "helix:kvp=64,ep=16,tpf=4,batch=32,value_up=before",
                                       "ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1",
                                       "ring_decode:pp=2,cp=4,tpa=8,tpf=8,batch=3",
                                       "ulysses:cp=4,tpa=2,tpf=2,batch=1"};
  Schedule schedule;
  int checked = 0;
  fuzz(texts, kMutants / 50, [&](const std::string& text) {
    const Plan plan = parse_plan(text);
    EXPECT_EQ(parse_plan(to_string(plan)), plan) << to_string(plan);
    EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
    for (const Case& c : cases) {
      if (check_plan(c, plan)) continue;  // a reason is a result
      ++checked;
      EXPECT_GT(memory_use(c, plan).total().value, 0) << to_string(plan);
      if (plan.batch > 8 || plan.gpus() > 128) continue;
      lower(schedule, c, plan);
      EXPECT_FALSE(schedule.ops.empty());
    }
  });
  EXPECT_GT(checked, 50);
}

}  // namespace
}  // namespace shardline
