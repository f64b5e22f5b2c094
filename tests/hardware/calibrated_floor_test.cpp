// Properties of calibrated prices, on random ops of every kind and every calibrated system: floors [H57],
// peaks, demands, memory of prices.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "sim/base/error.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::calibrated_systems;

constexpr int kRounds = 400;  // per kind and system

/// An op, and one that differs by more tokens.
struct Pair {
  Op less, more;
};

class Draw {
 public:
  Draw(const System& s, unsigned seed) : system_(s), random_(seed) {}

  double between(double low, double high) {  // uniform in the logarithm
    return low * std::pow(high / low, std::uniform_real_distribution<>(0, 1)(random_));
  }
  Count whole(double low, double high) { return std::llround(between(low, high)); }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[random_() % all.size()];
  }
  Dtype math() {
    for (;;) {
      const Dtype t = one_of({Dtype::fp4, Dtype::fp8, Dtype::bf16});
      if (system_.device.peak[static_cast<std::size_t>(t)].value > 0) return t;
    }
  }
  Dtype stored() { return one_of({Dtype::fp4, Dtype::fp8, Dtype::bf16}); }
  Group group() {
    const int node = system_.fabric.gpus_per_node, nodes = system_.fabric.nodes;
    const int size = one_of({2, 4, node, nodes > 1 ? 4 * node : node});
    return {size, size <= 4 && node % (4 * size) == 0 ? one_of({1, 4}) : 1};
  }
  /// More of something: usually a little, sometimes much.
  template <class Tokens>
  Tokens more(Tokens tokens) {
    const auto few = static_cast<double>(whole(1, 64));
    const double many = std::floor(static_cast<double>(tokens) * between(0.01, 100));
    return tokens + static_cast<Tokens>(one_of({0.0, 1.0, few, many}));
  }

  Pair gemm() {
    const Count k = whole(16, 60'000), n = whole(16, 60'000), rows = whole(1, 40'000), again = more(rows);
    const double launches = one_of({0.0, 1.0, 1.0, 2.0});
    const Dtype w = stored(), m = math();
    const auto op = [&](Count r) { return testing::gemm_op({r, k, n}, w, m, launches); };
    return {op(rows), op(again)};
  }
  Pair batched() {
    const bool measured = one_of({true, false});
    const Count k = measured ? one_of<Count>({128, 512}) : whole(16, 4096);
    const Count n = measured ? 640 - k : whole(16, 4096), heads = one_of({Count{1}, whole(2, 128)});
    const Count parts = one_of<Count>({1, 1, 4}), rows = whole(1, 40'000), again = more(rows);
    const double launches = one_of({0.0, 1.0, 1.0, 2.0});
    const LatentProduct of = one_of({LatentProduct::absorb_query, LatentProduct::expand_values});
    const Dtype w = stored(), m = math();
    const auto op = [&](Count r) { return testing::batched_op({of, r, k, n, heads, parts}, w, m, launches); };
    return {op(rows), op(again)};
  }
  Pair experts() {
    const Count ep = one_of<Count>({1, 4, 16, 64}), held = whole(1, 16);
    const auto topk = static_cast<double>(std::min<Count>(8, ep * held));
    testing::Experts e{held, 0, whole(512, 16'000), whole(64, 4096), one_of({false, true})};
    const Count tokens = whole(1, 30'000), again = more(tokens);
    const bool up = one_of({true, false});
    const Dtype w = stored(), m = math();
    const auto op = [&](Count t) {
      e.tokens = t;
      const double pairs = static_cast<double>(t) * topk / static_cast<double>(ep);
      const auto all = static_cast<double>(held);
      return testing::experts_op(up, e, pairs, all * -std::expm1(-pairs / all), w, m);
    };
    return {op(tokens), op(again)};
  }
  Pair decode() {
    const Count dim = one_of<Count>({64, 128, 256, 100}), kv = one_of<Count>({1, 2, 8, 16});
    const Count heads = kv * one_of<Count>({1, 4, 8, 32, 40}), rank = one_of<Count>({512, 512, 256, 768});
    const double launches = one_of({0.0, 1.0, 2.0});
    const Count batch = whole(1, 2000), again = more(batch), length = whole(1, 1.5e6);
    const Dtype cache = stored();
    const bool mla = one_of({true, false});
    const auto op = [&](Count b) {
      return mla ? testing::mla_decode_op(b, length, heads, cache, rank)
                 : testing::decode_op(b, length, heads, kv, dim, cache, launches);
    };
    return {op(batch), op(again)};
  }
  Pair prefill() {
    const Count dim = one_of<Count>({64, 128, 256}), kv = one_of<Count>({1, 2, 8, 16});
    const Count qk = one_of<Count>({192, 192, 256});
    const bool mla = one_of({true, false});
    const Count heads = kv * one_of<Count>({1, 4, 8});
    const Count rows = whole(2, 200'000), cached = one_of({Count{0}, Count{0}, whole(1, 1e6)});
    const Dtype cache = stored(), m = math();
    const auto op = [&](Count sequences) {
      AttendPrefillShape a = mla ? testing::mla_sequences(sequences, rows, kv, qk, qk == 192 ? 128 : qk)
                                 : testing::whole_sequences(sequences, rows, heads, kv, dim, dim);
      a.pairs += sequences * rows * cached;
      a.kv_rows += sequences * cached;
      a.whole = cached == 0;
      return testing::prefill_op(a, cache, m);
    };
    const Count batch = whole(1, 100);
    return {op(batch), op(more(batch))};
  }
  Pair elementwise() {
    const Count width = whole(1, 20'000), rows = whole(1, 1e5), again = more(rows);
    const double bytes = one_of({0.0, 2.0, 6.0}), launches = one_of({0.0, 1.0, 3.0});
    const Within within = one_of({Within::own, Within::own, Within::gemm, Within::decode_attention});
    const OpKind kind = one_of({OpKind::elementwise, OpKind::merge, OpKind::compress});
    const auto op = [&](Count r) {
      const Bytes moved(static_cast<double>(r * width) * bytes);
      return testing::elementwise_op({r, width, moved}, launches, within, kind);
    };
    return {op(rows), op(again)};
  }
  Pair collective() {
    const OpKind kind = one_of({OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                                OpKind::all_to_all, OpKind::send_recv});
    const Group g = group();
    const bool told = one_of({true, false}), nothing = one_of({true, false, false, false});
    const double row = nothing ? 0 : between(0.5, 60'000), rows = between(0.1, 3000), again = more(rows);
    const Drive drive = one_of({Drive::graph, Drive::eager});
    const auto op = [&](double r) {
      Op made = testing::exchange_op(
          kind, g, ExchangeShape{Bytes(r * row), told ? Carrier::engine : Carrier::library, r});
      made.drive = drive;
      return made;
    };
    return {op(rows), op(again)};
  }
  Pair routed() {
    const Group g = group();
    const Count experts = whole(8, 384), topk = whole(1, 8), width = whole(256, 16'000);
    const double rows = between(0.1, 60'000), again = more(rows);
    const bool back = one_of({true, false});
    const Dtype type = stored();
    const auto op = [&](double r) { return testing::routed_op(g, r, width, topk, experts, back, type); };
    return {op(rows), op(again)};
  }

 private:
  const System& system_;
  std::mt19937 random_;
};

const std::pair<const char*, Pair (Draw::*)()> kKinds[] = {
    {"gemm", &Draw::gemm},
    {"batched", &Draw::batched},
    {"experts", &Draw::experts},
    {"decode", &Draw::decode},
    {"prefill", &Draw::prefill},
    {"elementwise", &Draw::elementwise},
    {"collective", &Draw::collective},
    {"routed", &Draw::routed},
};

/// f(system, cost model, kind, ops) for random ops of every kind on every calibrated system.
void for_random_ops(unsigned seed, int rounds,
                    const std::function<void(const System&, CostModel&, const Pair&)>& f) {
  for (const System& s : calibrated_systems()) {
    CostModel m(s);
    for (const auto& [name, draw] : kKinds) {
      SCOPED_TRACE(s.name + " " + name);
      Draw d(s, seed);
      for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
        SCOPED_TRACE(round);
        f(s, m, (d.*draw)());
      }
    }
  }
}

TEST(CalibratedFloor, H57IsBelowEveryPriceWithMoreTokens) {
  std::size_t tight = 0, count = 0;
  for_random_ops(1, kRounds, [&](const System&, CostModel& m, const Pair& p) {
    const Seconds floor = m.floor(p.less);
    EXPECT_LE(floor, m.time(p.less));
    EXPECT_LE(floor, m.time(p.more));
    EXPECT_LE(floor, m.floor(p.more) * (1 + 1e-9));  // rises itself
    EXPECT_GE(floor, Seconds(0));
    ++count;
    tight += floor > m.time(p.less) * 0.7 ? 1 : 0;
  });
  EXPECT_GE(calibrated_systems().size(), 6u);
  EXPECT_GT(tight, count / 2);  // and is worth computing
}

TEST(CalibratedFloor, H57PaddingDoesNotRaiseAFloor) {
  // DeepGEMM pads rows to blocks, which fewer rows pay more for. Systems with another FP8 kernel do not take
  // it.
  System s = testing::catalog_system("h200-hgx");
  std::erase_if(s.calibration.fits.edit(), [](const KernelFit& f) {
    return f.form->family == std::string_view("gemm") && f.words[0] == "fp8";
  });
  CostModel m(s);
  const auto op = [](Count rows) { return testing::gemm_op({rows, 16384, 2048}, Dtype::fp8, Dtype::fp8); };
  std::size_t falls = 0;
  for (Count rows = 20; rows < 600; ++rows) {
    falls += m.time(op(rows + 1)) < m.time(op(rows)) ? 1 : 0;
    for (const Count more : {rows, rows + 1, rows + 40, rows + 200})
      EXPECT_LE(m.floor(op(rows)), m.time(op(more))) << rows << " " << more;
  }
  EXPECT_GT(falls, 0u);
}

TEST(CalibratedFloor, PricesThemselvesNeedNotRise) {
  // Else floors would not be needed.
  std::size_t falls = 0;
  for_random_ops(2, kRounds, [&](const System&, CostModel& m, const Pair& p) {
    falls += m.time(p.more) < m.time(p.less) ? 1 : 0;
  });
  EXPECT_GT(falls, 10u);
}

TEST(CalibratedCost, H50NothingIsFasterThanThePeaks) {
  for_random_ops(3, kRounds, [](const System& s, CostModel& m, const Pair& p) {
    for (const Op& op : {p.less, p.more}) {
      if (!is_gemm(op.kind) && !is_attention(op.kind)) continue;
      FlopsPerSecond peak = s.device.peak[static_cast<std::size_t>(op.math)];
      // Kernels over a narrow cache compute in FP8 whatever the schedule says, and never in FP4.
      if (is_attention(op.kind) && op.dtype != Dtype::bf16)
        peak = std::max(peak, s.device.peak[static_cast<std::size_t>(Dtype::fp8)]);
      const Bytes bytes = is_gemm(op.kind) ? weight_bytes(op) : kv_bytes(op);
      EXPECT_GE(m.time(op) * (1 + 1e-12), flops(op) / peak);
      EXPECT_GE(m.time(op) * (1 + 1e-12), bytes / s.device.memory_bandwidth);
    }
  });
}

TEST(CalibratedCost, H50DemandsAreThoseOfGeometryUnlessTheTimeIsShorter) {
  std::size_t waiting = 0, busy = 0;
  std::map<std::string, System> plain;
  std::map<std::string, CostModel> models;
  for (const System& s : calibrated_systems()) {
    const System& own = plain.emplace(s.name, testing::by_parameters(s)).first->second;
    models.emplace(s.name, own);
  }
  for_random_ops(4, kRounds, [&](const System& s, CostModel& m, const Pair& p) {
    CostModel& geometry = models.at(s.name);
    const OpCost c = m.price(p.less), g = geometry.price(p.less);
    const Seconds time = m.time(p.less);
    EXPECT_DOUBLE_EQ(m.alone(c).value, time.value);  // demands and what is left beside them round
    EXPECT_EQ(c.port_resource, g.port_resource);
    if (c.basis == Basis::assumed) {
      EXPECT_EQ(time, geometry.time(p.less));
      EXPECT_EQ(c.latency, g.latency);
      return;
    }
    EXPECT_GE(c.latency, Seconds(0));
    // All demands by one factor: 1 where there is time left, else what brings the longest to the time.
    const double factor = c.latency > Seconds(0) ? 1 : time.value / (geometry.alone(g) - g.latency).value;
    (c.latency > Seconds(0) ? waiting : busy) += time > Seconds(0) ? 1 : 0;
    const auto same = [&](double fitted, double geometric) {
      EXPECT_NEAR(fitted, geometric * (g.latency < geometry.alone(g) ? factor : 1), 1e-9 * geometric);
    };
    same(c.tensor.value, g.tensor.value);
    same(c.memory.value, g.memory.value);
    same(c.exponentials.value, g.exponentials.value);
    same(c.port.value, g.port.value);
  });
  EXPECT_GT(waiting, 1000u);
  EXPECT_GT(busy, 100u);
}

void expect_same(const OpCost& a, const OpCost& b) {
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.tensor, b.tensor);
  EXPECT_EQ(a.memory, b.memory);
  EXPECT_EQ(a.exponentials, b.exponentials);
  EXPECT_EQ(a.port, b.port);
  EXPECT_EQ(a.basis, b.basis);
}

TEST(CalibratedCost, H50ThePriceIsTheSameWhateverWasPricedBefore) {
  const System s = testing::catalog_system("gb200-nvl72");
  std::vector<Op> ops;
  std::vector<OpCost> cold;
  std::vector<Seconds> floors;
  for (const auto& [name, draw] : kKinds) {
    Draw d(s, 5);
    for (int i = 0; i < 5; ++i) {
      ops.push_back((d.*draw)().less);
      CostModel fresh(s);
      cold.push_back(fresh.price(ops.back()));
      floors.push_back(fresh.floor(ops.back()));
    }
  }
  CostModel used(s), shared(s);
  const auto check = [&](CostModel& m) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      expect_same(m.price(ops[i]), cold[i]);
      EXPECT_EQ(m.floor(ops[i]), floors[i]);
    }
  };
  check(shared);
  check(shared);
  Draw d(s, 6);
  constexpr int kMany = 100'000;
  for (int i = 0; i < kMany; ++i)
    used.price((d.*kKinds[static_cast<std::size_t>(i) % std::size(kKinds)].second)().more);
  check(used);
}

}  // namespace
}  // namespace shardline
