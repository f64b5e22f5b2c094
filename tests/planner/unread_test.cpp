// Numbers of a calibrated system's file that no price reads are named: hardware/README.md.
#include "planner/studies/unread.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/planner/support.hpp"

namespace shardline {
namespace {

std::string text_of(const std::string& system) {
  std::ifstream in(source_path("hardware/catalog/" + system + ".yaml"));
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::vector<Diagnostic> diagnostics(const std::string& text, const char* plan) {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  c.system = parse_system("home-made.yaml", text, source_path("hardware/catalog"));
  if (c.system.device.achieved(Dtype::fp4) <= FlopsPerSecond(0))
    c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  const Plan p = parse_plan(plan);
  return unread_parameters(c, std::span(&p, 1));
}

std::vector<std::string> warnings(const std::string& text, const char* plan) {
  std::vector<std::string> out;
  for (const Diagnostic& d : diagnostics(text, plan))
    out.push_back(d.where.file + ":" + std::to_string(d.where.line) + ": " +
                  d.what.substr(0, d.what.find(' ')));
  return out;
}

constexpr const char* kInside = "tensor:tpa=8,tpf=8,batch=4";

TEST(Unread, NothingIsSaidOfAFileAsItWasMeasured) {
  EXPECT_THAT(warnings(text_of("gb200-nvl72"), kInside), testing::IsEmpty());
}

TEST(Unread, ChangesThatNoPriceReadsAreNamedWithTheirPlace) {
  std::string text = replaced(text_of("gb200-nvl72"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "latency: 4 us", "latency: 40 us");
  EXPECT_THAT(warnings(text, kInside), testing::ElementsAre("home-made.yaml:13: device.kernel_cost",
                                                            "home-made.yaml:18: fabric.nvlink.latency"));
}

// b200-hgx has two switches and the fits of gb200-nvl72, which has eighteen.
TEST(Unread, OfTheCatalogueOnlyWhatWasSetIsNamed) {
  const auto named = [](const std::string& system, const std::vector<std::string>& settings) {
    Case c = decode_case("llama-3.1-8b", "h100-hgx", 8192);
    c.system = load_system(system, source_path("hardware/catalog"), settings);
    c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16};
    const Plan p = parse_plan("tensor:tpa=4,tpf=4,batch=4");
    std::vector<std::string> out;
    for (const Diagnostic& d : unread_parameters(c, std::span(&p, 1)))
      out.push_back(d.where.file + ": " + d.what.substr(0, d.what.find(' ')));
    return out;
  };
  EXPECT_THAT(named("b200-hgx", {}), testing::IsEmpty());
  EXPECT_THAT(named("h100-gtt-measured", {}), testing::IsEmpty());
  EXPECT_THAT(named("b200-hgx", {"device.kernel_cost=25 us"}),
              testing::ElementsAre("--set: device.kernel_cost"));
  // The same file as the user's own.
  const std::filesystem::path own = std::filesystem::temp_directory_path() / "shardline-own-b200.yaml";
  std::ofstream(own) << text_of("b200-hgx");
  EXPECT_THAT(named(own.string(), {}), testing::ElementsAre(own.string() + ": fabric.nvlink.switches"));
  std::filesystem::remove(own);
}

// All-reduces over two nodes have no fit: [H3] reads the network's latency and the kernel cost.
TEST(Unread, WhatSomePriceReadsIsNotNamed) {
  std::string text = replaced(text_of("h100-hgx"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "latency: 10 us", "latency: 30 us");
  EXPECT_THAT(warnings(text, "tensor:tpa=16,tpf=16,batch=4"), testing::IsEmpty());
  EXPECT_THAT(warnings(text, kInside), testing::ElementsAre("home-made.yaml:13: device.kernel_cost",
                                                            "home-made.yaml:18: fabric.network.latency"));
}

// Attention and the exchange beside it share no resource, so that it makes no difference which part of
// their measured times they keep one busy.
TEST(Unread, EfficienciesDoNotCountWhereKernelsOverlapAndShareNothing) {
  const std::string text = replaced(text_of("gb200-nvl72"), "efficiency: 0.85", "efficiency: 0.80");
  for (const char* plan :
       {"helix:kvp=8,tpf=8,batch=4,value_up=after", "helix:kvp=8,tpf=8,batch=4,chunks=2,value_up=after"})
    EXPECT_THAT(warnings(text, plan), testing::ElementsAre("home-made.yaml:9: device.memory.efficiency"));
}

TEST(Unread, ThatAKeyCountsByParametersIsSaidWhereItDoes) {
  std::string text = replaced(text_of("h100-hgx"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "latency: 10 us", "latency: 30 us");
  const std::vector<Diagnostic> found = diagnostics(text, kInside);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].what,
            "device.kernel_cost changes nothing here: these plans take as long with that of h100-hgx");
  EXPECT_THAT(found[0].details, testing::ElementsAre(testing::HasSubstr("with costs: parameters it counts")));
  EXPECT_THAT(found[1].details, testing::ElementsAre("nor does it with costs: parameters"));
}

TEST(Unread, SwitchesMulticastAndTheHostsCostsAreNamedToo) {
  std::string text = replaced(text_of("gb200-nvl72"), "switches: 18", "switches: 9");
  text = replaced(text, "multicast: true", "multicast: false");
  text += "runtime: {ring_step: 5 us, passes: {norm: 2}}\n";
  EXPECT_THAT(warnings(text, kInside), testing::ElementsAre("home-made.yaml:18: fabric.nvlink.switches",
                                                            "home-made.yaml:18: fabric.nvlink.multicast",
                                                            "home-made.yaml:29: runtime.ring_step",
                                                            "home-made.yaml:29: runtime.passes.norm"));
  const std::vector<Diagnostic> found = diagnostics(text, "tensor:tpa=64,tpf=64,batch=16");
  EXPECT_THAT(found.at(1).details, testing::ElementsAre(testing::HasSubstr("it counts")));
}

TEST(Unread, RailsAndHostLinksAreNamedWhereNoPriceReadsThem) {
  std::string text = replaced(text_of("h100-hgx"), "rail_optimised: true", "rail_optimised: false");
  text = replaced(text, "host_link: 64 GB/s", "host_link: 16 GB/s");
  EXPECT_THAT(warnings(text, kInside),
              testing::ElementsAre("home-made.yaml:18: fabric.network.host_link",
                                   "home-made.yaml:18: fabric.network.rail_optimised"));
  EXPECT_THAT(warnings(text, "tensor:tpa=16,tpf=16,batch=4"),
              testing::Not(testing::Contains("home-made.yaml:18: fabric.network.host_link")));
}

// Of each key, what a price reads with it set is what a file that gives it would say.
TEST(Unread, EveryParameterCanBeSetToWhatWasMeasured) {
  const System from = load_system("h100-gtt", source_path("hardware/catalog"));
  for (const MachineFigure& f : machine_figures()) {
    if (f.use != FigureUse::parameter) continue;
    SCOPED_TRACE(f.key);
    ASSERT_NE(f.set, nullptr);
    System s = from;
    const double before = f.of(s), other = before == 1 ? 0.5 : before == 0 ? 2 : 2 * before;
    const bool flag =
        std::string_view(f.key).ends_with("multicast") || std::string_view(f.key).ends_with("optimised");
    const double value = flag ? 1 - before : other;
    f.set(s, value);
    EXPECT_NEAR(f.of(s), value, 1e-12 * value);
    std::size_t changed = 0;
    for (const MachineFigure& any : machine_figures())
      changed += std::abs(any.of(s) - any.of(from)) > 1e-12 * any.of(from) ? 1 : 0;
    EXPECT_EQ(changed, 1u);
  }
}

// But names, the shape of the machine, the size of its memory and watts, which no fit stands in for.
TEST(Unread, EveryNumberOfASystemFileIsKnown) {
  std::ifstream in(source_path("hardware/machine/system.cpp"));
  std::ostringstream text;
  text << in.rdbuf();
  const std::string source = text.str();
  const std::regex key("(?:at|find|seconds|times)\\(\"([a-z_0-9]+)\"");
  const std::set<std::string> other{
      "name",   "summary", "source",      "capacity",      "usable",        "nodes",  "device",
      "memory", "compute", "fabric",      "nvlink",        "network",       "passes", "runtime",
      "like",   "prefer",  "calibration", "gpus_per_node", "power_limit_w", "tray",   "power"};
  int known = 0;
  for (std::sregex_iterator at(source.begin(), source.end(), key), end; at != end; ++at) {
    const std::string name = (*at)[1];
    if (other.contains(name)) continue;
    EXPECT_TRUE(std::any_of(machine_figures().begin(), machine_figures().end(), [&](const MachineFigure& f) {
      const std::string k = f.key;
      return k.ends_with("." + name) || k.find("." + name + ".") != std::string::npos;
    })) << name;
    ++known;
  }
  EXPECT_GT(known, 30);
}

TEST(Unread, WithoutFitsEverythingIsRead) {
  std::string text = replaced(text_of("gb200-nvl72"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "calibration: gb200-nvl72\n", "");
  EXPECT_THAT(warnings(text, kInside), testing::IsEmpty());
}

}  // namespace
}  // namespace shardline
