#include "planner/handoff/pieces.hpp"

#include <algorithm>
#include <map>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Boxes of one part and kind.
struct Range {
  std::size_t first = 0, end = 0;
};

Range boxes_of(const CacheLayout& layout, const PartShape& part) {
  const auto is = [&](const CacheBox& b) { return b.part == part.part && b.kind == part.kind; };
  const auto first = std::find_if(layout.boxes.begin(), layout.boxes.end(), is);
  const auto end = std::find_if_not(first, layout.boxes.end(), is);
  return {static_cast<std::size_t>(first - layout.boxes.begin()),
          static_cast<std::size_t>(end - layout.boxes.begin())};
}

// Who sends one part of one kind to whom.
class PartPieces {
 public:
  PartPieces(const Handoff& h, const PartShape& part, int group)
      : h_(h), part_(part), group_(group), from_(boxes_of(h.source, part)), to_(boxes_of(h.target, part)) {}

  void add(std::vector<CachePiece>& out) const {
    for (std::size_t to = to_.first; to < to_.end; ++to) {
      // Units that come from the same boxes, in the same layers, are one piece.
      std::map<std::size_t, CachePiece> open;
      for (int u = target(to).units.first; u < target(to).units.end; ++u) {
        check_cancelled();
        std::int64_t found = 0;
        for (const std::size_t from : senders(to, u)) {
          const auto known = open.find(from);
          if (known != open.end() && known->second.units.end == u) {
            ++known->second.units.end;
          } else {
            if (known != open.end()) finish(known->second, out);
            open[from] = piece(from, to, u);
          }
          found += open[from].runs.tokens * open[from].layer_count;
        }
        const std::int64_t wanted = of_tokens(part_.part) ? size(target(to).tokens) : 1;
        SL_CHECK(found == wanted * h_.target.layers(part_.kind, target(to).layers),
                 "some rank computed each token of each head");
      }
      for (auto& [from, p] : open) finish(p, out);
    }
  }

 private:
  const CacheBox& source(std::size_t i) const { return h_.source.boxes[i]; }
  const CacheBox& target(std::size_t i) const { return h_.target.boxes[i]; }

  // Boxes that send unit `u` to box `to`: of those with the same tokens of the same layers one.
  std::vector<std::size_t> senders(std::size_t to, int u) const {
    // The place of the receiver among those that need the same.
    int place = 0, receivers = 0;
    for (std::size_t i = to_.first; i < to_.end; ++i) {
      const CacheBox& b = target(i);
      if (!b.units.has(u) || b.layers != target(to).layers || b.tokens != target(to).tokens) continue;
      place += i < to ? 1 : 0;
      ++receivers;
    }
    std::vector<std::size_t> left, out;
    for (std::size_t i = from_.first; i < from_.end; ++i) {
      if (source(i).units.has(u) && common(source(i).layers, target(to).layers).size() > 0) left.push_back(i);
    }
    while (!left.empty()) {
      const CacheBox& first = source(left.front());
      std::vector<std::size_t> same, others;
      for (const std::size_t i : left) {
        const bool copy = source(i).layers == first.layers && source(i).tokens == first.tokens;
        (copy ? same : others).push_back(i);
      }
      const auto n = static_cast<int>(same.size());
      const int at = place * n / receivers + group_ % std::max(1, n / receivers);
      const std::size_t sender = same[static_cast<std::size_t>(at)];
      if (piece(sender, to, u).runs.tokens > 0) out.push_back(sender);
      left = std::move(others);
    }
    return out;
  }

  CachePiece piece(std::size_t from, std::size_t to, int u) const {
    const CacheBox &a = source(from), &b = target(to);
    CachePiece p{a.rank, b.rank,    part_.part, part_.kind, common(a.layers, b.layers), 0, {u, u + 1}, from,
                 to,     {1, 1, 1}, 0,          Bytes(0)};
    p.layer_count = h_.source.layers(part_.kind, p.layers);
    if (p.layer_count == 0)
      p.runs = {};
    else if (of_tokens(part_.part))
      p.runs = count_runs(a.tokens, b.tokens, part_.page(h_.pages.source.block),
                          part_.page(h_.pages.target.block));
    return p;
  }

  void finish(CachePiece& p, std::vector<CachePiece>& out) const {
    p.descriptors = descriptors_of(p, source(p.source), target(p.target), part_.planes, h_.pages);
    p.bytes = Bytes(static_cast<double>(p.runs.tokens * p.units.size() * p.layer_count) * part_.row_bytes);
    out.push_back(p);
  }

  const Handoff& h_;
  const PartShape& part_;
  const int group_;
  const Range from_, to_;
};

}  // namespace

long long descriptors_of(const CachePiece& p, const CacheBox& source, const CacheBox& target, int planes,
                         const HandoffPages& pages) {
  const long long each = static_cast<long long>(p.layer_count) * planes, units = p.units.size();
  // States lie unit by unit, so that units which follow one another are one run.
  if (!of_tokens(p.part) || (source.units.size() == 1 && target.units.size() == 1)) return each * p.runs.runs;
  const bool all = source.units == p.units && target.units == p.units;
  // In pages of one row a token's heads lie together, whatever their order.
  const auto order = [](const CachePages& of) { return of.block == 1 ? PageOrder::tokens_first : of.order; };
  const bool by_tokens = order(pages.source) == PageOrder::tokens_first,
             same = order(pages.source) == order(pages.target);
  if (same && by_tokens) return each * (all ? p.runs.runs : p.runs.tokens);
  if (same) return each * (p.runs.whole + (p.runs.runs - p.runs.whole) * units - p.runs.around * (units - 1));
  // One side has a token's heads together, the other a head's tokens.
  const long long tokens = p.runs.tokens * units;
  if (units == 1) return each * ((by_tokens ? source : target).units.size() == 1 ? p.runs.runs : tokens);
  return each * tokens;
}

Bytes Handoff::bytes() const {
  Bytes sum;
  for (const CachePiece& p : pieces) sum += p.bytes;
  return sum;
}

Handoff hand_over(CacheLayout source, CacheLayout target, const HandoffPages& pages, int target_group) {
  Handoff h{std::move(source), std::move(target), pages, {}};
  SL_CHECK(h.source.kind_of == h.target.kind_of, "both replicas serve one model");
  for (const PartShape& part : h.target.parts) PartPieces(h, part, target_group).add(h.pieces);
  return h;
}

std::vector<RankPair> rank_pairs(const Handoff& h) {
  std::map<std::pair<int, int>, RankPair> pairs;
  for (const CachePiece& p : h.pieces) {
    RankPair& pair = pairs[{p.from, p.to}];
    pair.from = p.from;
    pair.to = p.to;
    ++pair.pieces;
    pair.descriptors = h.pages.gathered ? 1 : pair.descriptors + p.descriptors;
    pair.bytes += p.bytes;
  }
  std::vector<RankPair> out;
  for (auto& [ranks, pair] : pairs) out.push_back(pair);
  return out;
}

}  // namespace shardline
