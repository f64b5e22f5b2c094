// Steps of random models, batches and plans: whatever check_plan() takes is lowered, played, bounded, and
// where it is small computed; laws that hold of every step are asked of each.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "planner/search/block_times.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/fuzz/step_case.hpp"
#include "tests/fuzz/step_machines.hpp"
#include "tests/fuzz/step_work.hpp"

namespace {

using namespace shardline;
using fuzz::require;

constexpr double kFolding = 1e-9;  // of sums in another order
constexpr std::size_t kMostTasks = 200'000;

bool positive(Seconds t) { return std::isfinite(t.value) && t.value > 0; }

// Every rank, stage and repetition for itself gives what one rank of each kind gives.
void check_folding(const fuzz::StepCase& step, const Schedule& schedule, CostModel& cost,
                   PassScratch& scratch) {
  double runs = 0;
  for (const double r : executions(schedule)) runs += r;
  const double tasks =
      runs * static_cast<double>(schedule.ops.size() / std::max<std::size_t>(1, schedule.blocks.size()) + 1) *
      step.plan.ranks_per_stage();
  if (tasks > static_cast<double>(kMostTasks)) return;
  const PassTime folded = simulate_pass(schedule, cost, scratch);
  static TaskGraph graph;
  graph.clear();
  lower_unfolded(schedule, cost, graph);
  const Seconds unfolded = simulate(graph, cost.machine(step.plan.gpus())).makespan();
  require(std::abs(unfolded / folded.latency - 1) <= kFolding, "folding changes no time");
  require(folded.busiest <= folded.latency * (1 + kFolding), "a stage is busy within the pass");
  if (!plays_all_layers(schedule)) return;
  if (const auto replayed = replay_layers(schedule, cost, scratch))
    require(replayed->latency == folded.latency && replayed->busiest == folded.busiest,
            "a replay has the same bits");
}

// A price depends on its op alone: a memo that forgot a field would give that of another step.
void check_prices(const Schedule& schedule, CostModel& fresh, CostModel& warm) {
  for (OpIndex i = 0; i < schedule.ops.size(); ++i) {
    for (int k = 0; k < schedule.classes; ++k) {
      const Op op = schedule.op_of_class(i, k);
      const OpCost a = fresh.price(op), b = warm.price(op);
      const Seconds t = fresh.alone(a);
      require(t == warm.alone(b) && a.latency == b.latency && a.memory == b.memory && a.port == b.port,
              "a price is that of its op, whatever was priced before");
      require(std::isfinite(t.value) && t.value >= 0, "a price is a time");
      require(std::abs(fresh.time(op).value - t.value) <= kFolding * t.value, "time() is the price alone");
    }
  }
}

void check_times(const fuzz::StepCase& step, Evaluator& e) {
  const Seconds simulated = e.simulate(step.plan), bound = e.bound(step.plan);
  require(positive(simulated) && positive(bound), "a step takes a time");
  require(bound <= simulated * (1 + kFolding), "a bound is below the simulation");
  require(e.simulate_below(Seconds(std::numeric_limits<double>::max()), step.plan) == simulated,
          "a step that is not cut short takes as long");
  BlockTimes blocks(e, std::make_shared<KnownBlocks>(std::vector{step.plan.batch}));
  blocks.start(step.plan);
  require(blocks.simulate(0) == simulated && blocks.bound(0) == bound, "sweeps time what is lowered");
}

// Heads and widths that the ranks divide: the executors have no other numbers.
bool computable(const fuzz::StepCase& step) {
  const Case& c = *step.study;
  const Plan& p = step.plan;
  if (!step.small || p.gpus() > 8 || p[kOverlap] != Overlap::none) return false;
  const Strategy& row = strategy(p.strategy);
  if (!row.exact && row.blocks == nullptr) return false;  // it is timed only
  for (const Attention& a : c.model.attentions) {
    if (a.none()) return false;
    if (a.delta && (a.delta->key_heads % (p.tpa * p.kvp) != 0)) return false;
    if (a.mamba && (a.mamba->groups % (p.tpa * p.kvp) != 0)) return false;
    if (a.recurrent()) continue;
    if (a.q_heads % p.tpa != 0 || a.q_heads / p.tpa % p.kvp != 0) return false;
    if (a.kv_heads % p.tpa != 0 && p.tpa % a.kv_heads != 0) return false;
  }
  for (const FeedForward& f : c.model.ffns) {
    if (f.dense() && f.inner % p.tpa != 0) return false;
  }
  long long tokens = 0;
  for (const auto* list : {&c.batch.decode, &c.batch.prefill}) {
    for (const Segment& s : *list) tokens += s.length() * s.count;
  }
  return tokens * p.batch * p.dp <= 400;
}

// What ranks compute and send is what one device computes, what leaves one arrives at another, and both are
// what the ops are charged for.
void check_numbers(const fuzz::StepCase& step) {
  if (!computable(step)) return;
  const Check done = cli::run_case(cli::verify_case_of(*step.study, step.plan));
  if (done.passed()) return;
  for (const std::string& fault : done.faults) std::fprintf(stderr, "%s\n", fault.c_str());
  std::fprintf(stderr, "error %g, float %g: %s\n", done.max_error_double,
               static_cast<double>(done.max_error_float), done.worst.c_str());
  require(false, "ranks compute what one device does, and are charged for it");
}

void check_step(const fuzz::StepCase& step) {
  require(to_string(parse_plan(to_string(step.plan))) == to_string(step.plan),
          "a plan's text reads as itself");
  fuzz::SteppedMachine& m = fuzz::machine(step.machine);
  Evaluator e(*step.study, AllReduceRule::fastest, m.fabric);
  check_times(step, e);
  PassScratch scratch(e.cost());
  Schedule schedule;
  lower(schedule, *step.study, step.plan);
  check_prices(schedule, e.cost(), *m.warm);
  check_folding(step, schedule, e.cost(), scratch);
  fuzz::check_work(step, schedule);
  check_numbers(step);
}

// The step that is being checked, for the report of what breaks it.
const fuzz::StepCase* g_step = nullptr;
void tell_step() {
  if (g_step != nullptr) std::fprintf(stderr, "step: %s\n", fuzz::text_of(*g_step).c_str());
}

// What the inputs of a run were of, where FUZZ_STEP_COVERS names a file: for run.sh.
class Covered {
 public:
  Covered() : file_(std::getenv("FUZZ_STEP_COVERS")) {}
  ~Covered() {
    if (file_ == nullptr) return;
    std::FILE* const out = std::fopen(file_, "w");
    if (out == nullptr) return;
    for (const Strategy* s : strategies()) count(out, std::string("strategy ") + s->name);
    for (const char* kind : kAttentions) count(out, kind);
    for (const char* kind : kAttentions) {
      // No strategy that deals prompts out has rows of several tokens.
      if (!std::string_view(kind).starts_with("attention compressed")) count(out, dealt(kind));
    }
    for (const char* kind : {"step decode", "step prefill", "step mixed", "computed", "after turns", "drafts",
                             "experts", "an engine", "stages", "chunks", "two halves"})
      count(out, kind);
    std::fclose(out);
  }

  void add(const fuzz::StepCase& step) {
    if (file_ == nullptr) return;
    const Case& c = *step.study;
    const Plan& p = step.plan;
    const auto note = [&](bool holds, const std::string& what) { inputs_[what] += holds ? 1 : 0; };
    note(true, std::string("strategy ") + strategy(p.strategy).name);
    for (const Attention& a : c.model.attentions) {
      const char* const kind = kAttentions[kind_of(a)];
      note(true, kind);
      note(p.cp > 1 && c.batch.prefills(), dealt(kind));
    }
    note(c.batch.kind() == StepKind::decode, "step decode");
    note(c.batch.kind() == StepKind::prefill, "step prefill");
    note(c.batch.kind() == StepKind::mixed, "step mixed");
    note(computable(step), "computed");
    note(c.placement != nullptr, "after turns");
    note(p[kDrafts] > 0, "drafts");
    for (const FeedForward& f : c.model.ffns) note(f.routed(), "experts");
    note(c.engine != nullptr, "an engine");
    note(p.pp > 1, "stages");
    note(p[kPrefillChunk] > 0, "chunks");
    note(p[kOverlap] != Overlap::none, "two halves");
  }

 private:
  static constexpr std::array kAttentions{
      "attention gqa",        "attention gqa window",    "attention gqa chunk",
      "attention blocks",     "attention mla",           "attention mla index",
      "attention mla shared", "attention compressed",    "attention compressed index",
      "attention delta",      "attention delta channel", "attention mamba",
      "attention none"};
  // Ranks that deal a prompt's tokens out run each kind of layer in a way of its own.
  static std::string dealt(const char* kind) { return std::string("context-parallel ") + kind; }
  static std::size_t kind_of(const Attention& a) {
    switch (a.kind) {
      case AttentionKind::gqa:
        return a.index ? 3 : a.reach.kind == ReachKind::window ? 1 : a.reach.kind == ReachKind::chunk ? 2 : 0;
      case AttentionKind::mla:
        return a.index ? (a.index->shared ? 6 : 5) : 4;
      case AttentionKind::compressed:
        return a.index ? 8 : 7;
      case AttentionKind::delta:
        return a.delta->channel_decay ? 10 : 9;
      case AttentionKind::mamba:
        return 11;
      case AttentionKind::none:
        break;
    }
    return 12;
  }
  void count(std::FILE* out, const std::string& what) {
    std::fprintf(out, "%d %s\n", inputs_[what], what.c_str());
  }

  const char* file_;
  std::map<std::string, int> inputs_;
};

Covered& covered() {
  static Covered all;
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read(data, size, [&](const std::string&) {
    fuzz::Choices choose(data, size);
    const fuzz::StepCase step = fuzz::step_case(choose);
    fuzz::g_report = tell_step;
    g_step = &step;
    static const bool tells = std::getenv("FUZZ_STEP_TELL") != nullptr;  // for an input that ends in a signal
    if (tells) tell_step();
    check_step(step);
    covered().add(step);
    g_step = nullptr;
  });
}
