// Events carry the schedule's order and no more: what it lacks is found, what it leaves open overlaps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cuda_probe/execute/cpu/mutations.hpp"
#include "cuda_probe/transport/loopback.hpp"
#include "tests/cuda_probe/executor_cuda/cases.hpp"

namespace shardline::testing {
namespace {

const Mutation& mutation(const std::string& name) {
  for (const Mutation& m : mutations()) {
    if (m.name == name) return m;
  }
  throw std::invalid_argument(name);
}

/// How running a broken schedule differs from running the right one; empty: not at all.
std::string found(const Schedule& broken, const Inputs& inputs, const RunResult<float>& want) {
  if (unsupported(broken)) return "unsupported";
  try {
    EmulatedOptions gpu;
    gpu.order = StreamOrder::by_stream;
    const DeviceResult one = on_emulated(broken, inputs, gpu);
    if (!compare(broken, one, want).passed()) return "wrong";
    gpu.order = StreamOrder::latest_stream_first;
    if (!same_bits(one, on_emulated(broken, inputs, gpu))) return "changes with the order";
  } catch (const GpuError&) {
    return "race";
  } catch (const ExecutionError&) {
    return "refused";
  }
  return "";
}

// Only order is broken: the stand-in device must see it in the events that the executor gave it.
TEST(DeviceOrder, MissingDependenciesAndCollapsedBuffersAreFound) {
  std::map<std::string, int> tried;
  for (const std::string& name : strategy_names()) {
    for (const cli::VerifyCase& c : sampled(name, 6)) {
      const Schedule whole = cli::verify_schedule(c);
      for (const char* broken_by : {"dependency_dropped", "buffers_collapsed"}) {
        if (tried[broken_by] >= 12) continue;
        Schedule broken = deep_copy(whole);
        std::mt19937_64 random(3);
        if (!mutation(broken_by).apply(broken, random)) continue;
        ++tried[broken_by];
        const Inputs inputs(c.kinds.front());
        EXPECT_EQ(found(broken, inputs, inputs.on_cpu(whole)), "race") << broken_by << ": " << c.what;
      }
    }
  }
  EXPECT_GE(tried["dependency_dropped"], 8);
  EXPECT_GE(tried["buffers_collapsed"], 4);
}

/// Cases of attention alone first: one key of 48 forgotten drowns in the roundings of a whole layer.
std::vector<cli::VerifyCase> attention_first() {
  std::vector<cli::VerifyCase> all;
  for (const std::string& name : strategy_names()) {
    for (cli::VerifyCase& c : sampled(name, 5)) all.push_back(std::move(c));
  }
  std::stable_partition(all.begin(), all.end(), [](const auto& c) { return c.kinds.front().hidden == 0; });
  return all;
}

// Everything else that can be wrong with the data flow of a schedule shows, bfloat16 or not.
TEST(DeviceOrder, BrokenSchedulesExceedTheTolerance) {
  std::map<std::string, int> tried, wrong;
  for (const cli::VerifyCase& c : attention_first()) {
    const Schedule whole = cli::verify_schedule(c);
    const Inputs inputs(c.kinds.front());
    const RunResult<float> want = inputs.on_cpu(whole);
    for (const Mutation& m : mutations()) {
      const std::string name = m.name;
      // Charges are not run, and where outputs belong is no matter of the device's.
      if (name.starts_with("charged") || name == "output_shifted" || tried[name] >= 3) continue;
      Schedule broken = deep_copy(whole);
      std::mt19937_64 random(5);
      if (!m.apply(broken, random)) continue;
      ++tried[name];
      const std::string how = found(broken, inputs, want);
      wrong[name] += how == "wrong";
      EXPECT_NE(how, "") << name << ": " << c.what;
    }
  }
  EXPECT_GE(tried.size(), 25u);
  EXPECT_GE(std::count_if(wrong.begin(), wrong.end(), [](const auto& w) { return w.second > 0; }), 18)
      << "found by their results, not by shapes or races";
}

cli::VerifyCase ring() {
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_pass_kv"), device_sizes())) {
    if (c.plan.cp == 4 && c.plan.tpa == 1 && c.study.model.attentions.front().kv_heads == 8) return c;
  }
  throw std::invalid_argument("no ring of four");
}

struct Step {
  OpIndex message, attend;
};
/// Each message of the ring and the attend of the same iteration, which comes next.
std::vector<Step> steps(const Schedule& s) {
  std::vector<Step> out;
  for (OpIndex i = 0; i + 1 < s.ops.size(); ++i) {
    if (s.ops[i].kind == OpKind::send_recv && is_attention(s.ops[i + 1].kind)) out.push_back({i, i + 1});
  }
  return out;
}

bool overlap_in_time(const OpTime& a, const OpTime& b) { return a.start < b.end && b.start < a.end; }

TEST(DeviceOrder, MessagesOfARingOverlapTheAttentionOfTheirIteration) {
  const cli::VerifyCase c = ring();
  const Schedule s = cli::verify_schedule(c);
  const Inputs inputs(c.kinds.front());
  const DeviceResult run = on_emulated(s, inputs, {4});
  ASSERT_EQ(steps(s).size(), 3u);
  for (const Step& step : steps(s)) {
    for (int r = 0; r < run.ranks; ++r) {
      EXPECT_GT(run.time(step.message, r).duration(), Seconds(0));
      EXPECT_TRUE(overlap_in_time(run.time(step.message, r), run.time(step.attend, r)))
          << "op " << step.message << ", rank " << r;
    }
  }
}

// The same ring where the first attend waits for the first message.
TEST(DeviceOrder, NothingOverlapsWhereTheScheduleForbidsIt) {
  cli::VerifyCase c = ring();
  c.study.persistent_kv = true;
  const Schedule s = cli::verify_schedule(c);
  const Inputs inputs(c.kinds.front());
  const DeviceResult run = on_emulated(s, inputs, {4});
  const Step first = steps(s).front();
  for (int r = 0; r < run.ranks; ++r)
    EXPECT_FALSE(overlap_in_time(run.time(first.message, r), run.time(first.attend, r)));
}

/// Slots that attends read padding keys from though they are no inputs, each with the list of its rows.
std::vector<Binding> padded_keys(const Schedule& s) {
  std::vector<Binding> out;
  for (const Action& a : s.flow->actions) {
    if (a.function != Function::attend) continue;
    const TokenView keys = s.flow->token_list(a.keys);
    const SlotId slot = s.flow->regions_of(a)[1].slot;
    const bool padded =
        std::any_of(keys.begin(), keys.end(), [](const Interval& i) { return i.request == kPadding; });
    const bool input = std::any_of(s.flow->inputs.begin(), s.flow->inputs.end(),
                                   [&](const Binding& b) { return b.slot == slot && b.rank == a.rank; });
    if (padded && !input) out.push_back({slot, a.rank, Whole::kv, a.keys, a.keys, 0});
  }
  return out;
}

// A matrix unit multiplies what is masked by zero, and zero times NaN is NaN.
TEST(DeviceOrder, PaddingKeysAreFiniteBeforeTheFirstAttend) {
  std::size_t seen = 0;
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_pass_kv"), device_sizes())) {
    if (seen > 0) break;
    if (c.kinds.front().hidden == 0) continue;
    const Schedule s = deep_copy(cli::verify_schedule(c));
    const std::vector<Binding> keys = padded_keys(s);
    seen += keys.size();
    s.flow->outputs = keys;
    for (const Output<float>& o : on_emulated(s, Inputs(c.kinds.front())).outputs)
      EXPECT_TRUE(o.values.allFinite()) << c.what;
  }
  EXPECT_GT(seen, 0u);
}

TEST(DeviceOrder, OpsStartAfterWhatTheyWaitForAndRunsRepeat) {
  const cli::VerifyCase c = ring();
  const Schedule s = cli::verify_schedule(c);
  const Inputs inputs(c.kinds.front());
  EmulatedGpu gpu;
  LoopbackTransport transport(gpu, ranks_of(s));
  Lanes lanes(transport);
  DeviceExecutor executor(s, inputs.tensors, lanes);
  const DeviceResult run = executor.run();
  for (const BlockIndex b : block_order(s)) {
    const Block& block = s.blocks[b];
    for (OpIndex op = block.first; op < block.last; ++op) {
      for (const OpIndex before : predecessors(s, block, op)) {
        for (int r = 0; r < run.ranks; ++r) EXPECT_GE(run.time(op, r).start, run.time(before, r).end);
      }
    }
  }
  EXPECT_TRUE(same_bits(run, executor.run()));
}

}  // namespace
}  // namespace shardline::testing
