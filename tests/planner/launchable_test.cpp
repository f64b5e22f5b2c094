// Which plans engines start [P21]: all plans of small deployments against what every setting of the engines'
// flags puts on a rank; what a search and a scenario make of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "planner/engines/launch_rules.hpp"
#include "planner/layers/share.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/search.hpp"
#include "planner/studies/plan_launches.hpp"
#include "sim/base/argument_names.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Launchable, EveryShippedProfileHasRulesOfItsVersion) {
  Case c = decode_case(kL70, kGb, 1'000);
  std::size_t engines = 0;
  for (const std::string& name : engine_names(source_path("planner/engines"))) {
    const std::string engine = name.substr(0, name.find(' '));
    c.engine = profile(engine);
    EXPECT_NO_THROW(does_not_start(c)) << name;
    ++engines;
  }
  EXPECT_EQ(engines, launch_rules().size());
  EngineProfile other = *profile("vllm");
  other.version = "0.11.0";
  c.engine = std::make_shared<const EngineProfile>(other);
  try {
    does_not_start(c);
    ADD_FAILURE() << "rules of another version were used";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("nobody has read which plans vLLM 0.11.0 starts"));
    EXPECT_THAT(e.what(), HasSubstr("vLLM 0.24.0"));
  }
}

TEST(Launchable, StrategiesOfNoEngineAreSaidToBe) {
  std::set<std::string> none;
  for (const Strategy* s : strategies()) {
    if (engines_with(s->launched_as).empty()) none.insert(s->name);
  }
  EXPECT_EQ(none, (std::set<std::string>{"kv_shard", "ring_pass_kv", "ring_pass_q", "ring_decode", "ulysses",
                                         "kv_runahead", "tsp", "apb", "star", "sparse", "usp", "striped"}));
  for (const Strategy* s : strategies()) EXPECT_EQ(engine_names_of(*s) == "none", none.contains(s->name));
  EXPECT_EQ(engine_names_of(strategy(std::string("helix"))), "trtllm");
  EXPECT_EQ(engine_names_of(strategy(std::string("tensor"))), "trtllm vllm sglang");
  EXPECT_THAT(engines_with(LaunchedAs::dcp), ::testing::ElementsAre("vLLM 0.24.0"));
  EXPECT_THAT(engines_with(LaunchedAs::helix), ::testing::ElementsAre("TensorRT-LLM 1.3.0rc20"));
  EXPECT_THAT(engines_with(LaunchedAs::prefill_cp), ::testing::ElementsAre("SGLang 0.5.14"));
}

// By strategy, engine, heads, cache and architecture, whichever engine the case is priced under.
TEST(Launchable, EnginesOfAPlanAreThoseThatStartIt) {
  struct Row {
    Try plan;
    const char* engines;
  };
  for (const Row& row : {Row{{kL70, kH100, "tensor:tpa=8,tpf=8"}, "trtllm vllm sglang"},
                         Row{{kL70, kH100, "kv_shard:kvp=2,tpa=4,tpf=8"}, "none"},
                         Row{{kQwen14, kGb, "tensor:tpa=16,tpf=16"}, "none"},
                         Row{{"falcon-7b", kH100, "tensor:tpa=1,tpf=1"}, "vllm"},
                         Row{{kR1, kGb, "tensor:tpa=8,ep=8", cached_in_fp4}, "sglang"},
                         Row{{kR1, kH100, "tensor:tpa=8,ep=8", cached_in_fp8}, "trtllm vllm sglang"}}) {
    SCOPED_TRACE(row.plan.plan);
    const Plan plan = parse_plan(row.plan.plan);
    for (const char* const engine : {"", "vllm", "trtllm"}) {
      Case c = decode_case(row.plan.model, row.plan.system, 1'024);
      c.precision = all_bf16();
      if (*engine != '\0') {
        c.engine = profile(engine);
        c.kv_block = own_block_of(engine, c);
      }
      if (row.plan.change) row.plan.change(c);
      EXPECT_EQ(EnginesThatStart(c).of(plan), row.engines) << engine;
    }
  }
}

// What the first rank of a stage holds: query heads, experts and their width, the width of its dense
// networks, its part of a cache; and how many ranks hold what else.
using Held = std::tuple<int, int, int, int, int, int, int, int>;

struct Sizes {
  int heads, experts, inner, dense;
  bool latents;
};

Sizes sizes_of(const Model& m) {
  return {m.attentions[0].q_heads, expert_ffn(m).experts, expert_ffn(m).inner,
          has_dense(m) ? dense_ffn(m).inner : 0, has_latents(m)};
}

// A plan's own words.
Held held(const Case& c, const Plan& p) {
  const Sizes s = sizes_of(c.model);
  return {s.heads / p.tpa,
          s.experts / p.ep,
          s.inner / p.tpf,
          s.dense / dense_ffn_ranks(p),
          sharers(c, p),
          p.dp,
          p.cp,
          p.pp};
}

// Every setting of --tensor-parallel-size, --data-parallel-size, --pipeline-parallel-size,
// --enable-expert-parallel and --decode-context-parallel-size for so many GPUs.
std::set<Held> vllm_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    for (const int dp : divisors(gpus / pp)) {
      const int tp = gpus / pp / dp;
      for (const int dcp : divisors(tp)) {
        for (const bool whole : {false, true})
          out.insert({s.heads / tp, whole ? s.experts / (tp * dp) : s.experts,
                      whole ? s.inner : s.inner / (tp * dp), s.dense / tp, dcp, dp, 1, pp});
      }
    }
  }
  return out;
}

// --tp-size, --dp-size with --enable-dp-attention, --pp-size, --ep-size, --moe-dense-tp-size; for prefills
// --attn-cp-size, which MLA makes all of a group over whole experts and dense networks, and --moe-dp-size,
// the context-parallel ranks that hold copies of the experts. Else tokens are sent to experts, with EP over
// all.
std::set<Held> sglang_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    const int tp = gpus / pp;
    for (const int dp : divisors(tp)) {
      for (const int ep : divisors(tp)) {
        for (const int dense : {1, tp})
          out.insert(
              {s.heads / (tp / dp), s.experts / ep, s.inner / (tp / ep), s.dense / dense, 1, dp, 1, pp});
      }
      for (const int cp : divisors(tp / dp)) {
        if (cp == 1 || (s.latents && cp < tp / dp)) continue;
        const int attention_tp = tp / dp / cp;
        out.insert({s.heads / attention_tp, s.experts / tp, s.inner, s.dense, 1, dp, cp, pp});
        if (s.latents || pp > 1 || dp > 1) continue;
        for (const int ep : {1, attention_tp})
          out.insert(
              {s.heads / attention_tp, s.experts / ep, s.inner / (attention_tp / ep), s.dense, 1, 1, cp, 1});
      }
    }
  }
  return out;
}

// tensor_parallel_size, enable_attention_dp, pipeline_parallel_size, context_parallel_size,
// moe_expert_parallel_size.
std::set<Held> trtllm_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    for (const int cp : divisors(gpus / pp)) {
      const int tp = gpus / pp / cp;
      for (const int ep : divisors(tp * cp)) {
        out.insert(
            {s.heads / tp, s.experts / ep, s.inner / (tp * cp / ep), s.dense / (tp * cp), cp, 1, 1, pp});
        out.insert({s.heads, s.experts / ep, s.inner / (tp * cp / ep), s.dense, cp, tp, 1, pp});
      }
    }
  }
  return out;
}

struct Settings {
  const char* engine;
  std::set<Held> (*of)(const Sizes&, int);
};

// The other rules refuse what is no question of the layout, so that only one direction can be asked of them.
TEST(Launchable, APlanStartsIfSomeSettingOfTheFlagsMakesItsLayout) {
  const std::set<std::string> layout_rules{"attention_layout", "expert_layout", "dense_layout",
                                           "expert_groups"};
  SearchSpace space;
  with_hopb_chunks(space, {1});
  space.duplicate_kv = true;
  for (const Settings& settings : {Settings{"vllm", vllm_settings}, Settings{"sglang", sglang_settings},
                                   Settings{"trtllm", trtllm_settings}}) {
    int starting = 0, refused = 0;
    for (const Try& t : {Try{kR1, kH100, ""}, Try{kQwen, kH100, ""}, Try{"kimi-k2", kGb, ""},
                         Try{kR1, kH100, "", prefills}, Try{kQwen, kH100, "", prefills}}) {
      Case c = case_of(settings.engine, t);
      c.any_gpus = true;
      for (const int gpus : {1, 2, 4, 8, 16, 32, 64}) {
        const std::set<Held> reachable = settings.of(sizes_of(c.model), gpus);
        std::vector<Plan> plans;
        for (const Strategy* s : strategies()) {
          if (s->takes(c) && has_feature(*c.engine, *s)) s->enumerate(c, gpus, space, plans);
        }
        for (const Plan& p : plans) {
          SCOPED_TRACE(fmt::format("{} {} {}", settings.engine, t.model, to_string(p)));
          const auto refusal = does_not_start(c, p);
          const bool of_layout = refusal && layout_rules.contains(refusal->rule);
          const bool reached = reachable.contains(held(c, p));
          EXPECT_TRUE(refusal || reached);
          EXPECT_FALSE(of_layout && reached) << refusal->text;
          starting += !refusal;
          refused += of_layout;
        }
      }
    }
    EXPECT_GT(starting, 100) << settings.engine;
    EXPECT_GT(refused, 50) << settings.engine;
  }
}

SearchOptions all_strategies(std::vector<int> gpus) {
  SearchOptions o;
  for (const Strategy* s : strategies()) {
    if (s->decodes) o.strategies.push_back(id_of(*s));
  }
  o.gpus = std::move(gpus);
  o.batches = {1, 2, 4, 8};
  return o;
}

TEST(Launchable, ASearchLeavesOutAndCountsWhatDoesNotStart) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = case_of(engine, {kR1, kGb, ""});
    SearchOptions o = all_strategies({6, 8, 16});
    o.keep_all = true;
    const SearchResult r = search(c, o);
    std::map<std::string, std::uint64_t> expected;
    std::uint64_t starting = 0;
    for (const int gpus : o.gpus) {
      for (const StrategyId id : o.strategies) {
        std::vector<Plan> plans;
        strategy(id).enumerate(c, gpus, o.space, plans);
        for (const Plan& p : plans) {
          const auto refusal = does_not_start(c, p);
          refusal ? ++expected[refusal->rule] : ++starting;
        }
      }
    }
    std::map<std::string, std::uint64_t> counted;
    for (const auto& [rule, n] : r.not_started) counted[rule] = n.plans;
    EXPECT_EQ(counted, expected);
    EXPECT_GT(expected["gpus"], 0u);
    EXPECT_EQ(r.counts.plans, starting);
    EXPECT_FALSE(r.all.empty());
    for (const Point& p : r.all) EXPECT_FALSE(does_not_start(c, p.plan)) << to_string(p.plan);
    std::map<std::string, std::string> reasons;
    for (const auto& [id, reason] : r.without_plans) reasons[std::string(to_string(id))] = reason;
    EXPECT_EQ(reasons["kv_shard"], "that " + title_of(*c.engine) + " starts");
    c.any_gpus = true;
    EXPECT_FALSE(search(c, o).not_started.contains("gpus"));
  }
}

TEST(Launchable, LongRequestsNeedAWordOfTheUsers) {
  Case c = case_of("vllm", {kL70, kGb, "", beyond_the_model});
  const auto refusal = does_not_start(c);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->text, "131073 tokens are more than the 131072 of llama-3.1-70b");
  EXPECT_EQ(refusal->key, "tokens");
  EXPECT_THAT(refusal->instead, HasSubstr("at most 131072 tokens, or any_context: true"));
  EXPECT_FALSE(longer_than_model(c));
  c.any_context = true;
  EXPECT_FALSE(does_not_start(c));
  EXPECT_THAT(longer_than_model(c).value_or(""), HasSubstr("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"));
  at_the_most(c);
  EXPECT_FALSE(longer_than_model(c));
  c.engine = nullptr;
  EXPECT_FALSE(longer_than_model(c));
  beyond_the_model(c);
  EXPECT_THAT(longer_than_model(c).value_or(""), HasSubstr("131073 tokens are more than the 131072"));
}

constexpr const char* kScenario =
    "name: t\nsystem: gb200-nvl72\nmodels: [deepseek-r1]\ncontext: 100000 tokens\n"
    "precision: {weights: fp8_block, kv: bf16, math: fp8}\nstrategies: [tensor, kv_shard, helix]\n"
    "gpus: [6, 8]\nbatch: 1\n";

Study study_with(const std::string& more, const Overrides& overrides) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  return parse_scenario("t.yaml", kScenario + more, catalogs, overrides).studies.at(0);
}

// Whoever writes a scenario for an engine is told what the engine does not have; who asks for one on the
// command line finds the rest of a scenario's strategies.
TEST(Launchable, AnEngineOfTheCommandLineFindsNoPlansWhereOneOfTheFileIsAFault) {
  EXPECT_THROW(study_with("engine: vllm\n", {}), UserError);
  const Study study = study_with("", {{}, "vllm"});
  ASSERT_NE(study.study.engine, nullptr);
  EXPECT_EQ(title_of(*study.study.engine), "vLLM 0.24.0");
  const SearchResult r = search(study.study, study.sweep().search);
  EXPECT_FALSE(r.frontiers.at(strategy_id("tensor")).points().empty());
  EXPECT_TRUE(r.frontiers.at(strategy_id("helix")).points().empty());
  EXPECT_GT(r.not_started.at("strategy").plans, 0u);
  EXPECT_EQ(study_with("engine: vllm\n", {{}, "ideal"}).study.engine, nullptr);
}

TEST(Launchable, RulesAreLiftedByTheFileOrTheCommandLine) {
  for (const bool file : {false, true}) {
    for (const bool line : {false, true}) {
      Overrides o{{}, "trtllm"};
      o.any_gpus = o.any_context = line;
      const std::string yes = file ? "true" : "false";
      const Study s = study_with("any_gpus: " + yes + "\nany_context: " + yes + "\n", o);
      EXPECT_EQ(s.study.any_gpus, file || line);
      EXPECT_EQ(s.study.any_context, file || line);
    }
  }
}

TEST(Launchable, WholeTraysAreLiftedByTheAskersOwnWord) {
  Case c = decode_case(kR1, kGb, 1'024);
  c.engine = profile("trtllm");
  const Plan plan = parse_plan("tensor:tpa=3,tpf=3");
  EXPECT_THAT(part_of_tray(c, plan).value(),
              HasSubstr("3 GPUs, of trays or nodes of 4; --any-gpus lifts that"));
  const LibraryArguments names;
  EXPECT_THAT(part_of_tray(c, plan).value(), HasSubstr("; any_gpus lifts that"));
}

TEST(Launchable, UnequalHeadsOfBareKernelsAreSaid) {
  Case c = decode_case(kR1, kGb, 1'024);
  c.engine = nullptr;
  const auto said = [&](const std::vector<const char*>& texts) {
    std::vector<Plan> plans;
    for (const char* text : texts) plans.push_back(parse_plan(text));
    const auto d = unequal_heads(c, plans);
    return d ? d->what + "; " + d->details.at(0) : "";
  };
  EXPECT_EQ(said({"tensor:tpa=8,tpf=8"}), "");
  EXPECT_EQ(
      said({"tensor:tpa=7,tpf=7"}),
      "no engine starts tpa=7: 128 query heads over 7 ranks; priced as the rank with most heads; nearest "
      "that they start: tpa=4 and tpa=8");
  EXPECT_EQ(
      said(
          {"tensor:tpa=8,tpf=8", "tensor:tpa=24,tpf=24", "tensor:tpa=7,tpf=7", "tensor:tpa=7,tpf=7,batch=2"}),
      "no engine starts tpa=7 and tpa=24 in 3 of 4 plans: 128 query heads over 7 ranks; priced as the rank "
      "with most heads; nearest that they start: tpa=4, tpa=8, tpa=16 and tpa=32");
  // An engine's own rules speak of its plans.
  c.engine = profile("trtllm");
  EXPECT_EQ(said({"tensor:tpa=7,tpf=7"}), "");
}
}  // namespace
}  // namespace shardline
