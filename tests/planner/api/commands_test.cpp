// Every command of the table has --json, and prints its document alone.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tests/planner/api/csv_rows.hpp"
#include "tests/planner/api/document.hpp"

namespace shardline::api {
namespace {

// Small inputs. A command without one fails the test: it was added without a thought for its document.
const std::map<std::string, std::string>& inputs() {
  static const std::map<std::string, std::string> all{
      {"plan", "llama-3.1-8b --system h100-hgx --gpus 2 --input 8K --output 512"},
      {"serve",
       "llama-3.1-8b --system h100-hgx --gpus 2 --input 1K --output 64 --plan tensor:tpa=2,tpf=2 --rate 2/s "
       "--requests 100"},
      {"sweep", "small.yaml --costs parameters"},
      {"simulate", "mixed.yaml --plan tensor:tpa=8,tpf=8,batch=1"},
      {"list", "strategies"},
      {"explain", "small.yaml --model llama-3.1-405b --plan helix:kvp=2,tpa=4,tpf=8,batch=4"},
      {"compare",
       "small.yaml --model llama-3.1-405b --plan helix:kvp=2,tpa=4,tpf=8,batch=4 --plan "
       "tensor:tpa=8,tpf=8,batch=4"},
      {"handoff",
       "small.yaml --model llama-3.1-405b --tokens 8K --at-once 2 --prefill "
       "ring_pass_kv:cp=2,tpa=2,tpf=2,batch=1 "
       "--decode helix:kvp=2,tpa=4,tpf=8,batch=4"},
      {"validate", "helix --no-sensitivity"},
      {"thresholds", "rings.yaml"},
      {"partition", "parts.yaml"},
      {"conversation", "talk.yaml"},
      {"verify", "tsp"},
      {"calibrate", "gemm.csv --system h100-hgx"},
      {"evaluate", "gemm.csv --system h100-hgx"},
      {"accuracy", ""},
  };
  return all;
}

// Products of FP16 matrices, their times invented.
void write_gemm(const std::string& file) {
  std::ofstream out(file);
  out << "m,n,k,dtype,kernel,latency_us\n";
  for (double m = 1; m <= 4096; m *= 2) {
    for (double n = 1024; n <= 16384; n *= 2) {
      for (double k = 1024; k <= 4096; k *= 4)
        out << m << ',' << n << ',' << k << ",bf16,torch_flow," << 4 + 1e-9 * n * k * (0.5 + 0.003 * m)
            << '\n';
    }
  }
}

// Closed loops of two models under vLLM, their times invented.
void write_served(const std::string& file) {
  std::ofstream out(file);
  out << "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_"
         "dp,moe_tp,"
         "moe_ep,ttft_ms,tpot_ms,measured,source\n";
  for (const char* model : {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"}) {
    for (const int users : {1, 4, 16, 64})
      out << "h100_sxm," << model << ",fp8,vllm,0.24.0,1024,256," << users << ",1,1,1,,1,1,"
          << 60 + 20 * users << ',' << 9 + 0.2 * users << ",,x.csv\n";
  }
}

// As the program's own help lists them.
std::vector<std::string> commands(const std::string& folder) {
  std::istringstream help(run_shardline("--help", folder).out);
  std::vector<std::string> out;
  std::string line;
  bool listed = false;
  while (std::getline(help, line)) {
    if (line.rfind("Subcommands:", 0) == 0) {
      listed = true;
    } else if (listed && line.rfind("  ", 0) == 0 && line[2] != ' ') {
      out.push_back(line.substr(2, line.find(' ', 2) - 2));
    } else if (listed && !line.empty() && line[0] != ' ') {
      break;
    }
  }
  return out;
}

TEST(ApiCommands, EveryCommandPrintsItsDocumentAlone) {
  const std::string folder = scratch_folder("commands");
  write_gemm(folder + "/gemm.csv");
  const std::vector<std::string> names = commands(folder);
  ASSERT_GE(names.size(), inputs().size());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(inputs().contains(name)) << "this test has no input for the command";
    const std::string line = name + (inputs().at(name).empty() ? "" : " ") + inputs().at(name) + " --json";
    const Ran ran = run_shardline(line, folder);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const Json document = Json::parse(ran.out, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << ran.out.substr(0, 400);
    EXPECT_EQ(faults_of_document(document), "");
    EXPECT_EQ(document["command"], "shardline " + line);
  }
}

Json document_of(const std::string& line, const std::string& folder) {
  const Ran ran = run_shardline(line + " --json", folder);
  EXPECT_EQ(ran.code, 0) << line << "\n" << ran.err;
  const Json out = Json::parse(ran.out, nullptr, false);
  EXPECT_EQ(faults_of_document(out), "") << line;
  return out;
}

// What has a document of its own, though the command is the same.
TEST(ApiCommands, OptionsThatChangeTheDocument) {
  const std::string folder = scratch_folder("options");
  write_served(folder + "/served.csv");
  const Json engine = document_of("calibrate served.csv --engine vllm", folder);
  EXPECT_EQ(engine["schema"], "shardline.calibrate_engine/1");
  EXPECT_EQ(engine["left_out"].size(), 2U);
  const Json mutations = document_of("verify tsp --mutations", folder);
  EXPECT_FALSE(mutations["mutations"].empty());
  EXPECT_TRUE(document_of("validate kv_runahead", folder)["papers"][0]["values"].size() > 10);
}

// The CSV of a command has the numbers of its document.
TEST(ApiCommands, ConversationHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("conversation");
  const Json d = document_of("conversation talk.yaml -o out", folder);
  const Json& turns = d["models"][0]["turns"];
  auto rows =
      rows_of(folder + "/out/" + d["models"][0]["setting"]["model"].get<std::string>() + "/turns.csv");
  ASSERT_EQ(rows.size(), turns.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expect_number(rows[i]["ttft_s"], turns[i]["ttft_s"]["value"], 1, "TTFT");
    expect_number(rows[i]["ttft_low_s"], turns[i]["ttft_s"]["low"], 1, "TTFT, low");
    expect_number(rows[i]["ttl_last_high_ms"], turns[i]["ttl_last_s"]["high"], 1e3, "TTL, high");
    expect_number(rows[i]["turn_high_s"], turns[i]["turn_s"]["high"], 1, "turn, high");
    expect_number(rows[i]["kv_gb_per_gpu"], turns[i]["kv_bytes_per_gpu"], 1e-9, "KV");
    EXPECT_EQ(rows[i]["variants_told_apart"] == "1", turns[i]["variants_told_apart"].get<bool>());
    EXPECT_EQ(rows[i]["variant"], turns[i]["variant"]);
  }
}

TEST(ApiCommands, PartitionHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("partition");
  const Json d = document_of("partition parts.yaml -o out", folder);
  const Json& found = d["models"][0]["chains"][0]["rows"];
  const std::string out = folder + "/out/" + d["models"][0]["setting"]["model"].get<std::string>();
  auto rows = rows_of(out + "/partition.csv");
  ASSERT_EQ(rows.size(), found.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expect_number(rows[i]["context_tokens"], found[i]["context_tokens"], 1, "context");
    expect_number(rows[i]["ttft_s"], found[i]["ttft_s"]["value"], 1, "TTFT");
    expect_number(rows[i]["even_ttft_s"], found[i]["even_ttft_s"], 1, "even");
    expect_number(rows[i]["ttft_high_s"], found[i]["ttft_s"]["high"], 1, "TTFT, high");
  }
}

TEST(ApiCommands, EvaluateHasTheNumbersOfItsCsv) {
  const std::string folder = scratch_folder("evaluate");
  write_gemm(folder + "/gemm.csv");
  const Json d = document_of("evaluate gemm.csv --system h100-hgx --csv rows.csv", folder);
  auto rows = rows_of(folder + "/rows.csv");
  ASSERT_EQ(rows.size(), d["rows"].size());
  ASSERT_GT(rows.size(), 10U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& r = d["rows"][i];
    // The file has six digits.
    EXPECT_NEAR(std::strtod(rows[i]["predicted_us"].c_str(), nullptr) /
                    (r["predicted_s"]["value"].get<double>() * 1e6),
                1, 1e-5);
    EXPECT_EQ(rows[i]["operation"], r["kernel"]);
    EXPECT_LE(r["predicted_s"]["low"], r["predicted_s"]["high"]);
  }
}

// Half the bandwidth of memory: what is bound by it takes longer, and nothing gets faster.
TEST(ApiCommands, EvaluateTakesSettingsOfTheSystem) {
  const std::string folder = scratch_folder("evaluate_set");
  write_gemm(folder + "/gemm.csv");
  const std::string line = "evaluate gemm.csv --system h100-hgx";
  const Json own = document_of(line, folder);
  const Json half = document_of(line + " --set \"device.memory.bandwidth=1.675 TB/s\"", folder);
  ASSERT_EQ(own["rows"].size(), half["rows"].size());
  std::size_t slower = 0;
  for (std::size_t i = 0; i < own["rows"].size(); ++i) {
    const double was = own["rows"][i]["predicted_s"]["value"], is = half["rows"][i]["predicted_s"]["value"];
    EXPECT_GE(is, was * (1 - 1e-9));
    slower += is > was * 1.2 ? 1 : 0;
  }
  EXPECT_GT(slower, own["rows"].size() / 4);
  const Ran scenario = run_shardline(line + " --set gpus=[2]", folder);
  EXPECT_EQ(scenario.code, 2);
  EXPECT_NE(scenario.err.find("evaluate reads no scenario"), std::string::npos) << scenario.err;
}

}  // namespace
}  // namespace shardline::api
