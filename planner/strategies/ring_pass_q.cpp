// Ring pass-Q (arXiv 2411.01783, Algorithm 3): keys and values stay; queries travel round the ring. A rank
// ends with partial outputs of everyone's queries, which an all-to-all brings home with their log-sum-exps.
// Of windows and chunks of positions a rank attends, and sends home, where the queries reach its keys;
// queries stop where none do any more. Learned sinks join the softmax of a query where its own key is.
#include <array>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

using Pieces = std::vector<std::pair<SlotId, SlotId>>;
// Whether rank k has attended in iteration j.
using Seen = std::function<bool(int, int)>;

// Partial outputs go home: the piece of iteration j travels j ranks back.
OpIndex send_home(ContextStep& s, const Pieces& pieces, const Pieces& home, const Seen& seen) {
  const int n = static_cast<int>(pieces.size());
  const double width = s.heads.q * s.heads.v;
  const long long rows = s.layout.query_message;
  const double bytes = static_cast<double>(rows) * (width * s.act_bytes() + 4.0 * s.heads.q);
  const OpIndex op =
      s.b.exchange("send partial outputs home", Part::exchange, OpKind::all_to_all, s.ring_group(), Bytes(0));
  s.vary([&](int k) {
    int sent = 0;
    for (int j = 1; j < n; ++j) sent += seen(k, j) ? 1 : 0;
    return Shape(ExchangeShape{Bytes(sent * bytes)});
  });
  Dataflow* f = s.flow();
  for (int j = 1; f && j < n; ++j) {
    const auto i = static_cast<std::size_t>(j);
    for (int k = 0; k < s.p.cp; ++k) {
      for (int t = 0; seen(k, j) && t < s.p.tpa; ++t) {
        const int from = s.rank(k, t), to = s.rank(s.behind(k, j), t);
        f->move(op, {from, to, s.whole(pieces[i].first, rows, width), s.whole(home[i].first, rows, width)});
        f->move(op, {from, to, s.whole(pieces[i].second, rows, s.heads.q),
                     s.whole(home[i].second, rows, s.heads.q)});
      }
    }
  }
  return op;
}

}  // namespace

void attend_pass_q(ContextStep& s) {
  const Seen seen = [&](int k, int j) { return s.reaches(s.queries(s.behind(k, j)), s.keys(k)); };
  const std::vector<bool> attends = s.iterations(seen);
  const int n = static_cast<int>(attends.size());
  const double q_width = s.heads.q * s.heads.qk, out_width = s.heads.q * s.heads.v;
  const long long rows = s.layout.query_message;
  const std::array<SlotId, 2> received{s.message("Q received, even", rows, q_width, s.act_bytes()),
                                       s.message("Q received, odd", rows, q_width, s.act_bytes())};
  Pieces pieces, home;
  for (int j = 0; j < n; ++j) {
    pieces.emplace_back(s.message("piece", rows, out_width, s.act_bytes()),
                        s.message("piece lse", rows, s.heads.q, 4));
    home.push_back(j == 0 ? pieces[0]
                          : std::pair(s.message("home", rows, out_width, s.act_bytes()),
                                      s.message("home lse", rows, s.heads.q, 4)));
  }
  s.expand_own();
  OpIndex begin = s.b.previous();
  for (int j = 0; j < n; ++j) {
    const SlotId held = j == 0 ? s.q : received[static_cast<std::size_t>((j - 1) % 2)];
    OpIndex sent = begin;
    if (j + 1 < n) {
      s.b.after({&begin, 1});
      sent =
          s.pass_on("pass Q", held, received[static_cast<std::size_t>(j % 2)], rows, q_width, s.act_bytes());
    }
    const auto i = static_cast<std::size_t>(j);
    if (!attends[i]) {  // these queries go on to ranks whose keys they reach
      begin = s.end_iteration({&sent, 1});
      continue;
    }
    // A decode step is one captured stream: its short messages do not overlap its short kernels (Table 8).
    s.b.after(s.prefill || j + 1 == n ? std::span(&begin, 1) : std::span(&sent, 1));
    const OpIndex computed =
        s.attend("attend", {[&](int k) { return s.behind(k, j); }, [](int k) { return k; }, held, s.kv,
                            pieces[i].first, pieces[i].second, j == 0});
    const OpIndex both[2] = {computed, sent};
    begin = s.end_iteration({both, j + 1 < n ? 2u : 1u});
  }
  s.b.after({&begin, 1});
  if (n > 1) send_home(s, pieces, home, seen);
  s.merge("merge", home, [&](int k, std::size_t i) {
    const int j = static_cast<int>(i);
    return seen(s.behind(k, -j), j);
  });
}

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kRingPassQ), out);
}

// Two messages of queries, and partial outputs of all ranks' queries on both ends.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  const Bytes queries(prefill_rows(c, p) * h.q * h.qk * bytes_per_element(c.precision.activations));
  return 2 * queries + 2.0 * p.cp * partial_output(c, a, p);
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) { verify_in_chunks(trial, trial.base, out); }

constexpr const Option* kOptions[]{&kPrefillChunk};

}  // namespace

const Strategy kRingPassQ{
    .name = "ring_pass_q",
    .summary = "context parallelism: queries travel round a ring",
    .source = "arXiv 2411.01783",
    .prefills = true,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .states = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .prefill_attention = attend_pass_q,
    .pads_queries = true,
    .prefill_buffers = buffers,
    .verify = verify,
};

}  // namespace shardline
