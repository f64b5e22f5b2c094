// APB (arXiv 2502.12085): every host but the first puts an anchor, the first tokens of the document behind
// those of the query, in front of its block. Retaining heads (a small MLP) score each local token; the KV of
// the best goes to all hosts, and those after the sender attend to it. What was passed is dropped before the
// FFN. APPROXIMATE: a host sees only the anchor and the passed tokens of earlier blocks. Ignored: the query's
// own pass over all caches, which follows.
#include <algorithm>
#include <array>

#include "planner/layers/host_blocks.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr OptionOf<int> kRetaining({
    .key = "retaining",
    .help = "inner width of the heads that score tokens",
    .most = 65536,
    .decodes = false,
});
constexpr const Option* kOptions[]{&kAnchor, &kPassing, &kQuery, &kRetaining};

// Slots of the retaining heads.
struct Retaining {
  SlotId w_query, w_kv, w_down, from_query, inner, scores, kept;
};

class Passing {
 public:
  explicit Passing(ContextStep& s)
      : s_(s),
        requests_(s.layout.requests / 2),
        q_width_(s.heads.q * s.heads.qk),
        kv_width_(s.heads.kv_width()),
        width_(s.p[kRetaining]) {
    if (s.flow()) declare();
  }

  void run() {
    score();
    compress();
    gather();
    const OpIndex computed = attend_blocks(s_);
    s_.end_iteration({&computed, 1});
  }

 private:
  long long local_rows(int host) const { return rows(s_.queries(host)) - first_local_query(s_, host); }
  long long block_rows(int host, int r) const {
    return s_.layout.fresh_count[static_cast<std::size_t>(host * s_.layout.requests + requests_ + r)];
  }
  static Region region(SlotId slot, long long row, long long count, double columns) {
    return {slot, row, count, 0, static_cast<std::int64_t>(columns)};
  }

  void declare() {
    Dataflow& f = *s_.flow();
    const double act = s_.act_bytes();
    const auto local = [&](int host) { return local_rows(host); };
    slots_.w_query = s_.message("W retain, query", static_cast<long long>(q_width_), width_, act);
    slots_.w_kv = s_.message("W retain, kv", static_cast<long long>(kv_width_), width_, act);
    slots_.w_down = s_.message("W retain, down", s_.p[kRetaining], s_.heads.kv, act);
    slots_.from_query = s_.uneven("retaining, of query", local, width_, act);
    slots_.inner = s_.uneven("retaining inner", local, width_, act);
    slots_.scores = s_.uneven("scores", local, s_.heads.kv, 4);
    slots_.kept =
        s_.message("kept kv", static_cast<long long>(requests_) * s_.p[kPassing], kv_width_, s_.kv_bytes());
    const LocalHeads& h = s_.heads;
    const std::int64_t all_queries = static_cast<std::int64_t>(s_.a.q_heads) * h.qk;
    const TokensId inner = f.range(0, s_.p[kRetaining]);
    for (int k = 0; k < s_.p.cp; ++k) {
      for (int t = 0; t < s_.p.tpa; ++t) {
        const std::int64_t q = s_.first_q(t) * h.qk, g = s_.first_kv(t), kv = all_queries + g * (h.qk + h.v);
        const auto q_end = static_cast<std::int64_t>(static_cast<double>(q) + q_width_);
        const auto kv_end = static_cast<std::int64_t>(static_cast<double>(kv) + kv_width_);
        f.inputs.push_back(
            {slots_.w_query, s_.rank(k, t), Whole::retaining_up_weight, f.range(q, q_end), inner, s_.kind()});
        f.inputs.push_back(
            {slots_.w_kv, s_.rank(k, t), Whole::retaining_up_weight, f.range(kv, kv_end), inner, s_.kind()});
        f.inputs.push_back({slots_.w_down, s_.rank(k, t), Whole::retaining_down_weight, inner,
                            f.range(g, g + h.kv), s_.kind()});
      }
    }
  }

  // The same action on all TP ranks of a host.
  void act(OpIndex op, int host, Function function, std::span<const Region> regions) {
    Action a;
    a.function = function;
    a.kv_heads = s_.heads.kv;
    a.qk_dim = s_.heads.qk;
    a.v_dim = s_.heads.v;
    for (int t = 0; t < s_.p.tpa; ++t) {
      a.rank = s_.rank(host, t);
      s_.flow()->act(op, a, regions);
    }
  }

  OpIndex gemm(const char* name, double k, double n) {
    const ModuleType type = s_.c.precision.of(Module::attention);
    const OpIndex op = s_.b.gemm(name, Part::attention, type.weights, type.math, GemmShape{});
    s_.vary([&](int host) { return Shape(GemmShape{local_rows(host), count_of(k), count_of(n)}); });
    return op;
  }

  // The first matrix is split by rows over TP, as its input is.
  void score() {
    const Bytes copies = s_.c.system.runtime.retaining_traffic;
    if (copies > Bytes(0)) {
      s_.b.elementwise("retaining input", Part::attention, OpKind::elementwise, {}, 1);
      s_.vary([&](int host) {
        const Count n = local_rows(host);
        return Shape(ElementwiseShape{n, count_of(q_width_ + kv_width_), static_cast<double>(n) * copies});
      });
    }
    const OpIndex up = gemm("retaining up", q_width_ + kv_width_, width_);
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      const long long n = local_rows(k);
      const Region from_query = region(slots_.from_query, 0, n, width_),
                   inner = region(slots_.inner, 0, n, width_);
      act(up, k, Function::gemm,
          std::array{region(s_.q, first_local_query(s_, k), n, q_width_),
                     s_.whole(slots_.w_query, static_cast<long long>(q_width_), width_), from_query});
      long long row = 0;
      for (int r = 0; r < requests_; ++r) {
        const long long count = block_rows(k, r);
        act(up, k, Function::gemm,
            std::array{region(s_.kv, first_local_key(s_, r), count, kv_width_),
                       s_.whole(slots_.w_kv, static_cast<long long>(kv_width_), width_),
                       region(slots_.inner, row, count, width_)});
        row += count;
      }
      act(up, k, Function::add, std::array{from_query, inner, inner});
    }
    sum_over_tp();
    const OpIndex active =
        s_.b.elementwise("retaining activation", Part::attention, OpKind::elementwise, {}, 1);
    s_.vary([&](int host) {
      const auto n = static_cast<double>(local_rows(host));
      return Shape(ElementwiseShape{count_of(n), count_of(width_), Bytes(2 * n * width_ * s_.act_bytes())});
    });
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      const Region inner = region(slots_.inner, 0, local_rows(k), width_);
      act(active, k, Function::silu, std::array{inner, inner});
    }
    const OpIndex down = gemm("retaining down", width_, s_.heads.kv);
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      act(down, k, Function::gemm,
          std::array{region(slots_.inner, 0, local_rows(k), width_),
                     s_.whole(slots_.w_down, s_.p[kRetaining], s_.heads.kv),
                     region(slots_.scores, 0, local_rows(k), s_.heads.kv)});
    }
  }

  void sum_over_tp() {
    const int n = s_.p.tpa;
    if (n == 1) return;
    const OpIndex op =
        s_.b.exchange("retaining all-reduce", Part::exchange, OpKind::all_reduce, {n, 1}, Bytes(0));
    s_.vary([&](int k) {
      return Shape(ExchangeShape{Bytes(static_cast<double>(local_rows(k)) * width_ * s_.act_bytes())});
    });
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      const Region all = region(slots_.inner, 0, local_rows(k), width_);
      for (int from = 0; from < n; ++from) {
        for (int to = 0; to < n; ++to) {
          if (from != to) s_.flow()->move(op, {s_.rank(k, from), s_.rank(k, to), all, all, true});
        }
      }
    }
  }

  // Scores are read once and what is kept is read and written.
  void compress() {
    const OpIndex op = s_.b.elementwise("compress", Part::exchange, OpKind::compress, {}, 1);
    const double kept = static_cast<double>(requests_) * s_.p[kPassing];
    s_.vary([&](int host) {
      const auto n = static_cast<double>(local_rows(host));
      return Shape(
          ElementwiseShape{count_of(n), count_of(kv_width_),
                           Bytes(s_.heads.kv * 4.0 * (n + kept) + 2 * kept * kv_width_ * s_.kv_bytes())});
    });
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      long long row = 0;
      for (int r = 0; r < requests_; ++r) {
        const long long count = block_rows(k, r);
        act(op, k, Function::compress,
            std::array{
                region(slots_.scores, row, count, s_.heads.kv),
                region(s_.kv, first_local_key(s_, r), count, kv_width_),
                region(slots_.kept, static_cast<long long>(r) * s_.p[kPassing], s_.p[kPassing], kv_width_)});
        row += count;
      }
    }
  }

  void gather() {
    const long long kept = static_cast<long long>(requests_) * s_.p[kPassing];
    const OpIndex op =
        s_.b.exchange("gather passed KV", Part::exchange, OpKind::all_gather, {s_.p.cp, s_.p.tpa},
                      Bytes(static_cast<double>(kept) * kv_width_ * s_.kv_bytes()));
    for (int k = 0; s_.flow() && k < s_.p.cp; ++k) {
      for (int to = 0; to < s_.p.cp; ++to) {
        for (int t = 0; t < s_.p.tpa; ++t) {
          s_.flow()->move(op, {s_.rank(k, t), s_.rank(to, t), s_.whole(slots_.kept, kept, kv_width_),
                               region(s_.kv, first_passed_row(s_) + k * kept, kept, kv_width_)});
        }
      }
    }
  }

  ContextStep& s_;
  int requests_;
  double q_width_, kv_width_, width_;
  Retaining slots_{};
};

// The paper's Table 8: a quarter and an eighth of a block, and no anchor above 8192 tokens.
int default_anchor(long long block) { return static_cast<int>(std::min<long long>(block / 4, 8192)); }
int default_passing(long long block) { return static_cast<int>(block / 8); }

void with_sizes(const Case& c, const SearchSpace& space, Plan p, std::vector<Plan>& out) {
  long long shortest = c.longest();
  for (const Segment& r : c.batch.prefill) shortest = std::min(shortest, r.fresh);
  const long long block = shortest / p.cp;
  for (const int anchor : space.tried(kAnchor, {default_anchor(block)})) {
    for (const int passing : space.tried(kPassing, {default_passing(block)})) {
      for (const int query : space.tried(kQuery, {0})) {
        for (const int retaining : space.tried(kRetaining, {1024})) {
          p.set(kAnchor, anchor);
          p.set(kPassing, passing);
          p.set(kQuery, query);
          p.set(kRetaining, retaining);
          out.push_back(p);
        }
      }
    }
  }
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kApb), out,
                    [&](const Plan& p, std::vector<Plan>& with) { with_sizes(c, space, p, with); });
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (has_latents(c.model)) return "apb scores keys and values by KV head, which MLA does not have";
  if (p.tpa > least_kv_heads(c.model))
    return "apb needs tpa not above the KV heads: retaining heads would count the shared ones twice";
  if (p[kAnchor] < 1 || p[kPassing] < 1 || p[kRetaining] < 1)
    return "apb needs anchor, passing and retaining, for instance anchor=4096,passing=2048,retaining=1024";
  return check_blocks(c, p);
}

void attention(ContextStep& step) { Passing(step).run(); }

long long extra_rows(const Segment&, const Plan& p) { return p[kQuery] + p[kAnchor]; }

// The KV that all hosts pass on.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  const double rows =
      static_cast<double>(p.cp) * p[kPassing] * static_cast<double>(requests_in(c.batch.prefill)) * p.batch;
  return Bytes(rows * prefill_heads(a, p).kv_width() * bytes_per_element(c.precision.kv));
}

// Retaining heads.
double extra_weights(const Case&, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  return static_cast<double>(p[kRetaining]) * (h.q * h.qk + h.kv_width() + h.kv);
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  struct Sizes {
    int anchor, passing, query;
  };
  for (const Sizes& n : {Sizes{1, 1, 0}, Sizes{4, 2, 3}, Sizes{2, 5, 1}}) {
    Plan p = trial.base;
    p.set(kAnchor, n.anchor);
    p.set(kPassing, n.passing);
    p.set(kQuery, n.query);
    p.set(kRetaining, trial.retaining);
    out.push_back(p);
  }
}

}  // namespace

const Strategy kApb{
    .name = "apb",
    .summary = "own block behind an anchor and what earlier hosts found best",
    .source = "arXiv 2502.12085",
    .prefills = true,
    .exact = false,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attention,
    .layout = block_layout,
    .prefill_buffers = buffers,
    .extra_rows = extra_rows,
    .extra_weights = extra_weights,
    .computed = blocks_computed,
    .blocks =
        [](const Plan& p) {
          return HostBlocks{p[kAnchor], p[kPassing], p[kQuery], p[kRetaining]};
        },
    .verify = verify,
};

}  // namespace shardline
