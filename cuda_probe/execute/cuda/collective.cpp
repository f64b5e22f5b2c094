#include "cuda_probe/execute/cuda/collective.hpp"

#include <map>
#include <utility>

namespace shardline {

namespace {

/// Messages of one group by (sender, receiver), as places among the members.
class Messages {
 public:
  Messages(int base, Group group) : group_(group) {
    for (int i = 0; i < group.size; ++i) members.push_back(base + i * group.stride);
    table_.resize(members.size() * members.size());
  }

  /// False if the message is of no member, or not the only one between these two.
  bool add(const Move& m) {
    const int from = place(m.from), to = place(m.to);
    if (from < 0 || to < 0 || at(from, to) != nullptr) return false;
    at(from, to) = &m;
    return true;
  }
  const Move* of(int from, int to) const { return table_[index(from, to)]; }
  int size() const { return group_.size; }
  /// All pairs of two different members, all adding or none.
  bool complete(bool add) const {
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        if (from != to && (of(from, to) == nullptr || of(from, to)->add != add)) return false;
      }
    }
    return true;
  }
  bool any_to_itself() const {
    for (int i = 0; i < size(); ++i) {
      if (of(i, i) != nullptr) return true;
    }
    return false;
  }

  std::vector<int> members;

 private:
  int place(int rank) const {
    const int offset = rank - members.front();
    if (offset < 0 || offset % group_.stride != 0 || offset / group_.stride >= group_.size) return -1;
    return offset / group_.stride;
  }
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to);
  }
  const Move*& at(int from, int to) { return table_[index(from, to)]; }

  Group group_;
  std::vector<const Move*> table_;
};

/// `pieces` of one slot follow each other without a gap; what they make up together, or nothing.
std::optional<Region> joined(const Layout& layout, int rank, const std::vector<Region>& pieces) {
  Region all = pieces.front();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Region& p = pieces[i];
    if (p.rows < 1 || p.column != 0 || p.columns != layout.columns(p.slot, rank)) return std::nullopt;
    if (i == 0) continue;
    if (p.slot != all.slot || p.row != all.row + all.rows || p.rows != pieces.front().rows)
      return std::nullopt;
    all.rows += p.rows;
  }
  return all;
}

std::size_t count_of(const Layout& layout, int rank, const Region& r) {
  return static_cast<std::size_t>(r.rows * layout.pitch(r.slot, rank));
}

/// Sets what all members must agree on from the first; whether the others do.
bool agree(Collective& c, const Layout& layout, std::size_t member, const Region& piece) {
  const std::size_t count = count_of(layout, c.members[member], piece);
  if (member == 0) {
    c.count = count;
    c.number = layout.number(piece.slot);
  }
  return c.count == count && c.number == layout.number(piece.slot) && count > 0;
}

bool all_reduce(const Messages& m, const Layout& layout, Collective& c) {
  if (!m.complete(true) || m.any_to_itself()) return false;
  for (int i = 0; i < m.size(); ++i) {
    const Region own = m.of(i, (i + 1) % m.size())->source;
    if (!joined(layout, c.members[static_cast<std::size_t>(i)], {own})) return false;
    for (int other = 0; other < m.size(); ++other) {
      if (other != i && (m.of(i, other)->source != own || m.of(other, i)->target != own)) return false;
    }
    if (!agree(c, layout, static_cast<std::size_t>(i), own)) return false;
    c.send.push_back(own);
  }
  c.receive = c.send;
  return true;
}

bool reduce_scatter(const Messages& m, const Layout& layout, Collective& c) {
  if (!m.complete(true) || m.any_to_itself()) return false;
  for (int i = 0; i < m.size(); ++i) {
    // What the others add to is the own part, the piece that goes to no one.
    const Region own = m.of((i + 1) % m.size(), i)->target;
    std::vector<Region> pieces;
    for (int other = 0; other < m.size(); ++other) {
      if (other != i && m.of(other, i)->target != own) return false;
      pieces.push_back(other == i ? own : m.of(i, other)->source);
    }
    const auto whole = joined(layout, c.members[static_cast<std::size_t>(i)], pieces);
    if (!whole || !agree(c, layout, static_cast<std::size_t>(i), own)) return false;
    c.send.push_back(*whole);
    c.receive.push_back(own);
  }
  return true;
}

bool all_gather(const Messages& m, const Layout& layout, Collective& c) {
  if (!m.complete(false)) return false;
  for (int i = 0; i < m.size(); ++i) {
    const Region own = m.of(i, (i + 1) % m.size())->source;
    std::vector<Region> pieces;
    for (int other = 0; other < m.size(); ++other) {
      if (other != i && m.of(i, other)->source != own) return false;
      // Without a copy of its own piece, a rank must hold it in place.
      const Move* message = m.of(other, i);
      if (message != nullptr && (message->add || (other == i && message->source != own))) return false;
      pieces.push_back(message != nullptr ? message->target : own);
    }
    const int rank = c.members[static_cast<std::size_t>(i)];
    const auto whole = joined(layout, rank, pieces);
    if (!whole || !joined(layout, rank, {own}) || !agree(c, layout, static_cast<std::size_t>(i), own) ||
        count_of(layout, rank, pieces.front()) != c.count)
      return false;
    c.send.push_back(own);
    c.receive.push_back(*whole);
  }
  return true;
}

}  // namespace

std::optional<std::vector<Collective>> as_collectives(const Schedule& s, const Layout& layout, OpIndex op) {
  const OpKind kind = s.ops[op].kind;
  const Group group = s.ops[op].group;
  const bool known =
      kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::all_gather;
  if (!known || group.size < 2 || op >= s.flow->ops.size()) return std::nullopt;
  const OpFlow& part = s.flow->ops[op];
  std::map<int, Messages> groups;  // by first rank
  for (std::uint32_t i = 0; i < part.moves; ++i) {
    const Move& m = s.flow->moves[part.first_move + i];
    const int span = group.size * group.stride;
    const int base = m.from / span * span + m.from % group.stride;
    if (!groups.try_emplace(base, base, group).first->second.add(m)) return std::nullopt;
  }
  std::vector<Collective> out;
  for (const auto& [base, messages] : groups) {
    if (messages.members.back() >= layout.ranks()) return std::nullopt;
    Collective c;
    c.kind = kind;
    c.members = messages.members;
    const bool fits = kind == OpKind::all_reduce       ? all_reduce(messages, layout, c)
                      : kind == OpKind::reduce_scatter ? reduce_scatter(messages, layout, c)
                                                       : all_gather(messages, layout, c);
    if (!fits) return std::nullopt;
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace shardline
