#include "cuda_probe/execute/cuda/exchange.hpp"

#include <utility>

namespace shardline {

namespace {

Launch copy(const Block2d& source, const Block2d& target) {
  const std::size_t size = bytes_of(source.number);
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * size; };
  const Copy c{
      source.at,           target.at,          static_cast<std::size_t>(source.rows), bytes(source.columns),
      bytes(source.pitch), bytes(target.pitch)};
  return [c](Gpu& gpu, Stream stream) { gpu.copy(stream, c); };
}

Launch add(const Block2d& source, const Block2d& target) {
  const RowArguments a{target.bf16(),  source.bf16(), target.bf16(), source.rows,
                       source.columns, target.pitch,  source.pitch,  target.pitch};
  return [a](Gpu& gpu, Stream stream) { gpu.add(stream, a); };
}

class Planner {
 public:
  Planner(std::span<const Move> moves, const Layout& layout, Transport& transport, RankMemory& memory)
      : moves_(moves), layout_(layout), transport_(transport), memory_(memory) {
    plan.before.resize(static_cast<std::size_t>(layout.ranks()));
    plan.after.resize(plan.before.size());
  }

  void add_move(std::size_t index) {
    const Move& m = moves_[index];
    if (m.source.rows == 0 || m.source.columns == 0) return;
    const bool here = transport_.local(m.from), there = transport_.local(m.to);
    Block2d source = layout_.block(m.from, m.source), target = layout_.block(m.to, m.target);
    const bool read_early = overwritten(m);
    const bool inside = m.from == m.to;
    if (here && (read_early || (!inside && !layout_.contiguous(m.from, m.source)))) {
      source = packed(m.from, m.source, source);
    }
    if (inside) {
      if (here) plan.after[rank(m.to)].push_back(m.add ? add(source, target) : copy(source, target));
      return;
    }
    // Both sides take part in the same message, whether or not they need a buffer.
    const std::int64_t elements = (m.source.rows - 1) * padded(m.source.columns) + m.source.columns;
    const std::size_t bytes = static_cast<std::size_t>(elements) * bytes_of(layout_.number(m.source.slot));
    std::byte* receive = target.at;
    if (there && (m.add || !layout_.contiguous(m.to, m.target) || target_is_shared(index))) {
      const Block2d received = buffer(m.to, target);
      plan.after[rank(m.to)].push_back(m.add ? add(received, target) : copy(received, target));
      receive = received.at;
    }
    plan.messages.push_back({m.from, m.to, source.at, receive, bytes});
  }

  void add_collective(const Collective& c) {
    CollectiveCall call{c, {}};
    const std::size_t bytes = c.count * bytes_of(c.number);
    for (std::size_t i = 0; i < c.members.size(); ++i) {
      const int r = c.members[i];
      Buffers& b = call.buffers.emplace_back();
      if (!transport_.local(r)) continue;
      const Block2d send = layout_.block(r, c.send[i]), receive = layout_.block(r, c.receive[i]);
      b = {send.at, receive.at};
      // Transports take equal buffers or disjoint ones.
      if (c.kind == OpKind::reduce_scatter) {
        b.receive = memory_.allocate(r, bytes);
        Block2d sum = receive;
        sum.at = static_cast<std::byte*>(b.receive);
        plan.after[rank(r)].push_back(copy(sum, receive));
      } else if (c.kind == OpKind::all_gather && overlap(c.send[i], c.receive[i])) {
        Block2d own = send;
        own.at = memory_.allocate(r, bytes);
        plan.before[rank(r)].push_back(copy(send, own));
        b.send = own.at;
      }
    }
    plan.collectives.push_back(std::move(call));
  }

  ExchangePlan plan;

 private:
  static std::size_t rank(int r) { return static_cast<std::size_t>(r); }

  /// Memory for the region's rows as a message lays them out.
  Block2d buffer(int r, Block2d like) {
    like.pitch = padded(like.columns);
    like.at = memory_.allocate(r, static_cast<std::size_t>(like.rows * like.pitch) * bytes_of(like.number));
    return like;
  }

  /// A copy of the region, one for all messages that send it.
  Block2d packed(int r, const Region& region, const Block2d& source) {
    for (const Packed& p : packed_) {
      if (p.rank == r && p.region == region) return p.block;
    }
    const Block2d copied = buffer(r, source);
    plan.before[rank(r)].push_back(copy(source, copied));
    packed_.push_back({r, region, copied});
    return copied;
  }

  /// Whether a message of the op writes where this one reads, or the two ends of a copy overlap.
  bool overwritten(const Move& m) const {
    for (const Move& other : moves_) {
      if (other.to == m.from && overlap(other.target, m.source)) return true;
    }
    return false;
  }

  bool target_is_shared(std::size_t index) const {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      if (i != index && moves_[i].to == moves_[index].to && overlap(moves_[i].target, moves_[index].target))
        return true;
    }
    return false;
  }

  std::span<const Move> moves_;
  const Layout& layout_;
  Transport& transport_;
  RankMemory& memory_;
  struct Packed {
    int rank;
    Region region;
    Block2d block;
  };
  std::vector<Packed> packed_;
};

}  // namespace

ExchangePlan plan_exchange(const Schedule& s, const Layout& layout, OpIndex op, Transport& transport,
                           RankMemory& memory, bool collectives) {
  const OpFlow& part = s.flow->ops[op];
  const auto moves = std::span(s.flow->moves).subspan(part.first_move, part.moves);
  Planner planner(moves, layout, transport, memory);
  const auto calls = collectives ? as_collectives(s, layout, op) : std::nullopt;
  if (calls) {
    for (const Collective& c : *calls) planner.add_collective(c);
  } else {
    for (std::size_t i = 0; i < moves.size(); ++i) planner.add_move(i);
  }
  return std::move(planner.plan);
}

void enqueue(const ExchangePlan& plan, Transport& transport, std::span<const Stream> streams) {
  const auto run = [&](const std::vector<std::vector<Launch>>& launches) {
    for (std::size_t r = 0; r < launches.size(); ++r) {
      for (const Launch& launch : launches[r]) launch(transport.gpu(static_cast<int>(r)), streams[r]);
    }
  };
  run(plan.before);
  if (!plan.messages.empty()) transport.exchange(plan.messages, streams);
  for (const CollectiveCall& call : plan.collectives) {
    const Collective& c = call.collective;
    std::vector<Stream> of_members;
    bool any = false;
    for (const int r : c.members) {
      of_members.push_back(streams[static_cast<std::size_t>(r)]);
      any = any || transport.local(r);
    }
    if (!any) continue;
    if (c.kind == OpKind::all_reduce) {
      transport.all_reduce(c.members, call.buffers, c.count, c.number, of_members);
    } else if (c.kind == OpKind::reduce_scatter) {
      transport.reduce_scatter(c.members, call.buffers, c.count, c.number, of_members);
    } else {
      transport.all_gather(c.members, call.buffers, c.count, c.number, of_members);
    }
  }
  run(plan.after);
}

}  // namespace shardline
