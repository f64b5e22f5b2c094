#include "planner/layers/recurrent_flow.hpp"

#include <algorithm>
#include <array>

#include "planner/layers/context_step.hpp"
#include "planner/layers/sparse_attention.hpp"

namespace shardline {

namespace {

// Shorter than kernels have it [G9], so that short prompts pass in several chunks.
constexpr int kFlowChunk = 8;
constexpr double kSquareBytes = 4;  // sums of squares are float32

}  // namespace

RecurrentFlow::RecurrentFlow(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                             Asked asked, const ContextStep* prefills)
    : b_(b), c_(c), a_(a), p_(p), asked_(asked), step_(prefills) {
  if (!on()) return;
  const auto add = [&](std::int32_t request, std::int64_t first, std::int64_t end) {
    One one{request, first, end, rows_, kept_rows_, state_rows_};
    rows_ += end - first;
    kept_rows_ += one.kept(state_rule(a).conv);
    state_rows_ += first > 0 ? 1 : 0;
    requests_.push_back(one);
  };
  if (asked == Asked::prefill && (p[kPrefillChunk] > 0 || exchanges())) {
    for (const Interval& i : whole_prompts(*prefills)) add(i.request, i.begin, i.end);
    return;
  }
  // Requests of all attention groups are numbered one after the other, those that decode first.
  const bool decode = asked == Asked::decode;
  drafted_ = decode && p[kDrafts] > 0;
  std::int32_t next = decode ? 0 : p.dp * static_cast<std::int32_t>(decode_requests(c, p));
  for (int copy = 0; copy < p.batch; ++copy) {
    for (const Segment& s : decode ? c.batch.decode : c.batch.prefill) {
      const long long length = (decode ? with_drafts(s, p) : s).length();
      for (int i = 0; i < s.count; ++i) add(next++, s.cached, length);
    }
  }
}

template <class F>
void RecurrentFlow::for_each_rank(F f) const {
  for (int r = 0; r < p_.dp * p_.group(); ++r) f(r, r / p_.group(), of_values(state_heads(a_, p_, r)));
}

RecurrentFlow::Own RecurrentFlow::of_values(std::pair<Count, Count> values) const {
  return {values, key_heads_of(state_rule(a_), values)};
}

const Tokens& RecurrentFlow::own_tokens(int r) const {
  return step_->layout.fresh[static_cast<std::size_t>(r / p_.tpa)];
}

template <class F>
void RecurrentFlow::for_each_run(int r, F f) const {
  std::int64_t row = 0;
  for (const Interval& i : own_tokens(r)) {
    const auto one = std::find_if(requests_.begin(), requests_.end(),
                                  [&](const One& o) { return o.request == i.request; });
    for (std::int64_t n = 0; i.stride > 1 && n < i.size(); ++n)
      f(row + n, one->row + i.position(n) - one->first, std::int64_t{1});
    if (i.stride == 1 && i.size() > 0) f(row, one->row + i.begin - one->first, i.size());
    row += i.size();
  }
}

Count RecurrentFlow::decay_width() const {
  const DeltaRule d = state_rule(a_);
  return d.channel_decay ? d.key_dim : 1;
}

RecurrentFlow::RowSlots RecurrentFlow::row_slots(const char* channels, const char* decays,
                                                 const char* betas) const {
  const double act = bytes_per_element(c_.precision.activations);
  return {slot(channels, act), slot(decays, 4), slot(betas, act)};
}

// Rows of tokens with these heads, as projected.
void RecurrentFlow::bind_rows(const RowSlots& s, int r, const Own& own, TokensId rows, std::int64_t count) {
  Dataflow& f = *b_.flow();
  const int kind = attention_index(c_.model, a_);
  const auto [first, end] = own.values;
  const Count decay = decay_width();
  f.size(s.channels, r, count, width(own));
  f.size(s.decays, r, count, (end - first) * decay);
  f.size(s.betas, r, count, end - first);
  f.inputs.push_back({s.channels, r, Whole::channels, rows, channel_columns(own), kind});
  f.inputs.push_back({s.decays, r, Whole::decay, rows, f.range(first * decay, end * decay), kind});
  f.inputs.push_back({s.betas, r, Whole::beta, rows, f.range(first, end), kind});
}

void RecurrentFlow::to_heads() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const DeltaRule d = state_rule(a_);
  const Count decay = decay_width();
  const RowSlots own_rows =
      row_slots("channels of own tokens", "decays of own tokens", "betas of own tokens");
  rows_of_heads_ = row_slots("channels", "decays", "betas");
  for_each_rank([&](int r, int, const Own& own) {
    bind_rows(own_rows, r, of_tokens(r), f.tokens(own_tokens(r)), rows(own_tokens(r)));
    f.size(rows_of_heads_.channels, r, rows_, width(own));
    f.size(rows_of_heads_.decays, r, rows_, (own.values.second - own.values.first) * decay);
    f.size(rows_of_heads_.betas, r, rows_, own.values.second - own.values.first);
  });
  for_each_rank([&](int r, int, const Own&) {
    const Own here = of_tokens(r);
    const Count keys = here.keys.second - here.keys.first;
    for (int k = 0; k < p_.cp; ++k) {
      const int to = k * p_.tpa + r % p_.tpa;
      const Own there = of_values(state_heads(a_, p_, to));
      const Count new_keys = there.keys.second - there.keys.first,
                  values = there.values.second - there.values.first;
      const Count key = there.keys.first - here.keys.first, value = there.values.first - here.values.first;
      for_each_run(r, [&](std::int64_t row, std::int64_t target, std::int64_t n) {
        const auto move = [&](SlotId from, SlotId into, Count column, Count at, Count columns) {
          f.move(b_.previous(), {r, to, {from, row, n, column, columns}, {into, target, n, at, columns}});
        };
        const auto part = [&](Count column, Count at, Count columns) {
          move(own_rows.channels, rows_of_heads_.channels, column, at, columns);
        };
        part(key * d.key_dim, 0, new_keys * d.key_dim);
        part((keys + key) * d.key_dim, new_keys * d.key_dim, new_keys * d.key_dim);
        part(2 * keys * d.key_dim + value * d.value_dim, 2 * new_keys * d.key_dim, values * d.value_dim);
        move(own_rows.decays, rows_of_heads_.decays, value * decay, 0, values * decay);
        move(own_rows.betas, rows_of_heads_.betas, value, 0, values);
      });
    }
  });
}

void RecurrentFlow::to_tokens() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const Count dim = state_rule(a_).value_dim;
  const SlotId own_rows = slot("outputs of own tokens", bytes_per_element(c_.precision.activations));
  for_each_rank([&](int r, int, const Own&) {
    const Own here = of_tokens(r);
    f.size(own_rows, r, rows(own_tokens(r)), (here.values.second - here.values.first) * dim);
    for (int k = 0; k < p_.cp; ++k) {
      const int from = k * p_.tpa + r % p_.tpa;
      const auto [first, end] = state_heads(a_, p_, from);
      const Count column = (first - here.values.first) * dim, columns = (end - first) * dim;
      for_each_run(r, [&](std::int64_t row, std::int64_t source, std::int64_t n) {
        f.move(b_.previous(),
               {from, r, {outputs_, source, n, 0, columns}, {own_rows, row, n, column, columns}});
      });
    }
  });
  outputs_ = own_rows;
}

// of(one) of each request: positions [first, second) of it.
template <class F>
Tokens RecurrentFlow::each(int group, F of) const {
  const auto all = static_cast<std::int32_t>(requests_.size());
  Tokens list;
  for (const One& one : requests_) {
    const auto [first, end] = of(one);
    if (first < end) list.push_back({group * all + one.request, first, end});
  }
  return list;
}

Tokens RecurrentFlow::fresh(int group) const {
  return each(group, [](const One& one) { return std::pair(one.first, one.end); });
}
Tokens RecurrentFlow::kept(int group) const {
  return each(
      group, [&](const One& one) { return std::pair(one.first - one.kept(state_rule(a_).conv), one.first); });
}
Tokens RecurrentFlow::before(int group) const {
  return each(group,
              [](const One& one) { return std::pair(std::max<std::int64_t>(0, one.first - 1), one.first); });
}
Tokens RecurrentFlow::left(int group) const {
  return each(group, [&](const One& one) { return std::pair(drafted_ ? one.first : one.end - 1, one.end); });
}
Tokens RecurrentFlow::window(int group) const {
  return each(group,
              [&](const One& one) { return std::pair(one.end - one.window(state_rule(a_).conv), one.end); });
}

// Its heads' queries, keys and values among those of all.
TokensId RecurrentFlow::channel_columns(const Own& own) const {
  const DeltaRule d = state_rule(a_);
  const Count keys = Count{d.key_heads} * d.key_dim;
  const auto part = [](Count first, Count begin, Count end, Count dim) {
    return Interval{0, first + begin * dim, first + end * dim};
  };
  const Interval columns[] = {part(0, own.keys.first, own.keys.second, d.key_dim),
                              part(keys, own.keys.first, own.keys.second, d.key_dim),
                              part(2 * keys, own.values.first, own.values.second, d.value_dim)};
  return b_.flow()->tokens(columns);
}

Count RecurrentFlow::width(const Own& own) const {
  const DeltaRule d = state_rule(a_);
  return 2 * (own.keys.second - own.keys.first) * d.key_dim +
         (own.values.second - own.values.first) * d.value_dim;
}

void RecurrentFlow::convolve() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const double act = bytes_per_element(c_.precision.activations);
  const int kind = attention_index(c_.model, a_), taps = state_rule(a_).conv;
  const SlotId kept_rows = slot("kept channels", act), weight = slot("W convolution", act);
  if (!exchanges()) rows_of_heads_ = row_slots("channels", "decays", "betas");
  const SlotId rows = rows_of_heads_.channels;
  convolved_ = slot("convolved channels", act);
  Action action;
  action.function = Function::convolve;
  const SlotId windows = drafted_ ? slot("channels to fall back to", act) : SlotId(0);
  std::int64_t window_rows = 0;
  for (const One& one : requests_) window_rows += drafted_ ? one.window(taps) : 0;
  for_each_rank([&](int r, int group, const Own& own) {
    const Count columns = width(own);
    const TokensId which = channel_columns(own);
    f.size(kept_rows, r, kept_rows_, columns);
    if (!exchanges()) bind_rows(rows_of_heads_, r, own, f.tokens(fresh(group)), rows_);
    f.size(weight, r, taps, columns);
    f.size(convolved_, r, rows_, columns);
    f.inputs.push_back({kept_rows, r, Whole::channels, f.tokens(kept(group)), which, kind});
    f.inputs.push_back({weight, r, Whole::conv_weight, f.range(0, taps), which, kind});
    if (drafted_) {
      f.size(windows, r, window_rows, columns);
      f.outputs.push_back({windows, r, Whole::channels, f.tokens(window(group)), which, kind});
    }
    action.rank = r;
    std::int64_t at = 0;
    for (const One& one : requests_) {
      const std::int64_t n = one.end - one.first, behind = one.window(taps);
      std::vector<Region> regions{{kept_rows, one.kept_row, one.kept(taps), 0, columns},
                                  {rows, one.row, n, 0, columns},
                                  {weight, 0, taps, 0, columns},
                                  {convolved_, one.row, n, 0, columns}};
      if (drafted_) regions.push_back({windows, at, behind, 0, columns});
      at += behind;
      f.act(b_.previous(), action, regions);
    }
  });
}

void RecurrentFlow::recur() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const DeltaRule d = state_rule(a_);
  const double act = bytes_per_element(c_.precision.activations), number = bytes_per_element(d.state);
  const int kind = attention_index(c_.model, a_);
  const SlotId decays = rows_of_heads_.decays, betas = rows_of_heads_.betas,
               old = slot("states before", number), states = slot("states", number),
               skip = a_.mamba ? slot("W skip", 4) : SlotId(0);
  outputs_ = slot("outputs of states", act);
  const Count matrix = Count{d.key_dim} * d.value_dim, each = d.value_heads / d.key_heads;
  const Count decay = decay_width();
  Action action;
  action.function = a_.mamba ? Function::state_space : Function::delta_rule;
  action.qk_dim = d.key_dim;
  action.v_dim = d.value_dim;
  action.chunk = asked_ == Asked::prefill ? kFlowChunk : 1;
  const std::int64_t all = drafted_ ? rows_ : static_cast<std::int64_t>(requests_.size());
  for_each_rank([&](int r, int group, const Own& own) {
    const Count first = own.values.first, end = own.values.second;
    const Count heads = end - first, keys = own.keys.second - own.keys.first;
    const auto input = [&](SlotId s, Whole whole, TokensId list, std::int64_t count, Count per_head) {
      f.size(s, r, count, heads * per_head);
      f.inputs.push_back({s, r, whole, list, f.range(first * per_head, end * per_head), kind});
    };
    input(old, Whole::state, f.tokens(before(group)), state_rows_, matrix);
    if (a_.mamba) input(skip, Whole::skip, f.range(0, 1), 1, 1);
    f.size(states, r, all, heads * matrix);
    f.outputs.push_back(
        {states, r, Whole::state, f.tokens(left(group)), f.range(first * matrix, end * matrix), kind});
    f.size(outputs_, r, rows_, heads * d.value_dim);
    action.rank = r;
    for (Count k = own.keys.first; k < own.keys.second; ++k) {
      // Of the rank's value heads those that this key head is of.
      const Count from = std::max(first, k * each) - first, to = std::min(end, (k + 1) * each) - first;
      const Count at = (k - own.keys.first) * d.key_dim, n = to - from;
      action.heads = static_cast<int>(n);
      std::int64_t index = 0;
      for (const One& one : requests_) {
        const std::int64_t count = one.end - one.first;
        std::vector<Region> regions{
            {convolved_, one.row, count, at, d.key_dim},
            {convolved_, one.row, count, keys * d.key_dim + at, d.key_dim},
            {convolved_, one.row, count, 2 * keys * d.key_dim + from * d.value_dim, n * d.value_dim},
            {decays, one.row, count, from * decay, n * decay},
            {betas, one.row, count, from, n},
            {old, one.state_row, one.first > 0 ? 1 : 0, from * matrix, n * matrix}};
        if (a_.mamba) regions.push_back({skip, 0, 1, from, n});
        const std::int64_t behind = drafted_ ? count : 1;
        regions.push_back({states, index, behind, from * matrix, n * matrix});
        index += behind;
        regions.push_back({outputs_, one.row, count, from * d.value_dim, n * d.value_dim});
        f.act(b_.previous(), action, regions);
      }
    }
  });
}

RecurrentFlow::Normed RecurrentFlow::normed(int r, int group) const {
  Dataflow& f = *b_.flow();
  const Own own = of_tokens(r);
  const Count dim = state_rule(a_).value_dim;
  return {exchanges() ? shardline::rows(own_tokens(r)) : rows_, (own.values.second - own.values.first) * dim,
          exchanges() ? f.tokens(own_tokens(r)) : f.tokens(fresh(group)),
          f.range(own.values.first * dim, own.values.second * dim)};
}

void RecurrentFlow::gate() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const DeltaRule d = state_rule(a_);
  const double act = bytes_per_element(c_.precision.activations);
  const int kind = attention_index(c_.model, a_);
  const SlotId gates = slot("gates", act), result = slot("gated outputs", act);
  Action action;
  action.function = Function::gated_norm;
  // Mamba-2 norms the heads of a group together, gated before.
  action.gate_first = a_.mamba.has_value();
  action.v_dim = d.value_dim * (a_.mamba ? d.value_heads / d.key_heads : 1);
  action.logistic = d.channel_decay;
  for_each_rank([&](int r, int group, const Own&) {
    const auto [n, columns, rows, which] = normed(r, group);
    f.size(gates, r, n, columns);
    f.size(result, r, n, columns);
    f.inputs.push_back({gates, r, Whole::gate, rows, which, kind});
    f.outputs.push_back({result, r, Whole::attention_output, rows, which, kind});
    action.rank = r;
    action.heads = static_cast<int>(columns / d.value_dim);
    if (columns == 0 || n == 0) return;
    f.act(b_.previous(), action,
          std::array{Region{outputs_, 0, n, 0, columns}, Region{gates, 0, n, 0, columns},
                     Region{result, 0, n, 0, columns}});
  });
}

void RecurrentFlow::gate_squares() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const double act = bytes_per_element(c_.precision.activations);
  const int kind = attention_index(c_.model, a_);
  const SlotId gates = slot("gates", act);
  gated_ = slot("gated outputs", act), squares_ = slot("sums of squares", kSquareBytes);
  Action action;
  action.function = Function::gated_squares;
  for_each_rank([&](int r, int group, const Own&) {
    const auto [n, columns, rows, which] = normed(r, group);
    f.size(gates, r, n, columns);
    f.size(gated_, r, n, columns);
    f.size(squares_, r, n, 1);
    f.inputs.push_back({gates, r, Whole::gate, rows, which, kind});
    action.rank = r;
    if (n == 0) return;
    f.act(b_.previous(), action,
          std::array{Region{outputs_, 0, n, 0, columns}, Region{gates, 0, n, 0, columns},
                     Region{gated_, 0, n, 0, columns}, Region{squares_, 0, n, 0, 1}});
  });
}

void RecurrentFlow::sum_squares() {
  if (!on()) return;
  const int ranks = out_proj_ranks(p_);
  for_each_rank([&](int r, int group, const Own&) {
    const Region all{squares_, 0, normed(r, group).rows, 0, 1};
    const int first = r / ranks * ranks;
    for (int to = first; to < first + ranks && all.rows > 0; ++to)
      if (to != r) b_.flow()->move(b_.previous(), {r, to, all, all, true});
  });
}

void RecurrentFlow::norm() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const DeltaRule d = state_rule(a_);
  const int kind = attention_index(c_.model, a_);
  const SlotId result = slot("normed outputs", bytes_per_element(c_.precision.activations));
  Action action;
  action.function = Function::norm_by_squares;
  action.v_dim = d.value_heads * d.value_dim;  // of all ranks
  for_each_rank([&](int r, int group, const Own&) {
    const auto [n, columns, rows, which] = normed(r, group);
    f.size(result, r, n, columns);
    f.outputs.push_back({result, r, Whole::attention_output, rows, which, kind});
    action.rank = r;
    if (n == 0) return;
    f.act(b_.previous(), action,
          std::array{Region{gated_, 0, n, 0, columns}, Region{squares_, 0, n, 0, 1},
                     Region{result, 0, n, 0, columns}});
  });
}

}  // namespace shardline
