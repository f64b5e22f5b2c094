// Ring pass-KV (arXiv 2411.01783, Algorithm 2): every rank keeps its queries; keys and values travel round
// the ring while each rank attends to those it holds. Partial outputs are merged as they come. Two receive
// buffers; the message that leaves in iteration j overlaps the attention of iteration j.
#include <array>

#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void attend_pass_kv(ContextStep& s) {
  const int n = s.p.cp;
  const double kv_width = s.heads.kv_width(), out_width = s.heads.q * s.heads.v;
  const long long rows = s.layout.key_message;
  const std::array<SlotId, 2> received{s.message("KV received, even", rows, kv_width, s.kv_bytes()),
                                       s.message("KV received, odd", rows, kv_width, s.kv_bytes())};
  const SlotId partial = s.per_query("partial out", out_width, s.act_bytes());
  const SlotId partial_lse = s.per_query("partial lse", s.heads.q, 4);
  OpIndex begin = s.b.previous();
  for (int j = 0; j < n; ++j) {
    const SlotId held = j == 0 ? s.kv : received[static_cast<std::size_t>((j - 1) % 2)];
    OpIndex sent = begin;
    if (j + 1 < n) {
      s.b.after({&begin, 1});
      sent =
          s.pass_on("pass KV", held, received[static_cast<std::size_t>(j % 2)], rows, kv_width, s.kv_bytes());
    }
    // With a cache of earlier turns the first message is awaited before the first kernel starts.
    s.b.after(j == 0 && s.c.persistent_kv ? std::span(&sent, 1) : std::span(&begin, 1));
    OpIndex computed =
        s.attend("attend", {[](int k) { return k; }, [&](int k) { return s.behind(k, j); }, s.q, held,
                            j == 0 ? s.out : partial, j == 0 ? s.out_lse : partial_lse});
    if (j > 0) {
      s.b.after({&computed, 1});
      computed = s.merge("merge", {{s.out, s.out_lse}, {partial, partial_lse}});
    }
    const OpIndex both[2] = {computed, sent};
    begin = s.end_iteration({both, j + 1 < n ? 2u : 1u});
  }
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, StrategyId::ring_pass_kv, out,
                    [](const Case& study, Plan& p) { p.layout = study.layout; });
}

std::optional<std::string> check(const Case&, const Plan&) { return std::nullopt; }

void lower(Schedule& s, const Case& c, const Plan& p) { build_prefill(s, c, p, false, attend_pass_kv); }

}  // namespace

const Strategy kRingPassKv{StrategyId::ring_pass_kv,
                           "ring_pass_kv",
                           "context parallelism: KV travels round a ring",
                           "arXiv 2411.01783",
                           false,
                           true,
                           true,
                           enumerate,
                           check,
                           lower};

}  // namespace shardline
