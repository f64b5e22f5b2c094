// Merge of partial attention outputs.
#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/probes/bench.hpp"

namespace shardline {

void probe_merge(ProbeRun& probe_run, const std::vector<MergeCase>& shapes) {
  Bench& b = probe_run.bench;
  FamilyResult out("merge");
  probe_run.each(out, shapes, [&](const MergeCase& c) {
    const auto heads = static_cast<std::size_t>(c.rows) * static_cast<std::size_t>(c.heads);
    const std::size_t bytes = heads * static_cast<std::size_t>(c.head_dim) * 2;
    std::vector<MergeArguments> sets;
    const auto prepare = [&](int) {
      MergeArguments a{};
      a.parts = c.parts;
      a.rows = c.rows;
      a.heads = c.heads;
      a.head_dim = c.head_dim;
      for (int p = 0; p < c.parts; ++p) {
        a.outputs[p] = static_cast<const Bf16*>(b.take_random(bytes));
        // Pairs of bfloat16 read as float32: finite, normal numbers of any size around 1.
        a.lses[p] = static_cast<const float*>(b.take_random(heads * 4));
      }
      a.out = static_cast<Bf16*>(b.take(bytes));
      a.out_lse = static_cast<float*>(b.take(heads * 4));
      sets.push_back(a);
    };
    const Measured m = b.measure({prepare, [&](int i, cudaStream_t s) {
                                    launched(merge(sets[static_cast<std::size_t>(i)], s), "merge");
                                  }});
    out.add({{"rows", c.rows},
             {"heads", std::int64_t{c.heads}},
             {"head_dim", std::int64_t{c.head_dim}},
             {"parts", std::int64_t{c.parts}},
             {"dtype", "bf16"}},
            m, {Flops(0), Bytes(bytes_of(c))});
  });
  probe_run.finish(out);
}

}  // namespace shardline
