// Launch files of several servers of one plan: each has GPUs and ports of its own, and what stands in front
// of them asks where they listen.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;
using Values = std::map<std::string, std::string>;

constexpr const char* kEngines[] = {"vllm", "sglang", "trtllm"};

EngineProfile profile_of(const std::string& name) {
  return load_engine(name, "", source_path("planner/engines"));
}

Case llama(const std::string& system) {
  Case c = decode_case("llama-3.1-8b", system, 8192);
  c.precision = Precision{};
  return c;
}

Plan tensor(int gpus, const char* more = "batch=1") {
  return parse_plan(fmt::format("tensor:tpa={0},tpf={0},{1}", gpus, more));
}

// One server as its script starts it.
struct Started {
  std::set<int> gpus;  // of its machine; empty: all of them
  std::set<int> ports;
  int port = 0, bootstrap = 0;
};

std::vector<int> numbers(const std::string& text) {
  std::vector<int> out;
  std::string digits;
  for (const char c : text + ",") {
    if (c == ',') {
      if (!digits.empty()) out.push_back(std::stoi(digits));
      digits.clear();
    } else {
      digits += c;
    }
  }
  return out;
}

std::string after(const std::vector<std::string>& words, const std::string& name) {
  const auto at = std::find(words.begin(), words.end(), name);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

Started started(const std::string& engine, const ScriptRunner& runner, const std::string& script, int replica,
                int groups) {
  const Called called =
      runner.run(script, {{"MODEL", "m"}, {"THIS_ADDR", "this"}, {"REPLICA", std::to_string(replica)}});
  EXPECT_EQ(called.code, 0) << script << " " << replica;
  Started out;
  const Values& env = called.environment;
  if (env.contains("CUDA_VISIBLE_DEVICES")) {
    const std::vector<int> gpus = numbers(env.at("CUDA_VISIBLE_DEVICES"));
    out.gpus = {gpus.begin(), gpus.end()};
    EXPECT_EQ(out.gpus.size(), gpus.size());
  }
  const std::string port = after(called.words, "--port");
  EXPECT_FALSE(port.empty()) << engine << " " << script;
  if (port.empty()) return out;
  out.port = std::stoi(port);
  out.ports.insert(out.port);
  if (const std::string text = after(called.words, "--disaggregation-bootstrap-port"); !text.empty()) {
    out.bootstrap = std::stoi(text);
    out.ports.insert(out.bootstrap);
  }
  // With attention DP: ZMQ_TCP_PORT_DELTA behind its own.
  for (int i = 0; engine == "sglang" && i < 8; ++i) out.ports.insert(out.port + 233 + i);
  if (env.contains("VLLM_NIXL_SIDE_CHANNEL_PORT")) {
    for (int g = 0; g < groups; ++g) out.ports.insert(std::stoi(env.at("VLLM_NIXL_SIDE_CHANNEL_PORT")) + g);
  }
  return out;
}

// Machines are filled in order, so that GPU 0 is the first of another one: none of its GPUs or ports is of
// two servers.
void expect_apart(const std::vector<Started>& servers, int each) {
  std::set<int> gpus, ports;
  for (const Started& s : servers) {
    if (s.gpus.empty() || s.gpus.contains(0)) gpus.clear(), ports.clear();
    for (const int g : s.gpus) {
      EXPECT_LT(g, each);
      EXPECT_TRUE(gpus.insert(g).second) << "GPU " << g << " twice";
    }
    for (const int p : s.ports) EXPECT_TRUE(ports.insert(p).second) << "port " << p << " twice";
  }
}

std::string joined(const std::vector<Started>& servers, std::size_t first, std::size_t count,
                   const std::string& before, const char* between) {
  std::string out;
  for (std::size_t i = first; i < first + count; ++i)
    out +=
        (out.empty() ? "" : between) + before + fmt::format("h{}", i) + ":" + std::to_string(servers[i].port);
  return out;
}

// What the front asks, of servers on machines h0, h1, ...
void expect_asked(const std::string& engine, const Called& front, const std::vector<Started>& servers,
                  std::size_t prompts) {
  const std::size_t answers = servers.size() - prompts;
  const OptionTable table(engine);
  const std::string version = profile_of(engine).version;
  Values v;
  ASSERT_EQ(front.code, 0);
  if (engine == "trtllm") {
    EXPECT_THAT(table.yaml_faults("front_yaml", version, front.config, v), IsEmpty()) << front.config;
    EXPECT_EQ(v["context_servers.num_instances"], std::to_string(prompts));
    EXPECT_EQ(v["generation_servers.num_instances"], std::to_string(answers));
    EXPECT_EQ(v["context_servers.urls"], joined(servers, 0, prompts, "", ","));
    EXPECT_EQ(v["generation_servers.urls"], joined(servers, prompts, answers, "", ","));
    return;
  }
  const bool vllm = engine == "vllm";
  EXPECT_THAT(table.faults(vllm ? "proxy" : "router", version,
                           {front.words.begin() + (vllm ? 2 : 3), front.words.end()}, v),
              IsEmpty());
  std::string of_prompts, hosts, ports;
  for (std::size_t i = 0; i < prompts; ++i) {
    of_prompts +=
        fmt::format("{}http://h{}:{},{}", i == 0 ? "" : " ", i, servers[i].port, servers[i].bootstrap);
    hosts += fmt::format("{}h{}", i == 0 ? "" : ",", i);
    ports += fmt::format("{}{}", i == 0 ? "" : ",", servers[i].port);
  }
  if (vllm) {
    EXPECT_EQ(v["--prefiller-hosts"], hosts);
    EXPECT_EQ(v["--prefiller-ports"], ports);
    EXPECT_EQ(std::count(v["--decoder-hosts"].begin(), v["--decoder-hosts"].end(), ',') + 1,
              static_cast<long>(answers));
  } else {
    EXPECT_EQ(v["--prefill"], of_prompts);
    EXPECT_EQ(v["--decode"], joined(servers, prompts, answers, "http://", " "));
    EXPECT_EQ(v.contains("--policy"), servers.size() > 2);
  }
}

std::string hosts(std::size_t first, std::size_t count) {
  std::string out;
  for (std::size_t i = first; i < first + count; ++i) out += fmt::format("{}h{}", out.empty() ? "" : " ", i);
  return out;
}

struct Halves {
  const char* system;
  Plan prompts, answers;
  int of_prompts, of_answers;
};

// [P20] Pairs in as many servers of each half as were priced: on one machine, on several, of several
// machines.
TEST(LaunchReplicas, P20EveryServerHasGpusAndPortsOfItsOwn) {
  const ScriptRunner runner;
  const std::vector<Halves> pairs{{"h200-hgx", tensor(2), tensor(4, "batch=16"), 2, 1},
                                  {"h200-hgx", tensor(4), tensor(4, "batch=16"), 1, 1},
                                  {"h200-hgx", tensor(1), tensor(2, "batch=16"), 13, 5},
                                  {"h200-hgx", tensor(8), tensor(2, "batch=16"), 2, 3},
                                  {"h200-hgx", tensor(2), tensor(8, "batch=16"), 3, 2},
                                  {"gb200-nvl72", tensor(2), tensor(4, "batch=16"), 3, 2},
                                  {"gb200-nvl72", tensor(1), tensor(1, "batch=16"), 6, 1}};
  for (const char* engine : kEngines) {
    for (const Halves& h : pairs) {
      SCOPED_TRACE(fmt::format("{}: {} x {} and {} x {}", engine, h.of_prompts, h.prompts.gpus(),
                               h.of_answers, h.answers.gpus()));
      const Case decode = llama(h.system);
      Case prefill = decode;
      prefill.batch = prefill_batch({{0, 8192}});
      const Launch launch = launch_pair({prefill, h.prompts, h.of_prompts}, {decode, h.answers, h.of_answers},
                                        profile_of(engine), "p");
      ASSERT_EQ(launch.refused, "");
      runner.write(launch.files);
      std::vector<Started> servers;
      for (int i = 0; i < h.of_prompts; ++i)
        servers.push_back(started(engine, runner, "p_context.sh", i, h.prompts.dp));
      for (int i = 0; i < h.of_answers; ++i)
        servers.push_back(started(engine, runner, "p_generation.sh", i, h.answers.dp));
      const int each = std::string(h.system) == "gb200-nvl72" ? 4 : 8;
      expect_apart(servers, each);
      for (std::size_t i = 0; i < servers.size(); ++i) {
        const int gpus = (i < static_cast<std::size_t>(h.of_prompts) ? h.prompts : h.answers).gpus();
        EXPECT_EQ(servers[i].gpus.size(), gpus < each ? static_cast<std::size_t>(gpus) : 0u);
      }
      const auto n = static_cast<std::size_t>(h.of_prompts);
      expect_asked(engine,
                   runner.run("p_front.sh", {{"CONTEXT_ADDRS", hosts(0, n)},
                                             {"GENERATION_ADDRS", hosts(n, servers.size() - n)},
                                             {"VLLM_SOURCE", "/source"}}),
                   servers, n);
    }
  }
}

// A number that is none of the servers', addresses that are neither one of each nor one of all.
TEST(LaunchReplicas, P20OtherNumbersAreRefused) {
  const ScriptRunner runner;
  const Case decode = llama("h200-hgx");
  Case prefill = decode;
  prefill.batch = prefill_batch({{0, 8192}});
  for (const char* engine : kEngines) {
    const Launch launch =
        launch_pair({prefill, tensor(2), 3}, {decode, tensor(2, "batch=16"), 1}, profile_of(engine), "p");
    runner.write(launch.files);
    const auto code = [&](const char* script, Values v) {
      v.insert({{"MODEL", "m"}, {"THIS_ADDR", "this"}, {"VLLM_SOURCE", "/source"}});
      return runner.run(script, v).code;
    };
    EXPECT_NE(code("p_context.sh", {}), 0);
    EXPECT_NE(code("p_context.sh", {{"REPLICA", "3"}}), 0);
    EXPECT_NE(code("p_context.sh", {{"REPLICA", "-1"}}), 0);
    EXPECT_EQ(code("p_context.sh", {{"REPLICA", "2"}}), 0);
    EXPECT_EQ(code("p_generation.sh", {}), 0);
    EXPECT_NE(code("p_front.sh", {{"CONTEXT_ADDRS", "a b"}, {"GENERATION_ADDRS", "c"}}), 0);
    EXPECT_NE(code("p_front.sh", {{"GENERATION_ADDRS", "c"}}), 0);
    EXPECT_EQ(code("p_front.sh", {{"CONTEXT_ADDRS", "a"}, {"GENERATION_ADDRS", "a"}}), 0);
    // What the user says holds.
    const Called called = runner.run("p_context.sh", {{"MODEL", "m"},
                                                      {"THIS_ADDR", "this"},
                                                      {"REPLICA", "1"},
                                                      {"GPUS", "6,7"},
                                                      {"PORT", "1234"},
                                                      {"VLLM_NIXL_SIDE_CHANNEL_PORT", "4321"}});
    EXPECT_EQ(called.environment.at("CUDA_VISIBLE_DEVICES"), "6,7");
    EXPECT_EQ(after(called.words, "--port"), "1234");
    if (std::string(engine) == "vllm") {
      EXPECT_EQ(called.environment.at("VLLM_NIXL_SIDE_CHANNEL_PORT"), "4321");
    }
  }
}

// Copies of a plan that does both, behind a router.
TEST(LaunchReplicas, P20CopiesStandBehindARouter) {
  const ScriptRunner runner;
  const Case c = llama("h200-hgx");
  for (const char* engine : kEngines) {
    SCOPED_TRACE(engine);
    const Launch one = launch_files(c, tensor(4, "batch=16"), profile_of(engine), "s");
    for (const LaunchFile& f : one.files) {
      EXPECT_THAT(f.text, Not(HasSubstr("REPLICA")));
      EXPECT_THAT(f.text, Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
    }
    const Launch two = launch_files(c, tensor(4, "batch=16"), profile_of(engine), "s", 2);
    EXPECT_EQ(two.servers.front().title, "2 servers, each 4 GPUs of one machine");
    runner.write(two.files);
    const std::vector<Started> servers{started(engine, runner, "s.sh", 0, 1),
                                       started(engine, runner, "s.sh", 1, 1)};
    expect_apart(servers, 8);
    const Called front = runner.run("s_front.sh", {{"SERVER_ADDRS", "h0 h1"}});
    ASSERT_EQ(front.code, 0);
    if (std::string(engine) == "sglang") {
      Values v;
      EXPECT_THAT(
          OptionTable(engine).faults("router", "0.5.14", {front.words.begin() + 3, front.words.end()}, v),
          IsEmpty());
      EXPECT_EQ(v["--worker-urls"], joined(servers, 0, 2, "http://", ","));
    } else {
      EXPECT_EQ(front.words.front(), "nginx");
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_THAT(front.config, HasSubstr(fmt::format("server h{}:{} ", i, servers[i].port)));
      EXPECT_THAT(front.config, HasSubstr("listen 8000;"));
    }
  }
}

// States without tokens move by NIXL in the Python transceiver alone.
TEST(LaunchReplicas, P20StatesOfTensorRtLlmMoveInPython) {
  for (const auto& [model, states] :
       {std::pair{"nemotron-3-super-120b-a12b", true}, {"llama-3.1-8b", false}}) {
    Case decode = decode_case(model, "h200-hgx", 8192);
    decode.precision = Precision{};
    Case prefill = decode;
    prefill.batch = prefill_batch({{0, 8192}});
    const Launch pair = launch_pair(
        {prefill, parse_plan(std::string("tensor:tpa=8,") + (states ? "ep=8," : "tpf=8,") +
                             "batch=1,prefill_chunk=8192")},
        {decode, parse_plan(std::string("tensor:tpa=8,") + (states ? "ep=8," : "tpf=8,") + "batch=16")},
        profile_of("trtllm"), "p");
    ASSERT_EQ(pair.refused, "") << model;
    for (const LaunchFile& f : pair.files) {
      if (!f.name.ends_with(".yaml")) continue;
      EXPECT_EQ(f.text.find("transceiver_runtime: PYTHON") != std::string::npos, states) << f.text;
      EXPECT_EQ(f.text.find("enable_block_reuse: false") != std::string::npos, states);
      EXPECT_THAT(f.text, HasSubstr("tokens_per_block: "));
    }
  }
}

}  // namespace
}  // namespace shardline
