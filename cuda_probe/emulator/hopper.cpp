#include <algorithm>
#include <cstring>

#include "cuda_probe/emulator/block.hpp"
#include "cuda_probe/kernels/bf16.hpp"

namespace shardline::emulator {

namespace {

constexpr std::int64_t kMostBytes = (1 << 20) - 1;

PhaseBarrier& barrier_at(Block& b, const std::uint64_t* p) {
  const auto found = b.phases.find(p);
  if (found == b.phases.end()) b.fail("a barrier in shared memory was not initialised");
  return found->second;
}

void settle(Block& b, PhaseBarrier& p) {
  if (p.pending > 0 || p.bytes != 0) return;
  ++p.phase;
  p.pending = p.count;
  b.wake(p.waiting);
}

/// The 128-byte swizzle: 16-byte pieces XORed with the row of 128 bytes they are in.
std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

struct Operand {
  std::uint32_t start, leading, stride;
};

Operand decode(Block& b, std::uint64_t d) {
  if (d >> 62 != 1) b.fail("wgmma: a descriptor without the 128-byte swizzle is not emulated");
  if ((d >> 49 & 7) != 0) b.fail("wgmma: a descriptor with a base offset is not emulated");
  return {static_cast<std::uint32_t>(d & 0x3fff) * 16, static_cast<std::uint32_t>(d >> 16 & 0x3fff) * 16,
          static_cast<std::uint32_t>(d >> 32 & 0x3fff) * 16};
}

constexpr std::uint32_t kPiece = 8;  // values of 16 bytes, which the swizzle leaves together

/// The piece at `address`, a multiple of 16; values go `step` floats apart.
void read_piece(const Block& b, std::uint32_t address, float* to, std::size_t step) {
  Bf16 values[kPiece];
  std::memcpy(values, b.read_async(swizzled(address), sizeof values, "wgmma"), sizeof values);
  for (std::size_t i = 0; i < kPiece; ++i) to[i * step] = to_float(values[i]);
}

}  // namespace

void barrier_init(std::uint64_t* barrier, int count) {
  Block& b = Block::current();
  b.check_shared(barrier, 8, "barrier_init");
  b.phases[barrier] = {count, count, 0, 0, false, {}};
}

void barrier_fence() {
  for (auto& [place, barrier] : Block::current().phases) barrier.fenced = true;
}

void barrier_arrive(std::uint64_t* barrier, std::uint32_t expected_bytes) {
  Block& b = Block::current();
  PhaseBarrier& p = barrier_at(b, barrier);
  if (p.pending == 0) b.fail("more arrivals at a barrier than it counts");
  p.bytes += expected_bytes;
  if (p.bytes > kMostBytes) b.fail("a phase of a barrier counts at most 2^20 - 1 bytes");
  --p.pending;
  settle(b, p);
}

void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  Block& b = Block::current();
  PhaseBarrier& p = barrier_at(b, barrier);
  while ((p.phase & 1) == parity) {
    p.waiting.push_back(b.self().id);
    b.sleep("barrier_wait");
  }
}

void tensor_copy(void* to, const TensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2) {
  Block& b = Block::current();
  const TensorMap m = *map;
  const std::size_t row_bytes = m.box[0] * 2, rows = m.box[1] * m.box[2];
  const std::uint32_t start = b.address_of(to);
  b.check_shared(to, rows * row_bytes, "copy_tensor");
  if (start % 1024 != 0 || row_bytes != 128)
    b.fail("copy_tensor: only boxes of 128 bytes x rows at multiples of 1024 bytes are emulated");
  if (reinterpret_cast<std::uintptr_t>(m.base) % 16 != 0 || m.stride[1] % 16 != 0 || m.stride[2] % 16 != 0 ||
      m.box[1] > 256 || m.box[2] > 256)
    b.fail("copy_tensor: a map of strides of 16 bytes and boxes of at most 256 is required");
  if (!barrier_at(b, barrier).fenced)
    b.fail("copy_tensor: no fence_barriers since the barrier was initialised");
  b.counts.bytes_async += static_cast<double>(rows * row_bytes);
  const auto work = [&b, m, start, barrier, c0, c1, c2] {
    for (std::uint32_t row = 0; row < m.box[1] * m.box[2]; ++row) {
      Bf16 values[64];
      for (std::uint32_t x = 0; x < 64; ++x) {
        const std::int64_t at[3] = {c0 + std::int64_t{x}, c1 + std::int64_t{row % m.box[1]},
                                    c2 + std::int64_t{row / m.box[1]}};
        bool inside = true;
        std::size_t offset = 0;
        for (std::size_t i = 0; i < 3; ++i) {
          inside = inside && at[i] >= 0 && at[i] < static_cast<std::int64_t>(m.size[i]);
          offset += static_cast<std::size_t>(at[i]) * m.stride[i];
        }
        values[x] = {0};
        if (inside) std::memcpy(&values[x], static_cast<const std::byte*>(m.base) + offset, 2);
      }
      for (std::uint32_t x = 0; x < 64; x += kPiece)
        b.write_async(swizzled(start + row * 128 + x * 2), values + x, kPiece * 2);
    }
    PhaseBarrier& p = barrier_at(b, barrier);
    p.bytes -= static_cast<std::int64_t>(m.box[0]) * 2 * m.box[1] * m.box[2];
    settle(b, p);
  };
  if (b.ends_late()) {
    b.later(barrier_at(b, barrier), work);
  } else {
    work();
  }
}

// A warp's own wait ends its own part only: the others may still read their operands.
void Block::finish(Product& p, std::uint32_t warp) {
  if (p.done[warp]) return;
  p.done[warp] = true;
  const Operand b = decode(*this, p.b_descriptor);
  const auto width = static_cast<std::uint32_t>(p.columns);
  std::vector<float> columns(std::size_t{16} * width), sums(width);  // [k][n]
  float rows[16][16];                                                // [m of the warp][k]
  for (std::uint32_t n = 0; p.b_rows_are_k && n < width; n += kPiece) {
    for (std::uint32_t k = 0; k < 16; ++k)
      read_piece(*this, b.start + n / 64 * b.leading + n % 64 * 2 + k / 8 * b.stride + k % 8 * 128,
                 &columns[k * width + n], 1);
  }
  for (std::uint32_t n = 0; !p.b_rows_are_k && n < width; ++n) {
    for (std::uint32_t k = 0; k < 16; k += kPiece)
      read_piece(*this, b.start + n / 8 * b.stride + n % 8 * 128 + k * 2, &columns[k * width + n], width);
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t m = warp * 16 + i;
    for (std::uint32_t k = 0; k < 16; k += p.a.empty() ? kPiece : 1) {
      if (p.a.empty()) {
        const Operand a = decode(*this, p.a_descriptor);
        read_piece(*this, a.start + m / 8 * a.stride + m % 8 * 128 + k * 2, &rows[i][k], 1);
      } else {
        const std::uint32_t lane = m / 16 * 32 + m % 8 * 4 + k % 8 / 2;
        const std::uint32_t word = p.a[lane][m % 16 / 8 + 2 * (k / 8)];
        rows[i][k] = to_float({static_cast<std::uint16_t>(word >> (16 * (k % 2)))});
      }
    }
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::uint32_t k = 0; k < 16; ++k) {
      const float left = rows[i][k], *right = &columns[k * width];
      float* const sum = sums.data();
      for (std::uint32_t n = 0; n < width; ++n) sum[n] += left * right[n];
    }
    // Row i is in four lanes; each holds two columns of every eight, beside those of the row eight above or
    // below.
    for (std::uint32_t n = 0; n < width; ++n) {
      float& d = p.d[warp * 32 + i % 8 * 4 + n % 8 / 2][n / 8 * 4 + i / 8 * 2 + n % 2];
      d = (p.accumulate ? d : 0) + sums[n];
    }
  }
  counts.mma_flops += 2.0 * 16 * 16 * p.columns;
}

void wgmma(float* d, const std::uint32_t* a, std::uint64_t a_descriptor, std::uint64_t b_descriptor,
           int columns, bool b_rows_are_k, bool accumulate) {
  struct Part {
    float* d;
    const std::uint32_t* a;
    std::uint64_t a_descriptor, b_descriptor;
    int columns;
    bool b_rows_are_k, accumulate;
  } mine{d, a, a_descriptor, b_descriptor, columns, b_rows_are_k, accumulate};
  Block& block = Block::current();
  Thread& t = block.self();
  if (!t.fenced) block.fail("wgmma without wgmma_fence since the last commit");
  ++t.products;
  block.meet(128, "wgmma", &mine, [&block, &t](std::vector<void*>& parts) {
    const Part& first = *static_cast<Part*>(parts[0]);
    Product p{
        {}, {}, first.a_descriptor, first.b_descriptor, first.columns, first.b_rows_are_k, first.accumulate};
    for (void* each : parts) {
      const Part& one = *static_cast<Part*>(each);
      if (one.a_descriptor != p.a_descriptor || one.b_descriptor != p.b_descriptor ||
          one.columns != p.columns || one.b_rows_are_k != p.b_rows_are_k || one.accumulate != p.accumulate)
        block.fail("wgmma: threads of a warpgroup differ in descriptors or forms");
      p.d.push_back(one.d);
      if (one.a != nullptr) p.a.push_back(one.a);
    }
    Warpgroup& group = block.warpgroups[static_cast<std::size_t>(t.id / 128)];
    group.products.push_back(std::move(p));
    for (std::uint32_t w = 0; w < 4 && !block.options.late; ++w) block.finish(group.products.back(), w);
  });
}

void wgmma_fence() { Block::current().self().fenced = true; }

void wgmma_commit() {
  Thread& t = Block::current().self();
  t.product_groups.push_back(t.products);
  t.fenced = false;
}

void wgmma_wait(int pending) {
  Block& block = Block::current();
  // .sync.aligned; and what lanes did before it may have effects while the product still runs.
  block.meet(32, "wgmma_wait", nullptr, [](std::vector<void*>&) {});
  Thread& t = block.self();
  const auto groups = static_cast<int>(t.product_groups.size());
  if (groups <= pending) return;
  const std::int64_t until = t.product_groups[static_cast<std::size_t>(groups - pending - 1)];
  Warpgroup& group = block.warpgroups[static_cast<std::size_t>(t.id / 128)];
  for (std::int64_t i = group.retired; i < until; ++i)
    block.finish(group.products[static_cast<std::size_t>(i - group.retired)],
                 static_cast<std::uint32_t>(t.id % 128 / 32));
  const auto all = [](const bool(&done)[4]) { return done[0] && done[1] && done[2] && done[3]; };
  while (!group.products.empty() && all(group.products.front().done)) {
    group.products.pop_front();
    ++group.retired;
  }
}

void proxy_fence() { Block::current().fence_async(); }

}  // namespace shardline::emulator
