// Ring pass-KV (arXiv 2411.01783, Algorithm 2): every rank keeps its queries; keys and values travel round
// the ring while each rank attends to those it holds. Partial outputs are merged as they come. Two receive
// buffers; the message that leaves in iteration j overlaps the attention of iteration j. Under MLA latents
// travel, and each rank expands what it receives. Of windows and chunks of positions a rank attends in the
// iterations whose keys its queries reach, and the ring ends with the last one in which any rank does
// (lucidrains' ring-attention-pytorch 0.5.20, ring_flash_attention_cuda.py: max_ring_passes; there all ranks
// do as many). Learned sinks join the softmax in iteration 0, where every query sees itself. Where an index
// chooses keys, those of the index are gathered before and each rank chooses among all of them [C25].
#include <array>

#include "planner/layers/context_step.hpp"
#include "planner/layers/gathered.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

void attend_pass_kv(ContextStep& s) {
  const double width = s.heads.held_width(), out_width = s.heads.q * s.heads.v;
  const long long rows = s.layout.key_message;
  const std::array<SlotId, 2> received{s.message("KV received, even", rows, width, s.kv_bytes()),
                                       s.message("KV received, odd", rows, width, s.kv_bytes())};
  const SlotId room =
      s.heads.latent > 0 ? s.message("KV expanded", rows, s.heads.kv_width(), s.kv_bytes()) : SlotId(0);
  const SlotId partial = s.per_query("partial out", out_width, s.act_bytes());
  const SlotId partial_lse = s.per_query("partial lse", s.heads.q, 4);
  const auto seen = [&](int k, int j) { return s.reaches(s.queries(k), s.keys(s.behind(k, j))); };
  const std::vector<bool> attends = s.iterations(seen);
  const int last = static_cast<int>(attends.size()) - 1;
  OpIndex begin = s.b.previous();
  for (int j = 0; j <= last; ++j) {
    const SlotId held = j == 0 ? s.held : received[static_cast<std::size_t>((j - 1) % 2)];
    OpIndex sent = begin;
    if (j < last) {
      s.b.after({&begin, 1});
      sent = s.pass_on("pass KV", held, received[static_cast<std::size_t>(j % 2)], rows, width, s.kv_bytes());
    }
    if (!attends[static_cast<std::size_t>(j)]) {  // what came is for the ranks behind
      begin = s.end_iteration({&sent, 1});
      continue;
    }
    // With a cache of earlier turns the first message is awaited before the first kernel starts.
    s.b.after(j == 0 && s.c.persistent_kv ? std::span(&sent, 1) : std::span(&begin, 1));
    const SlotId read =
        s.expand(held, j == 0 ? s.kv : room, [&](int k) -> const Tokens& { return s.keys(s.behind(k, j)); });
    OpIndex computed =
        s.attend("attend", {[](int k) { return k; }, [&](int k) { return s.behind(k, j); }, s.q, read,
                            j == 0 ? s.out : partial, j == 0 ? s.out_lse : partial_lse, j == 0});
    if (j > 0) {
      s.b.after({&computed, 1});
      computed = s.merge("merge", {{s.out, s.out_lse}, {partial, partial_lse}},
                         [&](int k, std::size_t i) { return i == 0 || seen(k, j); });
    }
    const OpIndex both[2] = {computed, sent};
    begin = s.end_iteration({both, j < last ? 2u : 1u});
  }
}

namespace {

enum class Layout : unsigned char { zigzag, contiguous };
constexpr const char* kLayoutWords[]{"zigzag", "contiguous"};
constexpr OptionOf<Layout> kLayout({
    .key = "layout",
    .help = "tokens of a rank: two chunks that balance the causal mask, or one block",
    .words = kLayoutWords,
    .decodes = false,
});
constexpr const Option* kOptions[]{&kLayout, &kPrefillChunk};

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kRingPassKv), out, [&](Plan p, std::vector<Plan>& with) {
    for (const Layout layout : space.tried(kLayout, {Layout::zigzag})) {
      p.set(kLayout, layout);
      with.push_back(p);
    }
  });
}

void attention(ContextStep& step) { step.a.sparse() ? attend_ring_choice(step) : attend_pass_kv(step); }

Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  return a.sparse() ? ring_choice_buffers(c, a, p) : ring_buffers(c, a, p);
}

void deal(Placement& to, const Plan& p, int request, long long fresh) {
  if (p[kLayout] == Layout::zigzag) return to.prefill(request, fresh);
  to.append(request, interval_counts(fresh, p.cp, {}));
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  for (const Layout layout : {Layout::zigzag, Layout::contiguous}) {
    Plan p = trial.base;
    p.set(kLayout, layout);
    verify_in_chunks(trial, p, out);
  }
}

}  // namespace

const Strategy kRingPassKv{
    .name = "ring_pass_kv",
    .summary = "context parallelism: KV travels round a ring",
    .source = "arXiv 2411.01783",
    .prefills = true,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .chosen_keys = true,
    .states = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .prefill_attention = attention,
    .deal = deal,
    .prefill_buffers = buffers,
    .verify = verify,
};

}  // namespace shardline
