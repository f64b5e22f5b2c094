#include <array>
#include <cstring>

#include "cuda_probe/emulator/block.hpp"
#include "cuda_probe/kernels/bf16.hpp"

namespace shardline::emulator {

namespace {

float half_of(std::uint32_t word, int which) {
  return to_float({static_cast<std::uint16_t>(word >> (16 * which))});
}

/// a[16][16] of a warp from its lanes' four words each.
std::array<std::array<float, 16>, 16> rows_of(const std::uint32_t* const* words) {
  std::array<std::array<float, 16>, 16> a{};
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::size_t g = lane / 4, t = lane % 4;
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t h = 0; h < 2; ++h)
        a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + h] = half_of(words[lane][i], static_cast<int>(h));
    }
  }
  return a;
}

void perform(const AsyncCopy& c) {
  if (c.from == nullptr) {
    std::memset(c.to, 0, 16);
  } else {
    std::memcpy(c.to, c.from, 16);
  }
}

}  // namespace

void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Part {
    float* c;
    const std::uint32_t* a;
    std::uint32_t b[2];
  } mine{c, a, {b0, b1}};
  Block& block = Block::current();
  block.meet(32, "mma", &mine, [&block](std::vector<void*>& parts) {
    std::array<const std::uint32_t*, 32> words;
    for (std::size_t lane = 0; lane < 32; ++lane) words[lane] = static_cast<Part*>(parts[lane])->a;
    const auto rows = rows_of(words.data());
    float columns[16][8];
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t h = 0; h < 2; ++h)
          columns[2 * (lane % 4) + 8 * i + h][lane / 4] =
              half_of(static_cast<Part*>(parts[lane])->b[i], static_cast<int>(h));
      }
    }
    for (std::size_t row = 0; row < 16; ++row) {
      float sums[8] = {};
      for (std::size_t k = 0; k < 16; ++k) {
        for (std::size_t n = 0; n < 8; ++n) sums[n] += rows[row][k] * columns[k][n];
      }
      for (std::size_t n = 0; n < 8; ++n)
        static_cast<Part*>(parts[row % 8 * 4 + n / 2])->c[row / 8 * 2 + n % 2] += sums[n];
    }
    block.counts.mma_flops += 2.0 * 16 * 8 * 16;
  });
}

void load_matrices(std::uint32_t (&m)[4], const void* row, bool transposed) {
  struct Part {
    std::uint32_t* m;
    const void* row;
  } mine{m, row};
  Block& block = Block::current();
  block.check_shared(row, 16, "load_matrices");
  if (block.address_of(row) % 16 != 0) block.fail("load_matrices: a row is not aligned to 16 bytes");
  block.meet(32, transposed ? "load_matrices_transposed" : "load_matrices", &mine,
             [transposed](std::vector<void*>& parts) {
               for (std::size_t i = 0; i < 4; ++i) {
                 std::uint16_t values[8][8];
                 for (std::size_t r = 0; r < 8; ++r)
                   std::memcpy(values[r], static_cast<Part*>(parts[8 * i + r])->row, 16);
                 for (std::size_t lane = 0; lane < 32; ++lane) {
                   const std::size_t g = lane / 4, t = 2 * (lane % 4);
                   const std::uint32_t low = transposed ? values[t][g] : values[g][t];
                   const std::uint32_t high = transposed ? values[t + 1][g] : values[g][t + 1];
                   static_cast<Part*>(parts[lane])->m[i] = low | high << 16;
                 }
               }
             });
}

void copy_async(void* to, const void* from, bool valid) {
  Block& block = Block::current();
  block.check_shared(to, 16, "copy_async");
  if (block.address_of(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    block.fail("copy_async: not aligned to 16 bytes");
  const AsyncCopy c{to, valid ? from : nullptr};
  block.counts.bytes_async += 16;
  if (block.options.late) {
    block.self().open_copies.push_back(c);
  } else {
    perform(c);
  }
}

void commit_copies() {
  Thread& t = Block::current().self();
  t.copy_groups.push_back(std::move(t.open_copies));
  t.open_copies.clear();
}

bool Block::finish_copies(Thread& t) {
  if (!t.copy_groups.empty()) {
    for (const AsyncCopy& c : t.copy_groups.front()) perform(c);
    t.copy_groups.pop_front();
    return true;
  }
  for (const AsyncCopy& c : t.open_copies) perform(c);
  const bool some = !t.open_copies.empty();
  t.open_copies.clear();
  return some;
}

void wait_copies(int pending) {
  Thread& t = Block::current().self();
  while (static_cast<int>(t.copy_groups.size()) > pending) Block::finish_copies(t);
}

}  // namespace shardline::emulator
