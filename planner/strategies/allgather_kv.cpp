// All-gather pass-KV, as in Llama 3's training (arXiv 2407.21783, section 3.3.2): every rank gathers all keys
// and values, then attends once. Nothing overlaps; every rank needs room for the whole KV of a layer.
#include "planner/strategies/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void attention(ContextStep& s) {
  const int n = s.p.cp;
  const double width = s.heads.kv_width();
  const long long rows = s.layout.key_message;
  const SlotId all = s.message("all KV", rows * n, width, s.kv_bytes());
  const OpIndex op = s.b.exchange("gather KV", Part::exchange, OpKind::all_gather, {n, s.p.tpa},
                                  Bytes(static_cast<double>(rows) * width * s.kv_bytes()));
  for (int k = 0; s.flow() && k < n; ++k) {
    for (int to = 0; to < n; ++to) {
      Region target = s.whole(all, rows, width);
      target.row = k * rows;
      for (int t = 0; t < s.p.tpa; ++t)
        s.flow()->move(op, {s.rank(k, t), s.rank(to, t), s.whole(s.kv, rows, width), target});
    }
  }
  Tokens keys;
  for (int k = 0; k < n; ++k) keys.insert(keys.end(), s.keys(k).begin(), s.keys(k).end());
  const OpIndex computed = s.attend_lists(
      "attend", [&](int k) -> const Tokens& { return s.queries(k); },
      [&](int) -> const Tokens& { return keys; }, s.heads,
      [&](int k) {
        return std::vector<Region>{
            s.all_queries(s.q, k, s.heads.q * s.heads.qk), s.whole(all, rows * n, width),
            s.all_queries(s.out, k, s.heads.q * s.heads.v), s.all_queries(s.out_lse, k, s.heads.q)};
      });
  s.end_iteration({&computed, 1});
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, StrategyId::allgather_kv, out);
}

std::optional<std::string> check(const Case&, const Plan&) { return std::nullopt; }

void lower(Schedule& s, const Case& c, const Plan& p) { build_prefill(s, c, p, false, attention); }

}  // namespace

const Strategy kAllgatherKv{StrategyId::allgather_kv,
                            "allgather_kv",
                            "context parallelism: KV gathered, then one attention",
                            "arXiv 2407.21783",
                            false,
                            true,
                            true,
                            enumerate,
                            check,
                            lower};

}  // namespace shardline
