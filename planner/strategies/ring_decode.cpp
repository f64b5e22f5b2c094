// Batched ring pass-Q decode (arXiv 2411.01783, Algorithm 4): the KV cache stays sharded over the
// context-parallel ranks; the new tokens of a batch are dealt out to them, padded to a multiple, and travel
// round the ring as queries. Under MLA these are the absorbed queries, as wide as a latent row, and the
// values are made of the merged latents.
#include "planner/engines/deploy.hpp"
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kRingDecode), out);
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p.ep * p.tpf != p.tpa) return "ring_decode replicates the FFN over cp: ep*tpf must be tpa";
  return std::nullopt;
}

// The cache is dealt out token by token.
CacheShare share_of(const Case& c, const Attention& a, const Plan& p) {
  CacheShare s = kvp_share(c, a, p);
  s.sharers = {p.cp, p.tpa};
  s.block = 1;
  return s;
}

// Queries of the next iteration, and the partial outputs of all.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = decode_heads(a, p);
  const double act = bytes_per_element(c.precision.activations);
  const auto rows = static_cast<double>(decode_rows(c, p));  // padded
  return Bytes(rows * h.q * (h.qk * act + p.cp * (h.v * act + 4.0)));
}

// No released engine passes the queries of a decode step round a ring: vLLM's decode context parallelism is
// dcp.
void launch(const Case&, const Plan&, std::vector<Deployment>&) {}

std::vector<long long> contexts_of(const Case& c, const Plan& p) {
  std::vector<long long> out;
  for (int copy = 0; copy < p.batch; ++copy) {
    for (const Segment& s : c.batch.decode)
      out.insert(out.end(), static_cast<std::size_t>(s.count), s.length());
  }
  return out;
}

// The batch is dealt out to the ranks of a ring; queries travel, caches stay.
void attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p) {
  ContextStep step(b, c, a, p, decode_layout(contexts_of(c, p), p.cp, 0), Asked::decode);
  if (step.flow()) {
    step.declare_slots();
    step.bind_attention();
  }
  attend_pass_q(step);
  if (has_latents(a)) step.value_up();
}

}  // namespace

const Strategy kRingDecode{
    .name = "ring_decode",
    .summary = "context parallelism: queries of a batch travel round a ring",
    .source = "arXiv 2411.01783",
    .decodes = true,
    .degrees = kContextDegrees,
    .weights = WeightSharing::attention_tp,
    .enumerate = enumerate,
    .check = check,
    .decode_attention = attention,
    .cache_share = share_of,
    .decode_buffers = buffers,
    .launch = launch,
};

}  // namespace shardline
