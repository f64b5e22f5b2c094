// The data flow of linear attention by the delta rule: what its ops read and write on each rank of a stage,
// for the decoding requests of a step or for its prefills.
#pragma once

#include "planner/layers/recurrent.hpp"

namespace shardline {

/// Every method describes the op that was added last; none does anything unless the schedule has a flow.
class RecurrentFlow {
 public:
  /// `prefills` of the step; read where `asked` is prefill.
  RecurrentFlow(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, Asked asked,
                const ContextStep* prefills);
  /// Under context parallelism: what ranks have of their own tokens -> of their own heads, all tokens, in the
  /// order of their positions; and the outputs of states back.
  void to_heads();
  void to_tokens();
  /// What requests keep of earlier rows, and new rows -> convolved rows. Where drafts are verified also the
  /// rows that a token behind any of the new ones reaches back to, which a step keeps to fall back on.
  void convolve();
  /// Convolved rows, decays, betas and the states before them -> the state behind them, where drafts are
  /// verified behind each of them; outputs.
  void recur();
  /// Outputs -> those that enter the output projection; results of the step.
  void gate();
  /// The same where ranks share the one group whose outputs are normed together: outputs -> gated ones and
  /// the sums of their squares; the sums of all ranks; normed ones.
  void gate_squares();
  void sum_squares();
  void norm();

 private:
  struct One {
    std::int32_t request = 0;  // of attention group 0
    std::int64_t first = 0, end = 0;
    std::int64_t row = 0, kept_row = 0, state_row = 0;
    std::int64_t kept(int taps) const { return std::min<std::int64_t>(first, taps - 1); }
    // Rows up to its last one that a token behind any of its new ones reaches back to.
    std::int64_t window(int taps) const { return end - std::max<std::int64_t>(0, first + 2 - taps); }
  };
  // What a rank has of the heads, and where they lie in its rows.
  struct Own {
    std::pair<Count, Count> values, keys;
  };
  Own of_values(std::pair<Count, Count> values) const;
  // Heads that a rank has of its own tokens: those of its TP rank.
  Own of_tokens(int r) const { return of_values(value_heads(a_, p_, r % out_proj_ranks(p_))); }
  bool exchanges() const { return p_.cp > 1; }
  const Tokens& own_tokens(int r) const;
  // f(first row among a rank's own tokens, first row among those of all, their number).
  template <class F>
  void for_each_run(int r, F f) const;
  // A row of a token: its queries, keys and values; what it decays and corrects by.
  struct RowSlots {
    SlotId channels = 0, decays = 0, betas = 0;
  };
  RowSlots row_slots(const char* channels, const char* decays, const char* betas) const;
  void bind_rows(const RowSlots& s, int r, const Own& own, TokensId rows, std::int64_t count);
  Count decay_width() const;
  bool on() const { return b_.flow() != nullptr; }
  template <class F>
  void for_each_rank(F f) const;  // f(rank, attention group, what it has)
  Tokens fresh(int group) const;
  Tokens kept(int group) const;
  Tokens before(int group) const;
  Tokens left(int group) const;    // tokens whose states a step leaves
  Tokens window(int group) const;  // rows that it keeps where drafts are verified
  template <class F>
  Tokens each(int group, F of) const;
  TokensId channel_columns(const Own& own) const;
  // What a rank norms: its own tokens and their outputs.
  struct Normed {
    std::int64_t rows = 0;
    Count columns = 0;
    TokensId tokens, which;
  };
  Normed normed(int r, int group) const;
  Count width(const Own& own) const;
  SlotId slot(const char* name, double bytes) const { return b_.flow()->slot(name, bytes); }

  ScheduleBuilder& b_;
  const Case& c_;
  const Attention& a_;
  const Plan& p_;
  const Asked asked_;
  const ContextStep* const step_;
  std::vector<One> requests_;
  std::int64_t rows_ = 0, kept_rows_ = 0, state_rows_ = 0;
  bool drafted_ = false;  // decoding requests have drafts beside their new token
  RowSlots rows_of_heads_;
  SlotId convolved_ = 0, outputs_ = 0, gated_ = 0, squares_ = 0;
};

}  // namespace shardline
