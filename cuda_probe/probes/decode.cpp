// Split-KV decode attention, GQA and absorbed MLA, on contiguous caches and on pages in random order.
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/probes/bench.hpp"

namespace shardline {

namespace {

constexpr std::int32_t kPage = 64;
std::size_t z(std::int64_t v) { return static_cast<std::size_t>(v); }

// Where the caches of a batch lie. One for all copies of a shape: it is small.
struct CachePlaces {
  const std::int64_t* begin = nullptr;
  const std::int32_t *rows = nullptr, *pages = nullptr;
  std::int32_t most_pages = 0, page_rows = 0;
  std::int64_t all_rows = 0;  // of the cache matrix
};

CachePlaces places(Bench& b, std::int64_t batch, std::int64_t kv, bool paged) {
  CachePlaces out;
  out.rows = b.take_copy(std::vector<std::int32_t>(z(batch), static_cast<std::int32_t>(kv)));
  if (!paged) {
    std::vector<std::int64_t> begin(z(batch));
    for (std::size_t s = 0; s < begin.size(); ++s) begin[s] = static_cast<std::int64_t>(s) * kv;
    out.begin = b.take_copy(begin);
    out.all_rows = batch * kv;
    return out;
  }
  out.page_rows = kPage;
  out.most_pages = static_cast<std::int32_t>((kv + kPage - 1) / kPage);
  std::vector<std::int32_t> pages(z(batch * out.most_pages));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  std::mt19937_64 random(7);
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random() % i]);
  out.all_rows = static_cast<std::int64_t>(pages.size()) * kPage;
  out.pages = b.take_copy(pages);
  return out;
}

const Bf16* random_bf16(Bench& b, std::int64_t count) {
  return static_cast<const Bf16*>(b.take_random(z(count) * 2));
}
Bf16* room_bf16(Bench& b, std::int64_t count) { return static_cast<Bf16*>(b.take(z(count) * 2)); }
float* room_float(Bench& b, std::int64_t count) { return static_cast<float*>(b.take(z(count) * 4)); }

Measured decode_time(Bench& b, const DecodeCase& c, bool paged) {
  const CachePlaces at = places(b, c.batch, c.kv, paged);
  std::vector<DecodeArguments> sets;
  const auto prepare = [&](int) {
    DecodeArguments a{};
    const std::int64_t width = std::int64_t{c.q_heads} * c.head_dim;
    const std::int64_t kv_width = std::int64_t{c.kv_heads} * c.head_dim;
    a.q = random_bf16(b, c.batch * width);
    a.k = random_bf16(b, at.all_rows * 2 * kv_width);  // keys, then values, in each row
    a.v = a.k + kv_width;
    a.q_row = a.out_row = width;
    a.q_head = a.kv_head = a.out_head = c.head_dim;
    a.kv_row = 2 * kv_width;
    a.kv_begin = at.begin;
    a.kv_rows = at.rows;
    a.pages = at.pages;
    a.most_pages = at.most_pages;
    a.page_rows = at.page_rows;
    a.out = room_bf16(b, c.batch * width);
    a.lse = room_float(b, c.batch * c.q_heads);
    a.lse_row = c.q_heads;
    a.sequences = static_cast<std::int32_t>(c.batch);
    a.q_heads = c.q_heads;
    a.kv_heads = c.kv_heads;
    a.head_dim = c.head_dim;
    a.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    a.splits = decode_splits(c.kv, a.sequences, a.kv_heads, b.sms());
    if (a.splits > 1) {
      a.partial_out = room_float(b, a.splits * c.batch * width);
      a.partial_lse = room_float(b, a.splits * c.batch * c.q_heads);
    }
    sets.push_back(a);
  };
  return b.measure({prepare, [&](int i, cudaStream_t s) { launched(decode(sets[z(i)], s), "decode"); }});
}

Measured mla_time(Bench& b, const MlaCase& c, bool paged) {
  constexpr std::int64_t kRow = kLatent + kRotary;
  const CachePlaces at = places(b, c.batch, c.kv, paged);
  std::vector<MlaDecodeArguments> sets;
  const auto prepare = [&](int) {
    MlaDecodeArguments a{};
    a.q = random_bf16(b, c.batch * c.heads * kRow);
    a.kv = random_bf16(b, at.all_rows * kRow);
    a.q_row = c.heads * kRow;
    a.q_head = a.kv_row = kRow;
    a.cache_rows = at.all_rows;
    a.kv_begin = at.begin;
    a.kv_rows = at.rows;
    a.pages = at.pages;
    a.most_pages = at.most_pages;
    a.page_rows = at.page_rows;
    a.out = room_bf16(b, c.batch * c.heads * kLatent);
    a.out_row = std::int64_t{c.heads} * kLatent;
    a.out_head = kLatent;
    a.lse = room_float(b, c.batch * c.heads);
    a.lse_row = c.heads;
    a.sequences = static_cast<std::int32_t>(c.batch);
    a.q_heads = c.heads;
    a.scale = 1 / std::sqrt(static_cast<float>(kRow));
    a.splits = mla_decode_splits(c.kv, a.sequences, a.q_heads, b.sms());
    if (a.splits > 1) {
      a.partial_out = room_float(b, a.splits * c.batch * c.heads * kLatent);
      a.partial_lse = room_float(b, a.splits * c.batch * c.heads);
    }
    sets.push_back(a);
  };
  return b.measure(
      {prepare, [&](int i, cudaStream_t s) { launched(mla_decode(sets[z(i)], s), "mla_decode"); }});
}

}  // namespace

void probe_decode(ProbeRun& probe_run, const std::vector<DecodeCase>& shapes) {
  FamilyResult out("attention_decode");
  probe_run.each(out, shapes, [&](const DecodeCase& c) {
    for (const bool paged : {false, true}) {
      probe_run.bench.clear();
      out.add({{"batch", c.batch},
               {"kv_len", c.kv},
               {"heads_q", std::int64_t{c.q_heads}},
               {"heads_kv", std::int64_t{c.kv_heads}},
               {"head_dim", std::int64_t{c.head_dim}},
               {"window", std::int64_t{0}},
               {"dtype_compute", "bf16"},
               {"dtype_kv", "bf16"},
               {"kernel", paged ? fmt::format("shardline_paged{}", kPage) : "shardline_contiguous"}},
              decode_time(probe_run.bench, c, paged), {Flops(flops_of(c)), Bytes(bytes_of(c))});
    }
  });
  probe_run.finish(out);
}

void probe_mla(ProbeRun& probe_run, const std::vector<MlaCase>& shapes) {
  FamilyResult out("mla_decode");
  out.note(fmt::format("shardline's kernel; kernel_paged: pages of {} rows in random order", kPage));
  probe_run.each(out, shapes, [&](const MlaCase& c) {
    for (const bool paged : {false, true}) {
      probe_run.bench.clear();
      out.add({{"scope", paged ? "kernel_paged" : "kernel"},
               {"batch", c.batch},
               {"kv_len", c.kv},
               {"heads_local", std::int64_t{c.heads}},
               {"dtype_compute", "bf16"},
               {"dtype_kv", "bf16"},
               {"dtype_gemm", ""}},
              mla_time(probe_run.bench, c, paged), {Flops(flops_of(c)), Bytes(bytes_of(c))});
    }
  });
  probe_run.finish(out);
}

}  // namespace shardline
