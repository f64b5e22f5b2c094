// Keys of few queries shared over thread blocks [H48].
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill.hpp"
#include "hardware/machine/system.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::prefill_shape;

// The blocks are as many, in parts that fill the device.
TEST(FormsPrefill, H48SharedKeysShortenTheLongestTile) {
  FormContext c;
  c.sms = 100;
  for (const double cached : {65'536., 1'048'576.}) {
    const PrefillShape s = prefill_shape(1, 16, cached, 8, 1);
    const PrefillWork whole = prefill_work(s, PrefillKernel::packed, c);
    for (const SplitRule rule : {SplitRule::flash_attention_3, SplitRule::flash_attention_3_graph}) {
      PrefillWork w = whole;
      share_keys(w, s, {rule, SplitRule::whole}, c.sms);
      const double most = rule == SplitRule::flash_attention_3_graph ? 32 : c.sms / 1.1;
      EXPECT_LE(w.parts, most);
      EXPECT_GE(w.parts, 0.85 * most);
      EXPECT_EQ(w.blocks, whole.blocks);
      EXPECT_DOUBLE_EQ(w.tiles, whole.tiles * w.parts);
      EXPECT_DOUBLE_EQ(w.longest * w.parts, whole.longest);
      EXPECT_DOUBLE_EQ(w.query_bytes - whole.query_bytes, 2 * 4 * w.parts * 16 * 8 * 128);
      PrefillWork floor = whole;
      share_keys(floor, s, {rule, SplitRule::whole}, c.sms, Merging::left_out);
      EXPECT_EQ(floor.longest, w.longest);
      EXPECT_EQ(floor.tiles, whole.tiles);
      EXPECT_EQ(floor.query_bytes, whole.query_bytes);
    }
    PrefillWork same = whole;
    share_keys(same, s, {}, c.sms);
    EXPECT_EQ(same.longest, whole.longest);
    EXPECT_EQ(same.parts, 1);
    // Of more tokens than an engine has graphs for, the other rule; and none where tiles fill the device.
    const PrefillShape more = prefill_shape(1, 513, cached, 8, 1),
                       full = prefill_shape(1, 16 * 96, cached, 8, 1);
    PrefillWork w = prefill_work(more, PrefillKernel::packed, c);
    share_keys(w, more, {SplitRule::flash_attention_3, SplitRule::whole}, c.sms);
    EXPECT_EQ(w.parts, 1);
    w = prefill_work(full, PrefillKernel::packed, c);
    share_keys(w, full, {SplitRule::flash_attention_3, SplitRule::flash_attention_3}, c.sms);
    EXPECT_EQ(w.parts, 1);
  }
}

// A token more costs at most as much as the tiles that it adds, and little where it adds none.
TEST(FormsPrefill, H48KernelsThatShareKeysRiseWithTheirTiles) {
  const Form& form = *find_form("attention_prefill");
  struct On {
    const char* kernel;
    const char* system;
    bool shares;
  };
  for (const On& on : {On{"fa3", "h100-hgx", true},
                       {"flash_attn_fa3", "h100-hgx", true},
                       {"flash_attention", "a100-sxm", true},
                       {"torch_flow", "h100-hgx", false},
                       {"flash_attn_fa4", "h100-hgx", false},
                       {"trtllm_mha", "gb200-nvl72", false}}) {
    FormContext c;
    ASSERT_TRUE(form.context(std::vector<std::string>{"bf16", "bf16", on.kernel},
                             testing::catalog_system(on.system), c));
    c.sms = 132;
    std::vector<double> p;
    for (const FormParameter& f : form.parameters) p.push_back(f.start);
    for (const double cached : {32'768., 131'072., 1'048'576.}) {
      for (const auto& heads : {std::pair{8., 1.}, {64., 8.}, {4., 4.}}) {
        const double q = heads.first, kv = heads.second;
        const auto time = [&](double rows) {
          return form.seconds(std::array<double, 7>{1, rows, cached, q, kv, 128, 0}, c, p);
        };
        double before = time(1);
        for (double rows = 2; rows <= 1100; ++rows) {
          const double t = time(rows);
          SCOPED_TRACE(::testing::Message()
                       << on.kernel << " " << rows << " after " << cached << ", " << q << "/" << kv);
          // Fewer parts are fewer to merge, a few percent.
          ASSERT_GE(t, before * (on.shares ? 0.97 : 1 - 1e-12));
          const auto tiles = [&](double n) { return kv * std::ceil(n * q / kv / 128); };
          const double now = tiles(rows), last = tiles(rows - 1), filled = 0.8 * c.sms;
          // Tiles that fill 0.8 of the device stay whole, and leave a fifth of it idle.
          const double idle = now >= filled && last < filled ? 1.25 : 1;
          if (on.shares) {
            ASSERT_LE(t, before * 1.05 * now / last * idle);
          }
          before = t;
        }
      }
    }
    // The whole cache in one thread block, or in many.
    const double one = form.seconds(std::array<double, 7>{1, 1, 131'072, 8, 1, 128, 0}, c, p);
    EXPECT_EQ(one > 300e-6, !on.shares) << on.kernel << " " << one;
  }
}

}  // namespace
}  // namespace shardline
