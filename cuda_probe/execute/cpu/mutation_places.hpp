// For mutations.cpp: places of a schedule, and the mutations that change one kind of place each.
#pragma once

#include <cstddef>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "models/ir/schedule.hpp"

namespace shardline::mutation {

using Random = std::mt19937_64;

/// Calls attempt(i) for i of [0, n) in random order until one returns true; returns whether one did.
template <class Attempt>
bool at_random(std::size_t n, Random& random, Attempt attempt) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = n; left > 0; --left) {
    std::swap(order[left - 1], order[random() % left]);
    if (attempt(order[left - 1])) return true;
  }
  return false;
}

inline Tokens copy(const Dataflow& flow, TokensId id) {
  const TokenView list = flow.token_list(id);
  return {list.begin(), list.end()};
}

/// Rows [begin, end) of a list.
Tokens slice(TokenView tokens, std::int64_t begin, std::int64_t end);

/// For each row of the queries and each of the keys, whether the one may see the other.
std::vector<bool> mask(TokenView queries, TokenView keys, const Reach& reach, int ratio = 1);
bool sees_nothing(TokenView queries, TokenView keys, const Reach& reach, int ratio = 1);
/// Of an attend of the flow.
std::vector<bool> mask(const Dataflow& flow, const Action& attend);
bool sees_nothing(const Dataflow& flow, const Action& attend);

/// Of action or move i: its op.
OpIndex op_of_action(const Dataflow& flow, std::size_t action);
OpIndex op_of_move(const Dataflow& flow, std::size_t move);
const Extent* extent_of(const Dataflow& flow, SlotId slot, int rank);
bool fits(const Dataflow& flow, int rank, const Region& region);

/// False if this region, as op `before` finds it, comes from attends none of whose queries there see a key:
/// its rows are alike, of zeros and -infinity, or of sinks alone.
bool contributes(const Dataflow& flow, OpIndex before, int rank, const Region& region);

/// Whether rows [row, row + row_count) of result `r` of an action of op `op` come from queries that see a
/// key. Which keys an index chose, and whether one of them is here, is not known: no. Of a merge's output
/// only the parts that it does not leave to others count: where these are zeros, no weight matters.
bool sees_some(const Dataflow& flow, OpIndex op, const Action& a, std::size_t r, std::int64_t row,
               std::int64_t row_count);

/// possible: what scores of blocks, or a key that may be chosen with its block, decide counts. sure: only
/// what shows in an output whichever blocks are chosen; another number than the right one may leave a choice
/// as it was (a query's own block is chosen whatever its score), or be of a key that nobody chose.
enum class Effect : unsigned char { possible, sure };

/// For each message: whether any number that it brings has an effect on an output (on tokens, not padding).
std::vector<bool> useful_moves(const Schedule& s, Effect effect = Effect::possible);

// Attention.
bool query_positions_shifted(Schedule& s, Random& random);
bool key_positions_shifted(Schedule& s, Random& random);
bool mask_lost(Schedule& s, Random& random);
bool padding_as_real(Schedule& s, Random& random);
bool keys_as_padding(Schedule& s, Random& random);
bool queries_as_padding(Schedule& s, Random& random);
bool wrong_request(Schedule& s, Random& random);
bool keys_reordered(Schedule& s, Random& random);
bool kv_owners_swapped(Schedule& s, Random& random);
bool key_forgotten(Schedule& s, Random& random);
bool kv_row_offset(Schedule& s, Random& random);
bool head_offset(Schedule& s, Random& random);
bool kv_head_count(Schedule& s, Random& random);
bool other_buffer(Schedule& s, Random& random);
bool merge_forgets(Schedule& s, Random& random);
bool merge_twice(Schedule& s, Random& random);
bool merge_wrong_lse(Schedule& s, Random& random);

// What layers of several kinds add to it.
bool window_wider(Schedule& s, Random& random);
bool window_narrower(Schedule& s, Random& random);
bool chunk_boundary_off(Schedule& s, Random& random);
bool reach_lost(Schedule& s, Random& random);
bool sinks_dropped(Schedule& s, Random& random);
bool sinks_of_wrong_head(Schedule& s, Random& random);
bool sinks_counted_again(Schedule& s, Random& random);
bool kind_exchanged(Schedule& s, Random& random);

/// Whether some query of an attend to chosen keys has more keys than it may choose.
bool chooses(const Dataflow& flow, const Action& a);
// What an index chooses.
bool choice_lost(Schedule& s, Random& random);
bool earlier_choice_lost(Schedule& s, Random& random);
bool chosen_positions_shifted(Schedule& s, Random& random);
bool choice_by_another_head(Schedule& s, Random& random);
bool own_block_left_to_chance(Schedule& s, Random& random);
bool candidates_of_one_rank(Schedule& s, Random& random);
bool rows_seen_early(Schedule& s, Random& random);
bool rows_of_later_tokens(Schedule& s, Random& random);
bool gates_as_values(Schedule& s, Random& random);
bool state_dropped(Schedule& s, Random& random);
bool state_of_earlier_token(Schedule& s, Random& random);
bool decay_twice(Schedule& s, Random& random);
bool decay_of_wrong_token(Schedule& s, Random& random);
bool convolution_rows_lost(Schedule& s, Random& random);
bool skip_lost(Schedule& s, Random& random);
bool queries_as_keys(Schedule& s, Random& random);
bool key_head_of_another(Schedule& s, Random& random);
bool betas_of_wrong_head(Schedule& s, Random& random);
bool rolled_back_too_far(Schedule& s, Random& random);
bool window_of_draft_forgotten(Schedule& s, Random& random);
bool state_written_twice(Schedule& s, Random& random);

// Messages.
bool message_dropped(Schedule& s, Random& random);
bool wrong_sender(Schedule& s, Random& random);
bool message_row_offset(Schedule& s, Random& random);
bool message_lands_off(Schedule& s, Random& random);
bool contribution_dropped(Schedule& s, Random& random);
bool contribution_twice(Schedule& s, Random& random);
bool contribution_overwrites(Schedule& s, Random& random);
bool pieces_exchanged(Schedule& s, Random& random);
/// All messages of an op, or all its actions.
bool op_does_nothing(Schedule& s, Random& random);

}  // namespace shardline::mutation
