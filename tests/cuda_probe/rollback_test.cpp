// [P29] Drafts over layers with a state: whichever prefix is accepted, a request goes on from the state and
// the rows of the convolution that verification left behind it as if each token had come alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/recurrent_reference.hpp"

namespace shardline {
namespace {

constexpr double kExact = 1e-12;

View<double> all_of(Matrix<double>& m) { return m.block(0, 0, m.rows(), m.cols()); }

// What is known behind a token: of its request's value heads the states, and the rows that a convolution
// behind it reaches back to.
struct Behind {
  Matrix<double> states, rows;
};

// New tokens as projected, of all heads.
struct Fresh {
  Matrix<double> channels, decays, betas;
};

Fresh fresh(const Tensors<double>& t, Eigen::Index first, Eigen::Index n) {
  return {t[Whole::channels].middleRows(first, n), t[Whole::decay].middleRows(first, n),
          t[Whole::beta].middleRows(first, n)};
}

struct Left {
  Matrix<double> outputs;  // [n, value heads x width]
  Matrix<double> states;   // behind each token
  Matrix<double> windows;  // rows up to the last token that a token behind any of them reaches back to
};

// One key head's value heads over convolved rows.
void recur(const RecurrenceDefinition& d, const Tensors<double>& t, const Fresh& x,
           const Matrix<double>& rows, const Behind& behind, int key_head, Left& out) {
  const Eigen::Index n = rows.rows(), keys = Eigen::Index{d.key_heads} * d.key_dim,
                     at = Eigen::Index{key_head} * d.key_dim, each = d.value_heads / d.key_heads,
                     head = Eigen::Index{key_head} * each, decay = d.channel_decay ? d.key_dim : 1,
                     matrix = each * d.key_dim * d.value_dim;
  Matrix<double> q = rows.middleCols(at, d.key_dim), k = rows.middleCols(keys + at, d.key_dim),
                 v = rows.middleCols(2 * keys + head * d.value_dim, each * d.value_dim),
                 g = x.decays.middleCols(head * decay, each * decay), b = x.betas.middleCols(head, each),
                 before = behind.states.middleCols(key_head * matrix, matrix), after(n, matrix),
                 result(n, each * d.value_dim), skip;
  std::vector<View<double>> views{all_of(q), all_of(k), all_of(v), all_of(g), all_of(b), all_of(before)};
  if (d.added) {
    skip = t[Whole::skip].middleCols(head, each);
    views.push_back(all_of(skip));
  }
  views.push_back(all_of(after));
  views.push_back(all_of(result));
  Action a;
  a.function = d.added ? Function::state_space : Function::delta_rule;
  a.heads = static_cast<int>(each);
  a.qk_dim = d.key_dim;
  a.v_dim = d.value_dim;
  a.chunk = 1;
  EXPECT_EQ(wrong_shape<double>(a, {}, {}, views), "");
  d.added ? state_space<double>(a, views) : delta_rule<double>(a, views);
  out.states.middleCols(key_head * matrix, matrix) = after;
  out.outputs.middleCols(head * d.value_dim, each * d.value_dim) = result;
}

// A step of a request over `x` behind what it knows, as kernels that verify drafts leave it.
Left verified(const RecurrenceDefinition& d, const Tensors<double>& t, const Fresh& x, const Behind& behind) {
  const Eigen::Index n = x.channels.rows();
  // A token behind the first of these reaches back to all kept rows but, where there are as many as it can
  // reach, the oldest.
  const Eigen::Index window = n + std::min<Eigen::Index>(behind.rows.rows(), std::max(0, d.taps - 2));
  Matrix<double> kept = behind.rows, rows = x.channels, weight = t[Whole::conv_weight], out(n, rows.cols());
  Left left{Matrix<double>(n, Eigen::Index{d.value_heads} * d.value_dim),
            Matrix<double>(n, Eigen::Index{d.value_heads} * d.key_dim * d.value_dim),
            Matrix<double>(d.taps > 1 ? window : 0, rows.cols())};
  std::vector<View<double>> v{all_of(kept), all_of(rows), all_of(weight), all_of(out), all_of(left.windows)};
  Action a;
  a.function = Function::convolve;
  EXPECT_EQ(wrong_shape<double>(a, {}, {}, v), "");
  convolve<double>(v);
  for (int head = 0; head < d.key_heads; ++head) recur(d, t, x, out, behind, head, left);
  return left;
}

// Ways to roll back wrongly.
struct Fault {
  const char* name = "";
  int state = 0;       // tokens too many (1) or too few (-1) that the state has seen
  int window = 0;      // the same of the rows of the convolution
  bool twice = false;  // the last accepted token updates the state once more
};

// Behind the first `accepted` drafts, beside the token before them.
Behind rolled_back(const RecurrenceDefinition& d, const Tensors<double>& t, const Fresh& x, const Left& left,
                   Eigen::Index accepted, const Fault& fault) {
  Behind out;
  out.states = left.states.row(accepted + fault.state);
  if (d.taps > 1) {
    const Eigen::Index end = left.windows.rows() - (x.channels.rows() - 1 - accepted) + fault.window,
                       count = std::min<Eigen::Index>(end, d.taps - 1);
    out.rows = left.windows.middleRows(end - count, count);
  } else {
    out.rows.resize(0, left.windows.cols());
  }
  if (!fault.twice) return out;
  const Fresh last{x.channels.row(accepted), x.decays.row(accepted), x.betas.row(accepted)};
  Behind again = out;
  // Its own row of the convolution is the newest of those that are kept.
  again.rows = out.rows.topRows(std::max<Eigen::Index>(0, out.rows.rows() - 1));
  out.states = verified(d, t, last, again).states;
  return out;
}

double difference(const Matrix<double>& a, const Matrix<double>& b) {
  return (a - b).cwiseAbs().maxCoeff() / std::max(1e-3, b.cwiseAbs().maxCoeff());
}

// The largest difference of the states and outputs of all tokens behind a verification from those of tokens
// that come alone; `first`: the token beside which `drafts` are verified, of which `accepted` are the
// request's own.
double error(const RecurrenceDefinition& d, const Tensors<double>& t, const Matrix<double>& outputs,
             Eigen::Index first, Eigen::Index drafts, Eigen::Index accepted, const Fault& fault) {
  const Eigen::Index tokens = t[Whole::channels].rows(), before = std::min<Eigen::Index>(first, d.taps - 1);
  Behind behind{t[Whole::state].middleRows(first > 0 ? first - 1 : 0, first > 0 ? 1 : 0),
                t[Whole::channels].middleRows(first - before, before)};
  Fresh x = fresh(t, first, 1 + drafts);
  for (Eigen::Index i = accepted + 1; i <= drafts; ++i) {  // rejected: other tokens than the request's own
    x.channels.row(i) = (3 - x.channels.row(i).array()).matrix();
    x.betas.row(i) = (1 - x.betas.row(i).array()).matrix();
  }
  const Left left = verified(d, t, x, behind);
  double worst =
      difference(left.states.topRows(1 + accepted), t[Whole::state].middleRows(first, 1 + accepted));
  worst = std::max(worst,
                   difference(left.outputs.topRows(1 + accepted), outputs.middleRows(first, 1 + accepted)));
  behind = rolled_back(d, t, x, left, accepted, fault);
  for (Eigen::Index at = first + accepted + 1; at < tokens; ++at) {
    const Fresh one = fresh(t, at, 1);
    const Left next = verified(d, t, one, behind);
    worst = std::max(worst, difference(next.states, t[Whole::state].row(at)));
    worst = std::max(worst, difference(next.outputs, outputs.row(at)));
    behind = rolled_back(d, t, one, next, 0, {});
  }
  return worst;
}

struct Drawn {
  RecurrenceDefinition d;
  Tensors<double> t;
  Matrix<double> outputs;  // of all tokens, one after the other
};

constexpr Eigen::Index kFirst = 6, kDrafts = 3, kTokens = kFirst + kDrafts + 5;

Drawn drawn(bool channel_decay, bool added, int taps, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Drawn out{{2, channel_decay ? 2 : 4, 2 + static_cast<int>(random() % 4), 1 + static_cast<int>(random() % 4),
             taps, channel_decay, added},
            {},
            {}};
  out.t.first_row = {0, kTokens};
  set_recurrence(out.d, random(), out.t);
  const Behind nothing{Matrix<double>(0, out.t[Whole::state].cols()),
                       Matrix<double>(0, out.t[Whole::channels].cols())};
  out.outputs = verified(out.d, out.t, fresh(out.t, 0, kTokens), nothing).outputs;
  return out;
}

template <class F>
void for_each_rule(F f) {
  for (const int taps : {1, 2, 4}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      f("gated DeltaNet", drawn(false, false, taps, seed));
      f("KDA", drawn(true, false, taps, seed));
      f("Mamba-2", drawn(false, true, taps, seed));
    }
  }
}

TEST(Rollback, P29AnyAcceptedPrefixGoesOnAsTokensThatComeAlone) {
  for_each_rule([](const char* rule, const Drawn& x) {
    for (const Eigen::Index first : {Eigen::Index{0}, Eigen::Index{1}, kFirst}) {
      for (Eigen::Index accepted = 0; accepted <= kDrafts; ++accepted)
        EXPECT_LT(error(x.d, x.t, x.outputs, first, kDrafts, accepted, {}), kExact)
            << rule << ", " << x.d.taps << " taps, token " << first << ", " << accepted << " accepted";
    }
  });
}

TEST(Rollback, P29EachWrongWayBackIsSeen) {
  const Fault faults[] = {{"a token too few", -1, 0, false},
                          {"a token too many", 1, 0, false},
                          {"rows of the convolution too old", 0, -1, false},
                          {"rows of a rejected draft", 0, 1, false},
                          {"a token written twice", 0, 0, true}};
  for_each_rule([&](const char* rule, const Drawn& x) {
    for (const Fault& fault : faults) {
      if (fault.window != 0 && x.d.taps == 1) continue;  // a convolution that reaches back to nothing
      for (const Eigen::Index accepted : {1, 2})
        EXPECT_GT(error(x.d, x.t, x.outputs, kFirst, kDrafts, accepted, fault), 1e-6)
            << rule << ", " << x.d.taps << " taps, " << accepted << " accepted: " << fault.name;
    }
  });
}

}  // namespace
}  // namespace shardline
