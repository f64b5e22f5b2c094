#include "cuda_probe/transport/loopback.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_probe/transport/checks.hpp"

namespace shardline {

namespace {

constexpr std::size_t kLine = 256;  // bytes: any kernel's alignment

std::size_t padded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// The running sum and, aligned, what is added to it.
std::size_t sum_scratch(std::size_t count) { return 2 * padded(2 * count); }

const std::byte* at(const void* p, std::size_t bytes) { return static_cast<const std::byte*>(p) + bytes; }
std::byte* at(void* p, std::size_t bytes) { return static_cast<std::byte*>(p) + bytes; }

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  return at(a, 0) < at(b, b_bytes) && at(b, 0) < at(a, a_bytes);
}

void require_bf16(const char* name, Number number) {
  if (number != Number::bf16) throw GpuError(fmt::format("loopback: {} sums bfloat16 only", name));
}

}  // namespace

LoopbackTransport::LoopbackTransport(Gpu& gpu, int ranks) : gpu_(gpu) {
  if (ranks < 1) throw GpuError("loopback: there must be at least one rank");
  for (int r = 0; r < ranks; ++r)
    ranks_.push_back({.ready = gpu.event(), .taken = gpu.event(), .scratch_free = gpu.event()});
}

LoopbackTransport::~LoopbackTransport() {
  try {
    gpu_.synchronize();
    for (const Rank& r : ranks_) gpu_.release(r.scratch);
    for (void* memory : outgrown_) gpu_.release(memory);
  } catch (const GpuError&) {
    // The device failed before; it frees its memory itself.
  }
}

void LoopbackTransport::record(Event event, Stream stream, const char*) { gpu_.record(event, stream); }
void LoopbackTransport::wait(Stream stream, Event event, const char*) { gpu_.wait(stream, event); }

void LoopbackTransport::copy(Stream stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  gpu_.copy(stream, {.source = from,
                     .target = to,
                     .rows = 1,
                     .row_bytes = bytes,
                     .source_pitch = bytes,
                     .target_pitch = bytes});
}

void LoopbackTransport::exchange(std::span<const Message> messages, std::span<const Stream> streams) {
  check_exchange(*this, messages, streams);
  const auto stream = [&](int rank) { return streams[static_cast<std::size_t>(rank)]; };
  const auto rank = [&](int r) -> Rank& { return ranks_[static_cast<std::size_t>(r)]; };
  std::vector<bool> sends(ranks_.size()), receives(ranks_.size());
  std::vector<bool> pairs(ranks_.size() * ranks_.size());  // [from][to]
  for (const Message& m : messages) {
    if (m.bytes == 0 || m.from == m.to) continue;
    const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
    sends[from] = receives[to] = pairs[from * ranks_.size() + to] = true;
  }
  const auto for_pairs = [&](auto&& f) {
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (pairs[p]) f(static_cast<int>(p / ranks_.size()), static_cast<int>(p % ranks_.size()));
    }
  };
  for (int r = 0; r < ranks(); ++r) {
    if (sends[static_cast<std::size_t>(r)]) record(rank(r).ready, stream(r), "ready");
  }
  for_pairs([&](int from, int to) { wait(stream(to), rank(from).ready, "ready"); });
  for (const Message& m : messages) copy(stream(m.to), m.target, m.source, m.bytes);
  for (int r = 0; r < ranks(); ++r) {
    if (receives[static_cast<std::size_t>(r)]) record(rank(r).taken, stream(r), "taken");
  }
  for_pairs([&](int from, int to) { wait(stream(from), rank(to).taken, "taken"); });
}

std::vector<LoopbackTransport::Member> LoopbackTransport::members(std::span<const int> group,
                                                                  std::span<const Buffers> buffers,
                                                                  std::span<const Stream> streams) {
  std::vector<Member> result;
  for (std::size_t i = 0; i < group.size(); ++i)
    result.push_back({ranks_[static_cast<std::size_t>(group[i])], streams[i], buffers[i]});
  return result;
}

void LoopbackTransport::together(std::span<Member> members, const std::function<void(std::size_t)>& take) {
  for (const Member& m : members) record(m.rank.ready, m.stream, "ready");
  const auto wait_for_others = [&](std::size_t i, Event Rank::*event, const char* why) {
    for (std::size_t j = 0; j < members.size(); ++j) {
      if (j != i) wait(members[i].stream, members[j].rank.*event, why);
    }
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    wait_for_others(i, &Rank::ready, "ready");
    take(i);
  }
  for (const Member& m : members) record(m.rank.taken, m.stream, "taken");
  for (std::size_t i = 0; i < members.size(); ++i) wait_for_others(i, &Rank::taken, "taken");
}

std::byte* LoopbackTransport::scratch(Rank& rank, Stream stream, std::size_t bytes) {
  if (bytes > rank.scratch_bytes) {
    const std::size_t grown = std::max(bytes, 2 * rank.scratch_bytes);
    void* memory = gpu_.allocate(grown);
    if (rank.scratch != nullptr) outgrown_.push_back(rank.scratch);
    rank.scratch = memory;
    rank.scratch_bytes = grown;
  }
  wait(stream, rank.scratch_free, "scratch");  // the last use may have been on another stream
  return static_cast<std::byte*>(rank.scratch);
}

void LoopbackTransport::done_with_scratch(Rank& rank, Stream stream) {
  record(rank.scratch_free, stream, "scratch");
}

void LoopbackTransport::all_gather(std::span<const int> group, std::span<const Buffers> buffers,
                                   std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "all_gather", group, buffers, count, streams);
  if (count == 0) return;
  const std::size_t bytes = count * bytes_of(number);
  std::vector<Member> all = members(group, buffers, streams);
  together(all, [&](std::size_t i) {
    for (std::size_t j = 0; j < all.size(); ++j)
      copy(all[i].stream, at(all[i].buffers.receive, j * bytes), all[j].buffers.send, bytes);
  });
}

Bf16* LoopbackTransport::sum(Stream stream, std::span<const Member> members, std::size_t offset,
                             std::size_t count, std::byte* scratch) {
  const std::size_t bytes = 2 * count;
  const auto total = reinterpret_cast<Bf16*>(scratch),
             term = reinterpret_cast<Bf16*>(scratch + padded(bytes));
  // add() takes multiples of 8: the rest of the last eight is summed too and never read.
  const auto columns = static_cast<std::int64_t>((count + 7) / 8 * 8);
  const auto part = [&](std::size_t j) { return at(members[j].buffers.send, 2 * offset); };
  copy(stream, total, part(0), bytes);
  for (std::size_t j = 1; j < members.size(); ++j) {
    const auto* b = reinterpret_cast<const Bf16*>(part(j));
    if (!aligned(b) || count % 8 != 0) {
      copy(stream, term, b, bytes);
      b = term;
    }
    gpu_.add(stream, {total, b, total, 1, columns, columns, columns, columns});
  }
  return total;
}

void LoopbackTransport::reduce_scatter(std::span<const int> group, std::span<const Buffers> buffers,
                                       std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "reduce_scatter", group, buffers, count, streams);
  require_bf16("reduce_scatter", number);
  if (count == 0) return;
  std::vector<Member> all = members(group, buffers, streams);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const void* own = at(all[i].buffers.send, 2 * i * count);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (i == j && all[i].buffers.receive == own) continue;  // in place: nobody else reads this piece
      if (overlap(all[i].buffers.receive, 2 * count, all[j].buffers.send, 2 * count * all.size()))
        throw GpuError("reduce_scatter: a receive buffer overlaps a send buffer");
    }
  }
  together(all, [&](std::size_t i) {
    const Member& m = all[i];
    std::byte* memory = scratch(m.rank, m.stream, sum_scratch(count));
    copy(m.stream, m.buffers.receive, sum(m.stream, all, i * count, count, memory), 2 * count);
    done_with_scratch(m.rank, m.stream);
  });
}

void LoopbackTransport::all_reduce(std::span<const int> group, std::span<const Buffers> buffers,
                                   std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "all_reduce", group, buffers, count, streams);
  require_bf16("all_reduce", number);
  if (count == 0) return;
  std::vector<Member> all = members(group, buffers, streams);
  std::vector<Bf16*> totals(all.size());
  together(all, [&](std::size_t i) {
    std::byte* memory = scratch(all[i].rank, all[i].stream, sum_scratch(count));
    totals[i] = sum(all[i].stream, all, 0, count, memory);
  });
  // Only now has everybody read every send buffer, and receive may be send.
  for (std::size_t i = 0; i < all.size(); ++i) {
    copy(all[i].stream, all[i].buffers.receive, totals[i], 2 * count);
    done_with_scratch(all[i].rank, all[i].stream);
  }
}

}  // namespace shardline
