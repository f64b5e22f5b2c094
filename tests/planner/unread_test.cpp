// Numbers of a calibrated system's file that no price reads are named: hardware/README.md.
#include "planner/search/unread.hpp"

#include <gmock/gmock.h>

#include <fstream>
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

std::vector<std::string> warnings(const std::string& text, const char* plan) {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  c.system = parse_system("home-made.yaml", text, source_path("hardware/catalog"));
  if (c.system.device.achieved(Dtype::fp4) <= FlopsPerSecond(0))
    c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  Evaluator e(c);
  const Plan p = parse_plan(plan);
  std::vector<std::string> out;
  for (const Diagnostic& d : unread_parameters(e, std::span(&p, 1)))
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
  EXPECT_THAT(warnings(text, kInside), testing::ElementsAre("home-made.yaml:12: device.kernel_cost",
                                                            "home-made.yaml:16: fabric.nvlink.latency"));
}

// All-reduces over two nodes have no fit: [H3] reads the network's latency and the kernel cost.
TEST(Unread, WhatSomePriceReadsIsNotNamed) {
  std::string text = replaced(text_of("h100-hgx"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "latency: 10 us", "latency: 30 us");
  EXPECT_THAT(warnings(text, "tensor:tpa=16,tpf=16,batch=4"), testing::IsEmpty());
  EXPECT_THAT(warnings(text, kInside), testing::ElementsAre("home-made.yaml:12: device.kernel_cost",
                                                            "home-made.yaml:17: fabric.network.latency"));
}

TEST(Unread, EfficienciesCountWhereKernelsOverlap) {
  const std::string text = replaced(text_of("gb200-nvl72"), "efficiency: 0.85", "efficiency: 0.80");
  EXPECT_EQ(warnings(text, "helix:kvp=8,tpf=8,batch=4,value_up=after").size(), 1u);
  EXPECT_THAT(warnings(text, "helix:kvp=8,tpf=8,batch=4,chunks=2,value_up=after"), testing::IsEmpty());
}

TEST(Unread, WithoutFitsEverythingIsRead) {
  std::string text = replaced(text_of("gb200-nvl72"), "kernel_cost: 2.5 us", "kernel_cost: 25 us");
  text = replaced(text, "calibration: gb200-nvl72\n", "");
  EXPECT_THAT(warnings(text, kInside), testing::IsEmpty());
}

}  // namespace
}  // namespace shardline
