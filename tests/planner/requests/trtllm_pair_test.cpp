// TensorRT-LLM's pairs of pools against its executor loops written plainly, and schedules by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "planner/requests/pair.hpp"
#include "tests/planner/requests/trtllm_pair_case.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

// SHARDLINE_WHOLE=1 plays 4,000 loads.
void expect_the_plain_loops(bool groups, bool drafts) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t preempted = 0, queued = 0, stops = 0, waited = 0, single = 0, many = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    TrtllmPairCase c = random_trtllm_pair(seed);
    if (groups) c = with_groups(std::move(c), seed);
    if (drafts) c = with_drafts(std::move(c), seed);
    const BentStepTimes times;
    PlainTrtllmPair slow(c, times);
    bool stopped = false;
    try {
      slow.play();
    } catch (const PlainTrtllm::Dead&) {
      stopped = true;
    }
    stopped = stopped || std::any_of(slow.answers.begin(), slow.answers.end(),
                                     [](const PlainTrtllmPair::Answer& a) { return a.last < 0; });
    if (stopped) {
      ++stops;
      EXPECT_THROW(played(c), UserError) << seed;
      continue;
    }
    const PlayedPair fast = played(c);
    ASSERT_EQ(fast.answers.size(), slow.answers.size()) << seed;
    double prompt = 0, room = 0, transfer = 0, begin = 0;
    for (const PlainTrtllmPair::Answer& a : slow.answers) {
      const AnsweredRequest& b = fast.answers.at(a.came);
      ASSERT_NEAR(b.first.value, a.first, 1e-12 * std::max(1.0, a.first)) << seed << " came " << a.came;
      ASSERT_NEAR(b.last.value, a.last, 1e-12 * std::max(1.0, a.last)) << seed << " came " << a.came;
      prompt += a.prefilled - a.came;
      room += a.reads - a.prefilled;
      transfer += a.there - a.reads;
      begin += a.first - a.there;
      waited += a.reads - a.prefilled > 0.1 ? 1 : 0;
      single += b.answer == 1 ? 1 : 0;
    }
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(fast.run.prompt), prompt, 1e-9 * (1 + prompt)) << seed;
    EXPECT_NEAR(all(fast.run.room), room, 1e-9 * (1 + room)) << seed;
    EXPECT_NEAR(all(fast.run.transfer), transfer, 1e-9 * (1 + transfer)) << seed;
    EXPECT_NEAR(all(fast.run.begin), begin, 1e-9 * (1 + begin)) << seed;
    std::uint64_t paused = 0;
    for (const auto* pool : {&fast.run.prefill, &fast.run.decode})
      for (const ServedRequests& s : *pool) paused += s.preemptions;
    EXPECT_EQ(paused, slow.pauses()) << seed;
    preempted += paused;
    queued += slow.longest_line > 1 ? 1 : 0;
    many += slow.most_reads > 1 ? 1 : 0;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(preempted, seeds / (drafts ? 10 : 4));
  EXPECT_GT(queued, seeds / 4);
  EXPECT_GT(many, seeds / 4);
  EXPECT_GT(waited, seeds);
  EXPECT_GT(single, seeds);
  EXPECT_LT(stops, drafts ? seeds / 3 : seeds / 10);
}
TEST(TrtllmPair, R21PlayIsThePlainLoops) { expect_the_plain_loops(false, false); }
TEST(TrtllmPair, R21GroupsAreThePlainLoopsOfAllOfThem) { expect_the_plain_loops(true, false); }
TEST(TrtllmPair, R20DraftsAreThePlainLoops) { expect_the_plain_loops(false, true); }
TEST(TrtllmPair, R20DraftsOfGroupsAreThePlainLoops) { expect_the_plain_loops(true, true); }

// Text that is found stays where it is, and goes where the other server finds nothing.
TEST(TrtllmPair, R21EveryRequestOnceAndAllBlocksFree) {
  std::uint64_t found = 0, shorter = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    TrtllmPairCase c = random_trtllm_pair(seed);
    if (seed % 2 == 1) c = with_groups(std::move(c), seed);
    c.prefill.capacity_scheduler_policy = TrtllmPolicy::guaranteed_no_evict;  // so that none loses its blocks
    c.prefill.enable_block_reuse = seed % 3 > 0;
    c.decode.enable_block_reuse = seed % 4 > 0;
    c.decode.reads_found = !c.prefill.enable_block_reuse;
    const PlayedPair a = played(c, static_cast<Router>(seed % 3));
    ASSERT_EQ(a.answers.size(), c.requests.size());
    std::uint64_t prompts = 0, answers = 0, tokens = 0, gaps = 0, asked = 0, prompt_tokens = 0, here = 0;
    for (const ServedRequests& s : a.run.prefill) prompts += s.answered;
    for (const ServedRequests& s : a.run.decode) {
      answers += s.answered;
      tokens += s.answer_tokens;
      gaps += s.itl.count();
      here += s.found_tokens;
    }
    for (const TraceRequest& r : c.requests) {
      asked += static_cast<std::uint64_t>(r.output);
      prompt_tokens += static_cast<std::uint64_t>(r.input);
    }
    EXPECT_EQ(prompts, c.requests.size());
    EXPECT_EQ(answers, c.requests.size());
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(gaps, tokens - answers) << "one before each token but the first";
    EXPECT_EQ(a.run.transfer.count(), c.requests.size());
    EXPECT_EQ(a.run.tokens_read, prompt_tokens - (c.decode.reads_found ? 0 : here)) << seed;
    found += here;
    shorter += a.run.tokens_read < prompt_tokens ? 1 : 0;
    for (const auto& s : a.schedulers) {
      EXPECT_EQ(s->running() + s->waiting(), 0U);
      EXPECT_EQ(s->kv_held(), 0) << seed;
    }
  }
  EXPECT_GT(found, 0U);
  EXPECT_GT(shorter, 10U);
}

TrtllmKnobs small_knobs() {
  TrtllmKnobs k;
  k.tokens_per_block = 4;
  k.max_seq_len = 32;
  k.blocks = 64;
  k.disable_overlap_scheduler = true;
  return k;
}

// A server that decodes by itself: its requests ask when a step is decided.
struct Decoding {
  explicit Decoding(const TrtllmKnobs& k) : s(k, PairRole::decodes) {}
  std::vector<std::uint64_t> reads() {
    std::vector<Scheduler::Read> out;
    s.take_reads(out);
    std::vector<std::uint64_t> numbers;
    for (const Scheduler::Read& r : out) numbers.push_back(r.number);
    return numbers;
  }
  std::vector<Scheduler::Id> firsts() {
    std::vector<Scheduler::Id> out;
    s.take_firsts(out);
    return out;
  }
  Scheduler::Id add(std::int64_t prompt, std::int64_t answer) {
    return *s.add({Seconds(0), prompt, answer, {}});
  }
  TrtllmScheduler s;
};
using Numbers = std::vector<std::uint64_t>;

// Each needs ceil((8 + 8) / 4) = 4 blocks for its whole answer and takes the 2 of its prompt: of 9 blocks two
// fit, although 5 are free when the third asks: what those lack that are on their way is kept for them.
TEST(TrtllmPair, R21AnswersOfThoseThatReadAreKeptRoomFor) {
  TrtllmKnobs k = small_knobs();
  k.max_seq_len = 16;
  k.blocks = 9;
  Decoding d(k);
  for (int i = 0; i < 3; ++i) d.add(8, 8);
  EXPECT_FALSE(d.s.schedule()) << "nothing to compute";
  EXPECT_EQ(d.reads(), (Numbers{0, 1}));
  EXPECT_EQ(d.s.pool().available(), 5U);
  EXPECT_FALSE(d.s.schedule());
  EXPECT_EQ(d.reads(), Numbers{});
}

// Who asks for more than there is room for stands before those behind it; max_utilization takes whoever's
// prompt fits.
TEST(TrtllmPair, R21OnlyPromptsNeedRoomUnderMaxUtilization) {
  TrtllmKnobs k = small_knobs();
  k.max_seq_len = 16;
  k.blocks = 9;
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  Decoding d(k);
  for (int i = 0; i < 5; ++i) d.add(8, 8);
  EXPECT_FALSE(d.s.schedule());
  EXPECT_EQ(d.reads(), (Numbers{0, 1, 2, 3})) << "four times two blocks of nine";
}

// Those that wait, read and decode have the places together.
TEST(TrtllmPair, R21PlacesAreOfAll) {
  TrtllmKnobs k = small_knobs();
  k.max_batch_size = 2;
  Decoding d(k);
  for (int i = 0; i < 3; ++i) d.add(4, 2);
  EXPECT_FALSE(d.s.schedule());
  EXPECT_EQ(d.reads(), (Numbers{0, 1}));
  d.s.has_read(0);
  ASSERT_TRUE(d.s.schedule());
  EXPECT_EQ(d.firsts(), std::vector<Scheduler::Id>{0});
  EXPECT_EQ(d.s.front().decodes, 1U);
  EXPECT_EQ(d.s.front().cached, 4U) << "the whole prompt is there, and nothing of it is computed";
  EXPECT_EQ(d.reads(), Numbers{}) << "one reads and one decodes";
  d.s.finish_steps();
  d.s.schedule();
  EXPECT_EQ(d.reads(), Numbers{2});
}

// Two prompts of 8 tokens are within a window of 16, a third is not; one that is longer than the window is
// alone.
TEST(TrtllmPair, R21TheWindowOfHandOffs) {
  TrtllmKnobs k = small_knobs();
  k.max_tokens_in_buffer = 16;
  Decoding d(k);
  for (const std::int64_t prompt : {8, 8, 8, 20, 4}) d.add(prompt, 2);
  d.s.schedule();
  EXPECT_EQ(d.reads(), (Numbers{0, 1}));
  d.s.has_read(0);
  d.s.schedule();
  EXPECT_EQ(d.reads(), Numbers{2});
  d.s.has_read(1);
  d.s.has_read(2);
  d.s.finish_steps();
  d.s.schedule();
  EXPECT_EQ(d.reads(), Numbers{3}) << "nothing else is on its way";
  d.s.has_read(3);
  d.s.finish_steps();
  d.s.schedule();
  EXPECT_EQ(d.reads(), Numbers{4});
}

// Two requests at a time from one server to another: the second cache goes when the first is there, though
// links have room for both; and so it is where two servers ask one, or one asks two.
TEST(TrtllmPair, R21CachesGoOneAfterTheOther) {
  for (const auto& [senders, receivers] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
    TrtllmPairCase c;
    c.prefill = c.decode = small_knobs();
    c.prefill.enable_block_reuse = c.decode.enable_block_reuse = false;
    c.senders = static_cast<std::size_t>(senders);
    c.receivers = static_cast<std::size_t>(receivers);
    c.links = {Seconds(0.01), Seconds(0.02), 4, 4};
    c.requests = {{Seconds(0), 16, 2, {}}, {Seconds(0), 16, 2, {}}};
    const PlayedPair a = played(c);
    const double one = 0.01 + 16 * 0.02;
    EXPECT_NEAR(a.run.transfer.quantile(1), senders == 2 && receivers == 2 ? one : 2 * one, 1e-9)
        << senders << " " << receivers;
  }
}

// Text that was read is found by others when the request leaves, not while it decodes: the second reads all
// 8 tokens, the third the last 4 of them, as its last block is not asked for.
TEST(TrtllmPair, R21TextIsFoundWhenARequestLeaves) {
  TrtllmKnobs k = small_knobs();
  Decoding d(k);
  const auto tokens = [&] {
    std::vector<Scheduler::Read> out;
    d.s.take_reads(out);
    return out.empty() ? 0 : out.front().tokens;
  };
  const auto add = [&] { d.s.add({Seconds(0), 8, 3, {7}}); };
  add();
  d.s.schedule();
  EXPECT_EQ(tokens(), 8U);
  d.s.has_read(0);
  ASSERT_TRUE(d.s.schedule());
  d.s.finish_steps();
  add();
  ASSERT_TRUE(d.s.schedule());
  EXPECT_EQ(tokens(), 8U);
  d.s.finish_steps();
  EXPECT_TRUE(d.s.request(0).done);
  d.s.forget(0);
  add();
  d.s.schedule();
  EXPECT_EQ(tokens(), 4U);
}

// Blocks of a prompt are held until it was read, and are free for the step that is decided then.
TEST(TrtllmPair, R21BlocksAreKeptUntilTheyWereRead) {
  TrtllmKnobs k = small_knobs();
  k.enable_block_reuse = false;
  k.max_seq_len = 16;
  k.blocks = 6;
  TrtllmScheduler s(k, PairRole::prefills);
  s.add({Seconds(0), 14, 1, {}});  // 4 blocks
  s.add({Seconds(0), 8, 1, {}});   // 3 with its token
  ASSERT_TRUE(s.schedule());
  const Scheduler::Ended ended = s.finish_steps();
  ASSERT_EQ(ended.named.size(), 1U);
  EXPECT_TRUE(s.request(0).done);
  s.forget(0);
  EXPECT_FALSE(s.schedule()) << "2 blocks are free";
  EXPECT_TRUE(s.waits_for_transfers());
  s.was_read(0, true);
  EXPECT_TRUE(s.schedule());
  EXPECT_EQ(s.pool().available(), 4U);
}

}  // namespace
}  // namespace shardline
