#include <algorithm>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

bool empty(const Move& m) { return m.source.rows == 0 || m.source.columns == 0; }

/// Moves that matter: what they bring has an effect, and is not of attends that saw nothing, whose results
/// are alike.
std::vector<bool> moves_that_matter(const Schedule& s, Effect effect = Effect::possible) {
  const Dataflow& flow = *s.flow;
  std::vector<bool> matter = useful_moves(s, effect);
  for (std::size_t i = 0; i < matter.size(); ++i) {
    const Move& m = flow.moves[i];
    matter[i] = matter[i] && contributes(flow, op_of_move(flow, i), m.from, m.source);
  }
  return matter;
}

/// A move that matters.
template <class Change>
bool change_move(Schedule& s, Random& random, Change change, Effect effect = Effect::possible) {
  Dataflow& flow = *s.flow;
  const std::vector<bool> useful = moves_that_matter(s, effect);
  return at_random(flow.moves.size(), random,
                   [&](std::size_t i) { return useful[i] && change(flow.moves[i]); });
}

/// Two moves of one op, one of which matters.
template <class Change>
bool change_moves(Schedule& s, Random& random, Change change, Effect effect = Effect::possible) {
  Dataflow& flow = *s.flow;
  const std::vector<bool> useful = moves_that_matter(s, effect);
  return at_random(flow.ops.size(), random, [&](std::size_t op) {
    const OpFlow& part = flow.ops[op];
    return at_random(part.moves, random, [&](std::size_t i) {
      return at_random(part.moves, random, [&](std::size_t j) {
        Move &a = flow.moves[part.first_move + i], &b = flow.moves[part.first_move + j];
        return i != j && useful[part.first_move + i] && !empty(b) && change(s.ops[op], a, b);
      });
    });
  });
}

bool same_group(const Group& g, int a, int b) {
  return g.size > 1 && a / (g.size * g.stride) == b / (g.size * g.stride) && a % g.stride == b % g.stride;
}

bool overlap(const Region& a, const Region& b) {
  return a.slot == b.slot && a.row < b.row + b.rows && b.row < a.row + a.rows &&
         a.column < b.column + b.columns && b.column < a.column + a.columns;
}

/// Whether what a message brings is read by nothing but merges that weigh a part with it and do not read the
/// part's output: the order of such parts means nothing.
bool weighs_only(const Dataflow& flow, const Move& m) {
  bool any = false;
  for (const Action& a : flow.actions) {
    const auto regions = flow.regions_of(a);
    for (std::size_t i = 0; i < regions.size() && a.rank == m.to; ++i) {
      if (!overlap(regions[i], m.target)) continue;
      if (a.function != Function::merge || i % 2 == 0 || regions[i - 1].columns > 0) return false;
      any = true;
    }
  }
  return any;
}

/// Results of an attend: which of its regions they are in, and where.
struct Answer {
  const Action* attend = nullptr;
  std::size_t result = 0;
  std::int64_t row = 0, column = 0;
};

/// What a region of a rank holds when op `before` begins; no attend if something else wrote it last.
Answer answer_in(const Dataflow& flow, OpIndex before, int rank, const Region& wanted) {
  for (std::uint32_t op = before; op-- > 0;) {
    const OpFlow& part = flow.ops[op];
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow.moves[part.first_move + i];
      if (m.to == rank && overlap(m.target, wanted)) return {};
    }
    for (std::uint32_t i = part.actions; i-- > 0;) {
      const Action& a = flow.actions[part.first_action + i];
      const auto regions = flow.regions_of(a);
      for (std::size_t r = 0; r < regions.size() && a.rank == rank; ++r) {
        if (!is_result(a.function, r, regions.size()) || !overlap(regions[r], wanted)) continue;
        if (a.function != Function::attend) return {};
        return {&a, r, wanted.row - regions[r].row, wanted.column - regions[r].column};
      }
    }
  }
  return {};
}

/// Whether two queries of attends over the same keys give the same numbers: they are one query, as where
/// several ranks ask for it because a batch has fewer requests than there are ranks; they see no key, as
/// padding does; or, of outputs, they see one key, which then has all weight.
bool same_row(TokenView one, TokenView other, TokenView keys, const Action& attend, bool output) {
  if (std::ranges::equal(one, other)) return true;
  const std::vector<bool> seen = mask(one, keys, attend.reach, attend.ratio);
  const auto count = std::count(seen.begin(), seen.end(), true);
  return !has_sinks(attend) && (count == 0 || (output && count == 1)) &&
         seen == mask(other, keys, attend.reach, attend.ratio);
}

/// Whether two messages of a rank bring the same numbers.
bool same_answers(const Dataflow& flow, const Move& a, const Move& b) {
  const OpIndex op = op_of_move(flow, static_cast<std::size_t>(&a - flow.moves.data()));
  const Answer x = answer_in(flow, op, a.from, a.source), y = answer_in(flow, op, b.from, b.source);
  if (x.attend == nullptr || y.attend == nullptr || x.result != y.result || x.column != y.column)
    return false;
  const TokenView keys = flow.token_list(x.attend->keys);
  const std::size_t kv = 1, output = 2;
  if (flow.regions_of(*x.attend)[kv] != flow.regions_of(*y.attend)[kv] ||
      !std::ranges::equal(keys, flow.token_list(y.attend->keys)))
    return false;
  const auto query = [&](const Answer& answer, std::int64_t row) {
    return slice(flow.token_list(answer.attend->queries), answer.row + row, answer.row + row + 1);
  };
  for (std::int64_t row = 0; row < a.source.rows; ++row) {
    if (!same_row(query(x, row), query(y, row), keys, *x.attend, x.result == output)) return false;
  }
  return true;
}

void drop(Move& m) { m.source.rows = m.target.rows = 0; }

bool shift_row(const Dataflow& flow, int rank, Region& r) {
  Region moved = r;
  ++moved.row;
  if (!fits(flow, rank, moved)) moved.row -= 2;
  if (!fits(flow, rank, moved)) return false;
  r = moved;
  return true;
}

}  // namespace

bool message_dropped(Schedule& s, Random& random) {
  return change_move(s, random, [](Move& m) {
    if (m.from == m.to) return false;
    drop(m);
    return true;
  });
}

bool wrong_sender(Schedule& s, Random& random) {
  return change_moves(
      s, random,
      [&](const Op& op, Move& a, Move& b) {
        // Contributions to one sum may be exchanged.
        if (a.from == b.from || !same_group(op.group, a.from, b.from) || ((a.add || b.add) && a.to == b.to))
          return false;
        if (a.to == b.to && weighs_only(*s.flow, a) && weighs_only(*s.flow, b)) return false;
        std::swap(a.from, b.from);
        return true;
      },
      Effect::sure);
}

bool message_row_offset(Schedule& s, Random& random) {
  return change_move(
      s, random, [&](Move& m) { return shift_row(*s.flow, m.from, m.source); }, Effect::sure);
}

bool message_lands_off(Schedule& s, Random& random) {
  return change_move(
      s, random, [&](Move& m) { return shift_row(*s.flow, m.to, m.target); }, Effect::sure);
}

bool contribution_dropped(Schedule& s, Random& random) {
  return change_move(s, random, [](Move& m) {
    if (!m.add) return false;
    drop(m);
    return true;
  });
}

bool contribution_twice(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  const std::vector<bool> useful = moves_that_matter(s);
  return at_random(flow.moves.size(), random, [&](std::size_t i) {
    const Move m = flow.moves[i];
    if (!m.add || !useful[i]) return false;
    const OpIndex op = op_of_move(flow, i);
    flow.moves.insert(flow.moves.begin() + static_cast<std::ptrdiff_t>(i), m);
    for (OpFlow& part : flow.ops) {
      if (part.moves > 0 && part.first_move > i) ++part.first_move;
    }
    ++flow.ops[op].moves;
    return true;
  });
}

bool contribution_overwrites(Schedule& s, Random& random) {
  return change_move(s, random, [&](Move& m) {
    const Dataflow& flow = *s.flow;
    const auto i = static_cast<std::size_t>(&m - flow.moves.data());
    // Where the sum begins as zeros, its first part may replace them.
    if (!m.add || !contributes(flow, op_of_move(flow, i), m.to, m.target)) return false;
    m.add = false;
    return true;
  });
}

bool pieces_exchanged(Schedule& s, Random& random) {
  return change_moves(s, random, [&](const Op& op, Move& a, Move& b) {
    const Region &x = a.source, &y = b.source;
    if (op.kind != OpKind::all_to_all || a.from != b.from || x == y || x.rows != y.rows ||
        x.columns != y.columns || same_answers(*s.flow, a, b))
      return false;
    std::swap(a.source, b.source);
    return true;
  });
}

bool op_does_nothing(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  const std::vector<bool> useful = moves_that_matter(s);
  return at_random(flow.ops.size(), random, [&](std::size_t op) {
    OpFlow& part = flow.ops[op];
    bool matters = false;
    for (std::uint32_t i = 0; i < part.moves; ++i) matters = matters || useful[part.first_move + i];
    for (std::uint32_t i = 0; i < part.actions; ++i) {
      const Action& a = flow.actions[part.first_action + i];
      matters = matters || (a.function == Function::attend && (a.chosen || !sees_nothing(flow, a)));
    }
    if (matters) part.actions = part.moves = 0;
    return matters;
  });
}

}  // namespace shardline::mutation
