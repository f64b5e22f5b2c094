#include "cuda_probe/execute/cpu/mutations.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cpu/hazards.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline {

namespace {

using mutation::at_random;
using mutation::Random;

bool same_list(const Dataflow& flow, TokensId a, TokensId b) {
  return mutation::copy(flow, a) == mutation::copy(flow, b);
}

bool chosen_of_more(const Dataflow& flow, int rank) {
  return std::any_of(flow.actions.begin(), flow.actions.end(), [&](const Action& a) {
    return a.rank == rank && a.chosen && mutation::chooses(flow, a);
  });
}

bool input_exchanged(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.inputs.size(), random, [&](std::size_t i) {
    return at_random(flow.inputs.size(), random, [&](std::size_t j) {
      Binding &a = flow.inputs[i], &b = flow.inputs[j];
      // Attention does not care where keys are that all queries see.
      // Of rows of several tokens those that the step makes may not be among the chosen ones.
      const bool of_rows = a.whole >= Whole::row_value && a.whole <= Whole::index_row_bias;
      // Where all keys are chosen, it is all the same by what.
      if (a.whole >= Whole::index_query && a.whole <= Whole::chosen && !chosen_of_more(flow, a.rank))
        return false;
      if (a.slot != b.slot || a.whole != b.whole || a.whole == Whole::kv || a.whole == Whole::latent ||
          of_rows || a.kind != b.kind)
        return false;
      if (rows(flow.token_list(a.rows)) != rows(flow.token_list(b.rows)) ||
          rows(flow.token_list(a.columns)) != rows(flow.token_list(b.columns)) ||
          (same_list(flow, a.rows, b.rows) && same_list(flow, a.columns, b.columns)))
        return false;
      std::swap(a.rows, b.rows);
      std::swap(a.columns, b.columns);
      return true;
    });
  });
}

bool output_shifted(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.outputs.size(), random, [&](std::size_t i) {
    Tokens tokens = mutation::copy(flow, flow.outputs[i].rows);
    return at_random(tokens.size(), random, [&](std::size_t j) {
      if (tokens[j].request == kPadding || tokens[j].size() == 0) return false;
      const std::int64_t by = tokens[j].begin > 0 ? -1 : 1;
      tokens[j].begin += by;
      tokens[j].end += by;
      flow.outputs[i].rows = flow.tokens(tokens);
      return true;
    });
  });
}

bool residual_twice(Schedule& s, Random& random) {
  Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    const Action& a = flow.actions[i];
    if (a.function != Function::add || a.regions != 3) return false;
    Region* regions = flow.regions.data() + a.first_region;
    if (regions[0] == regions[1]) return false;
    regions[0] = regions[1];
    return true;
  });
}

// ---- order

bool dependency_dropped(Schedule& s, Random& random) {
  const std::size_t before = hazards(s).size();
  return at_random(s.ops.size(), random, [&](std::size_t i) {
    return at_random(s.ops[i].dependency_count, random, [&](std::size_t d) {
      Schedule changed = s;
      Op& op = changed.ops[i];
      // The last takes the place of the dropped one; the list of another op is not touched.
      std::swap(changed.dependencies[op.first_dependency + d],
                changed.dependencies[op.first_dependency + op.dependency_count - 1]);
      --op.dependency_count;
      // A dependency that others imply may go.
      if (hazards(changed).size() <= before) return false;
      s = changed;
      return true;
    });
  });
}

bool buffers_collapsed(Schedule& s, Random& random) {
  return at_random(s.flow->moves.size(), random, [&](std::size_t i) {
    const SlotId one = s.flow->moves[i].source.slot, other = s.flow->moves[i].target.slot;
    if (one == other) return false;
    Schedule changed = deep_copy(s);
    Dataflow& flow = *changed.flow;
    for (const Extent& e : flow.extents) {
      if (e.slot != other) continue;
      const Extent* mine = mutation::extent_of(flow, one, e.rank);
      if (mine == nullptr || mine->rows != e.rows || mine->columns != e.columns) return false;
    }
    const auto replace = [&](Region& r) {
      if (r.slot == other) r.slot = one;
    };
    for (Region& r : flow.regions) replace(r);
    for (Move& m : flow.moves) {
      replace(m.source);
      replace(m.target);
    }
    if (hazards(changed).size() <= hazards(s).size()) return false;
    *s.flow = flow;
    return true;
  });
}

// ---- charges

/// The shape of the class of a rank that does something in op `i`.
Shape& charged_shape(Schedule& s, OpIndex i, int rank) {
  Op& op = s.ops[i];
  if (op.variants == kAlike) return op.shape;
  return s.variants[op.variants + static_cast<std::uint32_t>(s.class_of(rank))];
}

/// One more in a field of a shape that has it.
template <class Field>
void one_more(Shape& shape, Field field) {
  const auto change = [&](auto& s) {
    if constexpr (requires { field(s); }) {
      auto& number = field(s);
      number = number + std::decay_t<decltype(number)>(1);
    }
  };
  std::visit(change, shape);
}

template <class Field>
bool charge_more(Schedule& s, Random& random, bool (*kinds)(OpKind), Field field) {
  const Dataflow& flow = *s.flow;
  return at_random(flow.actions.size(), random, [&](std::size_t i) {
    const OpIndex op = mutation::op_of_action(flow, i);
    if (!kinds(s.ops[op].kind)) return false;
    one_more(charged_shape(s, op, flow.actions[i].rank), field);
    return true;
  });
}

bool charged_pairs(Schedule& s, Random& random) {
  const auto of_pairs = [](OpKind k) { return is_attention(k) || k == OpKind::index_logits; };
  return charge_more(s, random, of_pairs, [](auto& a) -> decltype((a.pairs)) { return a.pairs; });
}

bool charged_query_rows(Schedule& s, Random& random) {
  return charge_more(s, random, is_attention, [](auto& a) -> decltype((a.q_rows)) { return a.q_rows; });
}

bool charged_kv_rows(Schedule& s, Random& random) {
  return charge_more(s, random, is_attention, [](auto& a) -> decltype((a.kv_rows)) { return a.kv_rows; });
}

bool charged_state_rows(Schedule& s, Random& random) {
  const auto of_states = [](OpKind k) { return is_recurrent(k); };
  return charge_more(s, random, of_states, [](auto& r) -> decltype((r.taps, r.rows)) { return r.rows; });
}

bool charged_gemm(Schedule& s, Random& random) {
  return charge_more(s, random, is_gemm, [](auto& g) -> decltype((g.n)) { return g.n; });
}

bool charged_bytes(Schedule& s, Random& random) {
  const Dataflow& flow = *s.flow;
  return at_random(flow.moves.size(), random, [&](std::size_t i) {
    const OpIndex op = mutation::op_of_move(flow, i);
    if (!is_communication(s.ops[op].kind)) return false;
    one_more(charged_shape(s, op, flow.moves[i].from),
             [](auto& e) -> decltype((e.bytes)) { return e.bytes; });
    return true;
  });
}

/// A copy of an op, behind all others, that nothing says what it does.
bool charged_nothing(Schedule& s, Random& random) {
  if (s.blocks.empty() || s.blocks.back().last != s.ops.size()) return false;
  return at_random(s.ops.size(), random, [&](std::size_t i) {
    Op op = s.ops[i];
    const Op charged = s.op_of_class(static_cast<OpIndex>(i), 0);
    if (!is_attention(op.kind) && op.part != Part::exchange) return false;
    if (flops(charged).value <= 0 && message_bytes(charged).value <= 0) return false;
    op.first_dependency = op.dependency_count = 0;
    s.ops.push_back(op);
    ++s.blocks.back().last;
    return true;
  });
}

constexpr std::array kMutations{
    Mutation{"query_positions_shifted", "an attend takes its queries for the next tokens",
             mutation::query_positions_shifted},
    Mutation{"key_positions_shifted", "an attend takes its keys for the next tokens",
             mutation::key_positions_shifted},
    Mutation{"mask_lost", "queries see the keys behind them", mutation::mask_lost},
    Mutation{"padding_as_real", "padding keys are attended to", mutation::padding_as_real},
    Mutation{"keys_as_padding", "tokens are taken for padding keys", mutation::keys_as_padding},
    Mutation{"queries_as_padding", "tokens are taken for padding queries", mutation::queries_as_padding},
    Mutation{"wrong_request", "keys are taken for another request's", mutation::wrong_request},
    Mutation{"keys_reordered", "two pieces of the keys change places in the list", mutation::keys_reordered},
    Mutation{"kv_owners_swapped", "two attends exchange the positions of their keys",
             mutation::kv_owners_swapped},
    Mutation{"key_forgotten", "the last key is left out", mutation::key_forgotten},
    Mutation{"kv_row_offset", "an attend reads KV one row off", mutation::kv_row_offset},
    Mutation{"head_offset", "an attend reads the queries of the next heads", mutation::head_offset},
    Mutation{"kv_head_count", "an attend has another number of KV heads", mutation::kv_head_count},
    Mutation{"other_buffer", "an attend reads the buffer of another step", mutation::other_buffer},
    Mutation{"merge_forgets", "a merge leaves out a partial result", mutation::merge_forgets},
    Mutation{"merge_twice", "a merge takes one partial result twice, in place of another",
             mutation::merge_twice},
    Mutation{"merge_wrong_lse", "a merge weighs a partial result with the lse of another",
             mutation::merge_wrong_lse},
    Mutation{"window_wider", "an attend's window is one token wider", mutation::window_wider},
    Mutation{"window_narrower", "an attend's window is one token narrower", mutation::window_narrower},
    Mutation{"chunk_boundary_off", "an attend's chunks have one token more or less",
             mutation::chunk_boundary_off},
    Mutation{"reach_lost", "queries see all keys before them, not their window or chunk alone",
             mutation::reach_lost},
    Mutation{"sinks_dropped", "an attend leaves its sinks out", mutation::sinks_dropped},
    Mutation{"sinks_of_wrong_head", "heads have each other's sinks", mutation::sinks_of_wrong_head},
    Mutation{"sinks_counted_again", "an attend counts sinks that another counts, or that no layer has",
             mutation::sinks_counted_again},
    Mutation{"kind_exchanged", "an output is taken for that of another kind of layer",
             mutation::kind_exchanged},
    Mutation{"choice_lost", "an attend sees all keys, not those that an index chose", mutation::choice_lost},
    Mutation{"earlier_choice_lost", "a layer does not get the choice of the earlier layer that it takes",
             mutation::earlier_choice_lost},
    Mutation{"choice_by_another_head", "blocks are chosen by the index head of other KV heads",
             mutation::choice_by_another_head},
    Mutation{"own_block_left_to_chance", "a query's own block is chosen by its score alone",
             mutation::own_block_left_to_chance},
    Mutation{"chosen_positions_shifted", "chosen keys are taken for the next ones",
             mutation::chosen_positions_shifted},
    Mutation{"rows_seen_early", "queries see rows of tokens that are behind them", mutation::rows_seen_early},
    Mutation{"rows_of_later_tokens", "rows are made of the tokens behind theirs",
             mutation::rows_of_later_tokens},
    Mutation{"gates_as_values", "rows are made of gates, weighed by values", mutation::gates_as_values},
    Mutation{"candidates_of_one_rank", "the candidates of one rank are taken twice, in place of another's",
             mutation::candidates_of_one_rank},
    Mutation{"state_dropped", "a request's state is forgotten", mutation::state_dropped},
    Mutation{"state_of_earlier_token", "states are those before the last token",
             mutation::state_of_earlier_token},
    Mutation{"decay_twice", "states decay twice", mutation::decay_twice},
    Mutation{"decay_of_wrong_token", "tokens have the decays of those before them",
             mutation::decay_of_wrong_token},
    Mutation{"convolution_rows_lost", "a convolution lacks the oldest row that it keeps",
             mutation::convolution_rows_lost},
    Mutation{"skip_lost", "outputs of a state have others than its inputs' share", mutation::skip_lost},
    Mutation{"queries_as_keys", "a state takes queries for keys", mutation::queries_as_keys},
    Mutation{"key_head_of_another", "a state has the keys of another head", mutation::key_head_of_another},
    Mutation{"betas_of_wrong_head", "heads have each other's betas", mutation::betas_of_wrong_head},
    Mutation{"rolled_back_too_far", "states behind drafts are those behind the tokens before",
             mutation::rolled_back_too_far},
    Mutation{"window_of_draft_forgotten", "a convolution does not keep the last draft's row",
             mutation::window_of_draft_forgotten},
    Mutation{"state_written_twice", "new tokens update a state twice", mutation::state_written_twice},
    Mutation{"message_dropped", "a message is not sent", mutation::message_dropped},
    Mutation{"wrong_sender", "two messages of a group come from each other's sender", mutation::wrong_sender},
    Mutation{"message_row_offset", "a message takes its rows one off", mutation::message_row_offset},
    Mutation{"message_lands_off", "a message is written one row off", mutation::message_lands_off},
    Mutation{"contribution_dropped", "a sum lacks the part of one rank", mutation::contribution_dropped},
    Mutation{"contribution_twice", "a sum counts the part of one rank twice", mutation::contribution_twice},
    Mutation{"contribution_overwrites", "a part replaces the sum it belongs to",
             mutation::contribution_overwrites},
    Mutation{"pieces_exchanged", "a rank exchanges two pieces of an all-to-all", mutation::pieces_exchanged},
    Mutation{"input_exchanged", "two ranks hold each other's queries, activations or weights",
             input_exchanged},
    Mutation{"output_shifted", "outputs are taken for those of the token beside", output_shifted},
    Mutation{"op_does_nothing", "an op has no actions or messages", mutation::op_does_nothing},
    Mutation{"residual_twice", "a residual is added to itself", residual_twice},
    Mutation{"dependency_dropped", "an op does not wait for one that it needs", dependency_dropped},
    Mutation{"buffers_collapsed", "one buffer where two are needed", buffers_collapsed},
    Mutation{"charged_pairs", "the charge has one pair more", charged_pairs},
    Mutation{"charged_query_rows", "the charge has one query more", charged_query_rows},
    Mutation{"charged_kv_rows", "the charge has one cached token more", charged_kv_rows},
    Mutation{"charged_state_rows", "the charge of a state has one token more", charged_state_rows},
    Mutation{"charged_gemm", "the charge has one column more", charged_gemm},
    Mutation{"charged_bytes", "the charge has one byte more", charged_bytes},
    Mutation{"charged_nothing", "an op is charged that does nothing", charged_nothing},
};

}  // namespace

std::span<const Mutation> mutations() { return kMutations; }

Schedule deep_copy(const Schedule& schedule) {
  Schedule copy = schedule;
  if (schedule.flow) copy.flow = std::make_shared<Dataflow>(*schedule.flow);
  return copy;
}

}  // namespace shardline
