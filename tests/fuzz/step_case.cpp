#include "tests/fuzz/step_case.hpp"

#include "planner/layers/share.hpp"
#include "planner/plan/timed.hpp"
#include "planner/serving/acceptance.hpp"
#include "tests/fuzz/step_machines.hpp"
#include "tests/fuzz/step_model.hpp"

namespace shardline::fuzz {

namespace {

// What a device computes is asked of it: a type that it lacks is refused where a scenario is read.
Dtype computed_on(const Device& d, Dtype asked) {
  return d.peak[static_cast<std::size_t>(asked)] > FlopsPerSecond(0) ? asked : Dtype::bf16;
}

Precision precision(Choices& choose, const Device& d, bool small) {
  Precision p{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  if (small) return p;
  p.weights = choose.of({Dtype::bf16, Dtype::fp8, Dtype::fp4, Dtype::fp8_block, Dtype::int4, Dtype::mxfp4});
  p.math = computed_on(d, choose.of({Dtype::bf16, Dtype::fp8, Dtype::fp4}));
  p.kv = choose.of({Dtype::bf16, Dtype::fp8, Dtype::fp4});
  p.dispatch = choose.of({Dtype::bf16, Dtype::fp8, Dtype::fp4});
  if (choose.once_in(3)) p.ffn_weights = choose.of({Dtype::fp4, Dtype::bf16});
  if (choose.once_in(3)) p.attention_weights = choose.of({Dtype::bf16, Dtype::fp8});
  return p;
}

Segment request(Choices& choose, bool small, bool decodes) {
  Segment s;
  if (decodes) {
    s.cached = small ? choose.below(48) : choose.number(17);
    s.fresh = 1;
  } else {
    s.fresh = small ? 1 + choose.below(48) : choose.number(12);
    s.cached = choose.once_in(2) ? (small ? choose.below(40) : choose.number(16)) : 0;
  }
  s.count = choose.once_in(3) ? 1 + choose.below(3) : 1;
  return s;
}

Batch batch(Choices& choose, bool small) {
  Batch b;
  const StepKind kind = choose.of({StepKind::decode, StepKind::prefill, StepKind::mixed});
  const auto some = [&](std::vector<Segment>& to, bool decodes) {
    const int groups = 1 + choose.below(3);
    for (int i = 0; i < groups; ++i) to.push_back(request(choose, small, decodes));
  };
  if (kind != StepKind::prefill) some(b.decode, true);
  if (kind != StepKind::decode) some(b.prefill, false);
  return b;
}

// A history of turns, such as a conversation leaves behind: of prefills alone, for a plan's ranks.
std::shared_ptr<const Placement> turns(Choices& choose, const Case& c, int ranks) {
  std::vector<Segment> requests;
  for (const Segment& s : c.batch.prefill) {
    for (int i = 0; i < s.count; ++i) requests.push_back(s);
  }
  auto placement = std::make_shared<Placement>(ranks, static_cast<int>(requests.size()));
  for (int b = 0; b < placement->requests(); ++b) {
    long long left = requests[static_cast<std::size_t>(b)].cached;
    for (int turn = 0; left > 0; ++turn) {
      const long long fresh = turn > 8 ? left : std::min(left, choose.number(6));
      const long long decoded = std::min(left - fresh, choose.number(3) - 1);
      placement->prefill(b, fresh);
      placement->decode(b, decoded);
      left -= fresh + decoded;
    }
  }
  return placement;
}

// Options whose values strategies try only if they are asked for.
SearchSpace space_of(Choices& choose, const Case& c) {
  SearchSpace space;
  space.duplicate_kv = choose.once_in(2);
  long long longest = 1;
  for (const Segment& s : c.batch.prefill) longest = std::max(longest, s.fresh);
  // 16 rounds at most: unfolded graphs have all of them.
  const int chunk = static_cast<int>(std::max(1LL, longest / (1 + choose.below(16))));
  space.options.push_back({&kPrefillChunk, {chunk}});
  // Whatever the engine does: small steps have none.
  space.options.push_back(
      {&kOverlap, {static_cast<int>(Overlap::none), static_cast<int>(Overlap::two_batch)}});
  Plan helix;
  helix.strategy = strategy_id("helix");
  space.options.push_back({&option_of(helix, "chunks"), {1, 2, 3}});
  return space;
}

// Something that the plan's enumeration did not say: most of it is refused by check_plan().
void change(Choices& choose, Plan& p) {
  const auto degree = static_cast<std::size_t>(choose.below(static_cast<int>(kDegrees.size()) + 1));
  if (degree < kDegrees.size()) {
    p.*kDegrees[degree].member = choose.of({1, 2, 4, 3, 8, 0});
    if (p.*kDegrees[degree].member == 0 && kDegrees[degree].member != &Plan::dense_tp)
      p.*kDegrees[degree].member = 1;
    return;
  }
  const auto options = strategy(p.strategy).options;
  if (options.empty()) return;
  const Option& o = *options[static_cast<std::size_t>(choose.below(static_cast<int>(options.size())))];
  if (o.lists) return;
  const int values = o.words.empty() ? 16 : static_cast<int>(o.words.size());
  p.options.set(o, o.words.empty() ? std::min(o.most, o.least + choose.below(values)) : choose.below(values));
}

Plan plan(Choices& choose, const Case& c, bool small) {
  const auto rows = strategies();
  const Strategy& s = *rows[static_cast<std::size_t>(choose.below(static_cast<int>(rows.size())))];
  const int gpus = small ? choose.of({1, 2, 4, 8, 6, 3}) : choose.of({1, 2, 4, 8, 16, 6, 3, 12});
  const SearchSpace space = space_of(choose, c);
  std::vector<Plan> plans;
  if (s.takes(c)) enumerate_plans(c, s, gpus, space, plans);
  if (plans.empty()) throw UserError("no plan of these GPUs");
  Plan p = plans[choose.index(plans.size())];
  p.batch = least_batch(c, p);
  const auto refusal = check_plan(c, p);
  SL_CHECK(!refusal, "what is enumerated passes check_plan(): " + to_string(p) + ": " + refusal.value_or(""));
  p.batch += choose.below(small ? 3 : 40);
  if (choose.once_in(3)) change(choose, p);
  if (const auto reason = check_plan(c, p)) throw UserError(*reason);
  return p;
}

void set_model(Choices& choose, Case& c, bool small) {
  c.model = step_model(choose, small);
  require_timed(c.model);
  Routing routing;
  if (!small && choose.once_in(4))
    routing = {RoutingKind::zipf, 0.5 * (1 + choose.below(4)), ExpertLoad::mean};
  c.routing = routing_of(c.model, routing);
}

}  // namespace

StepCase step_case(Choices& choose) {
  StepCase step;
  step.small = choose.below(2) == 0;
  step.machine = choose.below(machines());
  Case& c = machine(step.machine).study;
  step.study = &c;
  c.engine = nullptr;
  c.placement = nullptr;
  c.persistent_kv = false;
  c.kernels = {};
  c.served = {};
  c.precision = precision(choose, c.system.device, step.small);
  set_model(choose, c, step.small);
  c.kv_block = choose.of({4, 16, 1, 32});
  c.acceptance = machine(step.machine).acceptance;
  c.batch = batch(choose, step.small);
  if (!step.small) {
    c.engine = engine(choose.below(engines() + 3));
    c.kernels.separate_elementwise = choose.once_in(4);
    c.kernels.fused_split_merge = choose.once_in(4);
    c.kernels.separate_shard_merge = choose.once_in(4);
  }
  if (choose.once_in(8)) c.kernels.attention = AttentionKernel::eager;
  step.plan = plan(choose, c, step.small);
  if (step.plan.cp > 1 && step.plan.batch == 1 && step.plan.dp == 1 && c.batch.kind() == StepKind::prefill &&
      choose.once_in(3)) {
    c.placement = turns(choose, c, step.plan.cp);
    if (const auto reason = check_plan(c, step.plan)) throw UserError(*reason);
  }
  return step;
}

std::string text_of(const StepCase& step) {
  const Case& c = *step.study;
  std::string out = to_string(step.plan) + " on " + c.system.name + (c.engine ? ", " + c.engine->title : "");
  for (const Attention& a : c.model.attentions)
    out += "; " + name_of(a) + " " + std::to_string(a.q_heads) + "/" + std::to_string(a.kv_heads);
  for (const FeedForward& f : c.model.ffns)
    out += "; " + std::to_string(f.experts) + " experts of " + std::to_string(f.inner);
  out += "; " + std::to_string(c.model.layers()) + " layers; block " + std::to_string(c.kv_block);
  for (const auto* list : {&c.batch.decode, &c.batch.prefill}) {
    out += list == &c.batch.decode ? "; decode" : "; prefill";
    for (const Segment& s : *list)
      out += " " + std::to_string(s.count) + "x" + std::to_string(s.cached) + "+" + std::to_string(s.fresh);
  }
  return out + (c.placement ? "; after turns" : "") +
         (c.kernels.attention == AttentionKernel::eager ? "; eager" : "");
}

}  // namespace shardline::fuzz
