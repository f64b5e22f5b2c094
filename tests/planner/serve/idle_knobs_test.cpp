// Options that nothing reads on a server of a pair: those that are said to be, and no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/studies/knob_tables.hpp"
#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/sglang_pair_case.hpp"
#include "tests/planner/requests/trtllm_pair_case.hpp"

namespace shardline {
namespace {

// What is changed, and to what.
struct Change {
  std::string name;
  std::vector<std::string> to;
  std::vector<std::string> beside = {};  // options that it needs
};

// When each request had its first and its last token; empty: the engine ends with an error.
template <class Case>
std::map<double, std::pair<double, double>> times_of(const Case& c) {
  std::map<double, std::pair<double, double>> out;
  try {
    for (const auto& [came, a] : played(c).answers) out[came] = {a.first.value, a.last.value};
  } catch (const UserError&) {
    out.clear();
  }
  return out;
}

// Of 60 random loads, how many are served at other times with the change.
template <class Case>
int changed(Case (*make)(std::uint64_t), PairRole role, const Change& change) {
  int out = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Case before = make(seed);
    auto& knobs = role == PairRole::prefills ? before.prefill : before.decode;
    const KnobsGiven given{role == PairRole::decodes, "knob"};
    set_knobs(knobs, change.beside, given);
    const auto times = times_of(before);
    for (const std::string& value : change.to) {
      Case after = before;
      set_knobs(role == PairRole::prefills ? after.prefill : after.decode, {change.name + "=" + value},
                given);
      out += times_of(after) != times ? 1 : 0;
    }
  }
  return out;
}

template <class Case>
void expect_what_is_read(Case (*make)(std::uint64_t), const std::vector<Change>& changes) {
  for (const PairRole role : {PairRole::prefills, PairRole::decodes}) {
    for (const Change& c : changes) {
      Case any = make(0);
      auto& knobs = role == PairRole::prefills ? any.prefill : any.decode;
      const KnobsGiven given{role == PairRole::decodes, "knob"};
      std::vector<std::string> all = c.beside;
      all.push_back(c.name + "=" + c.to.back());
      set_knobs(knobs, all, given);
      const std::vector<IdleKnob> said = idle_knobs(knobs, all, role);
      const bool is_idle =
          std::any_of(said.begin(), said.end(), [&](const IdleKnob& k) { return k.name == c.name; });
      const int times = changed(make, role, c);
      SCOPED_TRACE(c.name + (role == PairRole::prefills ? " where prompts are" : " where answers are"));
      if (is_idle)
        EXPECT_EQ(times, 0);
      else
        EXPECT_GT(times, 0);
    }
  }
}

TEST(IdleKnobs, R16VllmsPairsReadAll) {
  expect_what_is_read<PairCase>(random_pair, {{"max_num_batched_tokens", {"80", "400"}},
                                              {"long_prefill_token_threshold", {"40"}},
                                              {"async_scheduling", {"true", "false"}},
                                              {"enable_prefix_caching", {"true", "false"}},
                                              {"scheduler_reserve_full_isl", {"true", "false"}},
                                              {"num_gpu_blocks", {"50", "150"}},
                                              {"max_num_seqs", {"1", "20"}}});
}

TEST(IdleKnobs, R11SglangsPairsEstimateNoAnswers) {
  expect_what_is_read<SglangPairCase>(random_sglang_pair, {{"chunked_prefill_size", {"80", "400", "0"}},
                                                           {"max_prefill_tokens", {"100", "500"}},
                                                           {"prefill_max_requests", {"1", "0"}},
                                                           {"max_running_requests", {"3", "20"}},
                                                           {"max_total_tokens", {"1024", "2048"}},
                                                           {"schedule_conservativeness", {"0.2", "3"}},
                                                           {"init_new_token_ratio", {"0.1", "1"}},
                                                           {"min_new_token_ratio_factor", {"0.01", "0.9"}},
                                                           {"new_token_ratio_decay_steps", {"3", "3000"}},
                                                           {"clip_max_new_tokens_estimation", {"5", "4096"}},
                                                           {"retract_decode_steps", {"0", "100"}},
                                                           {"disable_overlap_schedule", {"true", "false"}},
                                                           {"enable_mixed_chunk", {"true"}},
                                                           {"disable_radix_cache", {"true", "false"}}});
}

TEST(IdleKnobs, R21TensorRtLlmsPromptsWaitForNobodyWhereNobodyDecodes) {
  expect_what_is_read<TrtllmPairCase>(
      random_trtllm_pair, {{"max_batch_size", {"3", "20"}},
                           {"max_num_tokens", {"100", "700"}},
                           {"batch_wait_timeout_iters", {"5", "20"}},
                           {"batch_wait_max_tokens_ratio", {"0.5", "1"}},
                           {"batch_wait_timeout_iters",
                            {"5", "20"},
                            {"batch_wait_max_tokens_ratio=1", "capacity_scheduler_policy=MAX_UTILIZATION"}},
                           {"context_chunking_policy", {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"}},
                           {"context_chunking_policy",
                            {"EQUAL_PROGRESS"},
                            {"max_num_tokens=700", "enable_chunked_prefill=false"}},
                           {"blocks", {"100", "300"}},
                           {"disable_overlap_scheduler", {"true", "false"}},
                           {"enable_chunked_prefill", {"true", "false"}},
                           {"enable_block_reuse", {"true", "false"}}});
}

}  // namespace
}  // namespace shardline
