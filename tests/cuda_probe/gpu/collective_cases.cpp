#include "tests/cuda_probe/gpu/collective_cases.hpp"

#include <fmt/format.h>

#include <numeric>
#include <random>
#include <utility>

#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {

namespace {

struct Ranks {
  Transport& transport;
  std::vector<Stream> streams;

  explicit Ranks(Transport& t) : transport(t) {
    for (int r = 0; r < t.ranks(); ++r) streams.push_back(t.gpu(r).stream());
  }
};

Copy bytes_copy(const void* from, void* to, std::size_t bytes) {
  return {.source = from,
          .target = to,
          .rows = 1,
          .row_bytes = bytes,
          .source_pitch = bytes,
          .target_pitch = bytes};
}

/// A message of an exchange: where its bytes begin in what rank `from` sends and rank `to` receives.
struct Piece {
  int from, to;
  std::size_t bytes, source, target;
};
struct Pieces {
  std::vector<Piece> list;
  std::vector<std::size_t> sent, received;  // bytes of each rank
};

/// Four for each rank, a quarter of them empty, some to the sender itself.
Pieces random_pieces(int ranks, std::mt19937_64& random) {
  const auto n = static_cast<std::uint64_t>(ranks);
  Pieces all{{}, std::vector<std::size_t>(n), std::vector<std::size_t>(n)};
  for (std::uint64_t i = 0; i < 4 * n; ++i) {
    Piece p{static_cast<int>(random() % n), static_cast<int>(random() % n),
            random() % 4 == 0 ? 0 : random() % 64, 0, 0};
    std::size_t &sent = all.sent[static_cast<std::size_t>(p.from)],
                &received = all.received[static_cast<std::size_t>(p.to)];
    p.source = std::exchange(sent, sent + p.bytes);
    p.target = std::exchange(received, received + p.bytes);
    all.list.push_back(p);
  }
  return all;
}

std::string exchange_until_wrong(Transport& transport, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int n = transport.ranks();
  Ranks ranks(transport);
  const auto [pieces, sent, received] = random_pieces(n, random);
  using Bytes8 = std::vector<std::uint8_t>;
  std::vector<OnDevice<std::uint8_t>> first, out, in, back;
  std::vector<Bytes8> data;
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<std::size_t>(r);
    Bytes8 values(sent[i] + 1);
    for (auto& v : values) v = static_cast<std::uint8_t>(random());
    data.push_back(values);
    first.emplace_back(transport.gpu(r), values);
    out.emplace_back(transport.gpu(r), values.size());
    in.emplace_back(transport.gpu(r), received[i] + 1);
    back.emplace_back(transport.gpu(r), sent[i] + 1);
  }
  std::vector<Message> there, and_back;
  for (const Piece& p : pieces) {
    const auto from = static_cast<std::size_t>(p.from), to = static_cast<std::size_t>(p.to);
    there.push_back({p.from, p.to, out[from].p + p.source, in[to].p + p.target, p.bytes});
    and_back.push_back({p.to, p.from, in[to].p + p.target, back[from].p + p.source, p.bytes});
  }
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<std::size_t>(r);
    transport.gpu(r).copy(ranks.streams[i], bytes_copy(first[i].p, out[i].p, out[i].size));
  }
  transport.exchange(there, ranks.streams);
  transport.exchange(and_back, ranks.streams);
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<std::size_t>(r);
    transport.gpu(r).fill(ranks.streams[i], out[i].p, 0x5a, out[i].size);
  }
  transport.exchange(there, ranks.streams);
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<std::size_t>(r);
    // What later work of the stream does must not reach messages on their way.
    transport.gpu(r).fill(ranks.streams[i], out[i].p, 0x11, out[i].size);
  }
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<std::size_t>(r);
    Bytes8 want = data[i], got = back[i].get();
    want.pop_back(), got.pop_back();
    if (got != want) return fmt::format("rank {} did not get back what it sent", r);
    got = in[i].get();
    got.pop_back();
    if (got != Bytes8(received[i], 0x5a)) return fmt::format("rank {} did not get the second contents", r);
  }
  return "";
}

/// Small integers: sums of eight are exact in bfloat16.
std::vector<float> integers(std::size_t count, std::mt19937_64& random) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 31) - 15);
  return values;
}

struct Case {
  Transport& transport;
  Ranks& ranks;
  std::vector<int> group;
  std::size_t count;
  std::mt19937_64& random;

  enum class Kind { all_gather, reduce_scatter, all_reduce };
  std::string run(Kind kind, bool in_place) const {
    const std::size_t members = group.size();
    const std::size_t send_count = kind == Kind::reduce_scatter ? members * count : count;
    const std::size_t receive_count = kind == Kind::all_gather ? members * count : count;
    std::vector<OnDevice<Bf16>> send, receive;
    struct Round {
      std::vector<std::vector<float>> values;
      std::vector<OnDevice<Bf16>> sent, received;
    };
    std::vector<Round> rounds(3);
    std::vector<Buffers> buffers;
    std::vector<Stream> streams;
    for (std::size_t i = 0; i < members; ++i) {
      Gpu& gpu = transport.gpu(group[i]);
      for (Round& round : rounds) {
        round.values.push_back(integers(send_count, random));
        round.sent.emplace_back(gpu, bf16(round.values[i]));
        round.received.emplace_back(gpu, receive_count);
      }
      receive.emplace_back(gpu, receive_count);
      if (in_place && kind == Kind::all_gather) {
        send.push_back(receive[i]);
        send[i].p += i * count;
        send[i].size = count;
      } else {
        send.emplace_back(gpu, send_count);
      }
      if (in_place && kind == Kind::reduce_scatter) receive[i].p = send[i].p + i * count;
      if (in_place && kind == Kind::all_reduce) receive[i] = send[i];
      buffers.push_back({send[i].p, receive[i].p});
      streams.push_back(ranks.streams[static_cast<std::size_t>(group[i])]);
    }
    const auto call = [&] {
      if (kind == Kind::all_gather) transport.all_gather(group, buffers, count, Number::bf16, streams);
      if (kind == Kind::reduce_scatter)
        transport.reduce_scatter(group, buffers, count, Number::bf16, streams);
      if (kind == Kind::all_reduce) transport.all_reduce(group, buffers, count, Number::bf16, streams);
    };
    const auto copy = [&](std::size_t i, const OnDevice<Bf16>& from, const OnDevice<Bf16>& to) {
      transport.gpu(group[i]).copy(streams[i], bytes_copy(from.p, to.p, 2 * from.size));
    };
    for (const Round& round : rounds) {
      for (std::size_t i = 0; i < members; ++i) copy(i, round.sent[i], send[i]);
      call();
      for (std::size_t i = 0; i < members; ++i) copy(i, receive[i], round.received[i]);
    }
    for (std::size_t i = 0; i < members; ++i) {
      for (std::size_t r = 0; r < rounds.size(); ++r) {
        if (floats(rounds[r].received[i].get()) != want(kind, rounds[r].values, i)) {
          return fmt::format("{} {} round {} rank {} of a group of {}", static_cast<int>(kind),
                             in_place ? "in place" : "out of place", r, group[i], members);
        }
      }
    }
    return "";
  }

  std::vector<float> want(Kind kind, const std::vector<std::vector<float>>& sent, std::size_t member) const {
    std::vector<float> result;
    if (kind == Kind::all_gather) {
      for (const auto& s : sent) result.insert(result.end(), s.begin(), s.end());
      return result;
    }
    const std::size_t offset = kind == Kind::reduce_scatter ? member * count : 0;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (const auto& s : sent) sum += s[offset + i];
      result.push_back(sum);
    }
    return result;
  }
};

std::string collectives_until_wrong(Transport& transport, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Ranks ranks(transport);
  std::vector<int> all(static_cast<std::size_t>(transport.ranks())), subset;
  std::iota(all.begin(), all.end(), 0);
  for (const int r : all) {
    if (random() % 2 == 0) subset.push_back(r);
  }
  for (const auto& group : {all, subset}) {
    if (group.empty()) continue;
    for (const std::size_t count : {std::size_t{16}, std::size_t{1}, std::size_t{0}, std::size_t{13}}) {
      const Case c{transport, ranks, group, count, random};
      for (const auto kind : {Case::Kind::all_gather, Case::Kind::reduce_scatter, Case::Kind::all_reduce}) {
        for (const bool in_place : {false, true}) {
          if (std::string fault = c.run(kind, in_place); !fault.empty()) return fault;
        }
      }
    }
  }
  return "";
}

}  // namespace

std::string exchange_fault(Transport& transport, std::uint64_t seed) {
  try {
    return exchange_until_wrong(transport, seed);
  } catch (const GpuError& e) {
    return e.what();
  }
}

std::string collectives_fault(Transport& transport, std::uint64_t seed) {
  try {
    return collectives_until_wrong(transport, seed);
  } catch (const GpuError& e) {
    return e.what();
  }
}

}  // namespace shardline
