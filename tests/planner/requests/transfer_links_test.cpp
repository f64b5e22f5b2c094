// Hand-offs on their links, by hand: submission, and what shares what.
#include "planner/requests/transfer_links.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace shardline {
namespace {

// 100 tokens take 0.1 s to be submitted and 1 s to flow alone.
TransferRates rates(bool receiver_submits) {
  TransferRates r{Seconds(0), Seconds(0.01), 1, 1};
  r.submit_token = Seconds(0.001);
  r.receiver_submits = receiver_submits;
  return r;
}

std::vector<double> ends_of(TransferLinks& links) {
  std::vector<double> out;
  while (links.count() > 0) {
    const double at = links.next().value;
    if (links.step()) out.push_back(at);
  }
  return out;
}

// From two senders to one receiver. Which reads: the first flows from 0.1 s on, and the second from 0.2 on at
// half the speed each: the first has 0.9 s left then, and ends at 2.0 s, the second at 2.1.
TEST(TransferLinks, R12AReceiverSubmitsOneAfterTheOther) {
  TransferLinks links(rates(true), 2, 1);
  links.begin(Seconds(0), 0, 0, 100, 1);
  links.begin(Seconds(0), 1, 0, 100, 2);
  const std::vector<double> ends = ends_of(links);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_NEAR(ends[0], 2.0, 1e-12);
  EXPECT_NEAR(ends[1], 2.1, 1e-12);
}

// Which write, each its own: both flow from 0.1 s on.
TEST(TransferLinks, R12SendersSubmitBesideEachOther) {
  TransferLinks links(rates(false), 2, 1);
  links.begin(Seconds(0), 0, 0, 100, 1);
  links.begin(Seconds(0), 1, 0, 100, 2);
  for (const double end : ends_of(links)) EXPECT_NEAR(end, 2.1, 1e-12);
  EXPECT_NEAR(links.received()[0], 2.0, 1e-12) << "links carry bytes alone";
}

// Submission is no flow: three from one sender, whose links could carry them all, follow one another.
TEST(TransferLinks, R12SubmissionTakesNoLink) {
  TransferRates r = rates(false);
  r.senders = r.receivers = 3;
  r.token = Seconds(1e-5);
  TransferLinks links(r, 1, 1);
  for (std::uint64_t i = 0; i < 3; ++i) links.begin(Seconds(0), 0, 0, 100, i);
  const std::vector<double> ends = ends_of(links);
  ASSERT_EQ(ends.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(ends[i], 0.1 * static_cast<double>(i + 1) + 0.001, 1e-12);
  EXPECT_NEAR(links.sent()[0], 0.001, 1e-12);
}

// Who is submitted, or waits to be, leaves its place to the next when its server is gone.
TEST(TransferLinks, R15SubmissionOfWhoIsGoneEnds) {
  TransferLinks links(rates(true), 3, 1);
  for (std::size_t i = 0; i < 3; ++i) links.begin(Seconds(0), i, 0, 100, i);
  ASSERT_EQ(links.cut_sender(Seconds(0.05), 0).size(), 1U);
  EXPECT_NEAR(links.next().value, 0.15, 1e-12) << "the second is submitted from 0.05 s on";
  ASSERT_EQ(links.cut_sender(Seconds(0.12), 2).front().left, 100);
  EXPECT_NEAR(links.next().value, 0.15, 1e-12);
  const std::vector<double> ends = ends_of(links);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_NEAR(ends[0], 1.15, 1e-12);
}

}  // namespace
}  // namespace shardline
