#include "planner/engines/dispatch_room.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "planner/engines/deploy.hpp"
#include "planner/engines/machines.hpp"
#include "planner/layers/share.hpp"

namespace shardline {

namespace {

bool dispatches(const Case& c, const Plan& p) {
  return c.engine && c.engine->tokens_to_experts.room.known && groups_share_experts(c, p) &&
         p[kExpertTokens] != ExpertTokens::gather;
}

bool computes_prompts(const Case& c) { return c.batch.prefills() || serves_both(c); }

int experts_of(const Model& m) {
  int most = 0;
  for (const FeedForward& f : m.ffns) most = std::max(most, f.routed() ? f.experts : 0);
  return most;
}

// Whether the ranks of a stage lie on several machines.
bool on_several(const Case& c, const Plan& p) { return p.ranks_per_stage() > gpus_per_machine(c.system); }

}  // namespace

bool sends_few_tokens(const Case& c, const Plan& p) {
  if (!dispatches(c, p) || !c.batch.decodes()) return false;
  return !c.engine->tokens_to_experts.of_server || !computes_prompts(c);
}

bool sends_many_tokens(const Case& c, const Plan& p) { return dispatches(c, p) && computes_prompts(c); }

long long decoded_tokens(const Case& c, const Plan& p) {
  long long tokens = 0;
  for (const Segment& s : c.batch.decode) tokens += with_drafts(s, p).fresh * s.count;
  return tokens * p.batch;
}

long long dispatch_room(const Case& c, const Plan& p) {
  if (!sends_few_tokens(c, p)) return 0;
  const DispatchRoom& room = c.engine->tokens_to_experts.room;
  const long long tokens = decoded_tokens(c, p);
  if (room.of_group) return std::max({room.least, c.engine->padded(tokens), tokens * p.in_flight});
  const long long parts = p.tpa * (p[kOverlap] == Overlap::two_batch ? 2 : 1);
  return std::max(room.least, (tokens + parts - 1) / parts);
}

Bytes low_latency_bytes(long long tokens, long long hidden, long long experts) {
  constexpr long long kAligned = 128;
  const auto aligned = [&](long long bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; };
  const long long scales = hidden / 128;  // of 128 numbers each
  const long long dispatched = 16 + std::max(2 * hidden, hidden + 4 * scales);
  const long long combined = 4 * scales + 2 * hidden;
  const long long sent = std::max(tokens * dispatched, experts * tokens * combined);
  const long long received = experts * tokens * std::max(dispatched, combined);
  const long long all = 2 * (sent + received + aligned(4 * experts));
  return Bytes(static_cast<double>((all + kAligned) / kAligned * kAligned));
}

long long dispatched_width(long long hidden) {
  constexpr std::array<long long, 8> kWidths{2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};
  const auto at = std::lower_bound(kWidths.begin(), kWidths.end(), hidden);
  return at == kWidths.end() ? 0 : *at;
}

Bytes dispatch_buffers(const Case& c, const Plan& p) {
  Bytes out{0};
  if (!dispatches(c, p)) return out;
  const DispatchRoom& room = c.engine->tokens_to_experts.room;
  if (sends_many_tokens(c, p)) out += room.many * (on_several(c, p) ? 2 : 1);
  if (!sends_few_tokens(c, p)) return out;
  const long long width = std::max<long long>(c.model.hidden, dispatched_width(c.model.hidden));
  return std::max(out, room.many) + low_latency_bytes(dispatch_room(c, p), width, experts_of(c.model));
}

long long queue_pair_depth(long long room) {
  const auto least = static_cast<unsigned long long>(2 * (room + 1));
  return std::max(kDefaultQueuePairDepth, static_cast<long long>(std::bit_ceil(least)));
}

Complaint other_dispatch_ranks(const Case& c, const Plan& p) {
  constexpr int kNvlinkPeers = 8;
  if (!dispatches(c, p)) return std::nullopt;
  const int ranks = p.ranks_per_stage(), machine = gpus_per_machine(c.system);
  if (ranks > kNvlinkPeers && ranks % kNvlinkPeers != 0)
    return fmt::format("{} ranks, neither below {} nor a multiple of it: moe_a2a=gather", ranks,
                       kNvlinkPeers);
  if (auto uneven = uneven_experts(c, ranks)) return *uneven + ": moe_a2a=gather";
  // setup.py, DISABLE_SM90_FEATURES: before Hopper there are neither kernels of few tokens nor NVSHMEM, which
  // carries tokens to other machines.
  if (architecture_of(c.system.device) == Architecture::ampere &&
      (sends_few_tokens(c, p) || on_several(c, p)))
    return fmt::format("{} of {}: moe_a2a=gather",
                       sends_few_tokens(c, p) ? "kernels of few tokens" : "tokens to other machines",
                       c.system.device.name);
  // vLLM's kernels of many tokens open no memory of another machine; SGLang's do, of 8 ranks in all.
  const int most = c.engine->tokens_to_experts.room.opens_fabric ? kNvlinkPeers : machine;
  if (sends_many_tokens(c, p) && machine < kNvlinkPeers && ranks > most)
    return fmt::format("prompts of {} ranks on machines of {} GPUs: moe_a2a=gather", ranks, machine);
  return std::nullopt;
}

Complaint crowded_dispatch(const Case& c, const Plan& p) {
  constexpr long long kMost = 1024;
  if (!sends_few_tokens(c, p)) return std::nullopt;
  const long long parts = p.tpa * (p[kOverlap] == Overlap::two_batch ? 2 : 1);
  const long long most = (decoded_tokens(c, p) + parts - 1) / parts;
  if (most < kMost) return std::nullopt;
  return fmt::format("{} tokens of a rank in a step that decodes, of less than {}: moe_a2a=gather", most,
                     kMost);
}

}  // namespace shardline
