// Tensor-core products of one warp and the copies that feed them, compute capability 8.0 and up.
#pragma once

#include "cuda_probe/device/simt.hpp"

namespace shardline::device {

// Fragments of m16n8k16 (PTX ISA, 9.7.14.5.8), g = lane / 4, t = lane % 4; each word holds two neighbours:
// a[0]: row g, k 2t; a[1]: row g + 8, k 2t; a[2]: row g, k 2t + 8; a[3]: row g + 8, k 2t + 8.
// b[0]: k 2t, column g; b[1]: k 2t + 8, column g. c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g
// + 8.

#ifdef __CUDACC__

/// c += a * b.
SL_DEVICE void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices; lanes 8i..8i+7 give the addresses of the rows of matrix i. A lane receives of each
/// matrix row lane / 4, elements 2 * (lane % 4) and the next; transposed: column lane / 4.
SL_DEVICE void load_matrices(std::uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
SL_DEVICE void load_matrices_transposed(std::uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Asynchronous copy of 16 bytes to shared memory; zeros instead where `valid` is false. Global memory is
/// then not read, but `from` must be an address.
SL_DEVICE void copy_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
SL_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most `Pending` of this thread's latest groups are under way.
template <int Pending>
SL_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

#else

SL_DEVICE void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  emulator::mma(c, a, b0, b1);
}
SL_DEVICE void load_matrices(std::uint32_t (&m)[4], const void* row) {
  emulator::load_matrices(m, row, false);
}
SL_DEVICE void load_matrices_transposed(std::uint32_t (&m)[4], const void* row) {
  emulator::load_matrices(m, row, true);
}
SL_DEVICE void copy_async(void* to, const void* from, bool valid) { emulator::copy_async(to, from, valid); }
SL_DEVICE void commit_copies() { emulator::commit_copies(); }
template <int Pending>
SL_DEVICE void wait_copies() {
  emulator::wait_copies(Pending);
}

#endif

}  // namespace shardline::device
