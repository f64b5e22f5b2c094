#include "sim/base/sha256.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRounds{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

// 6.2.2.
void Sha256::add_block(State& state, std::string_view block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < kBlock; ++i) w[i / 4] = (w[i / 4] << 8) | static_cast<unsigned char>(block[i]);
  for (std::size_t t = 16; t < w.size(); ++t) {
    const std::uint32_t a = w[t - 15], b = w[t - 2];
    const std::uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3);
    const std::uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10);
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
  State v = state;
  for (std::size_t t = 0; t < w.size(); ++t) {
    const std::uint32_t big1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
    const std::uint32_t big0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
    const std::uint32_t t1 = v[7] + big1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRounds[t] + w[t];
    const std::uint32_t t2 = big0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
  }
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += v[i];
}

void Sha256::add(std::string_view piece) {
  bytes_ += piece.size();
  if (!rest_.empty()) {
    const std::size_t taken = std::min(kBlock - rest_.size(), piece.size());
    rest_ += piece.substr(0, taken);
    piece.remove_prefix(taken);
    if (rest_.size() < kBlock) return;
    add_block(state_, rest_);
    rest_.clear();
  }
  CancelCheck check;
  for (; piece.size() >= kBlock; piece.remove_prefix(kBlock)) {
    check();
    add_block(state_, piece.substr(0, kBlock));
  }
  rest_ += piece;
}

std::string Sha256::hex() const {
  State state = state_;
  // 5.1.1: a bit, zeros, and the length in 64 bits at the end of a block.
  const std::uint64_t bits = 8 * bytes_;
  std::string rest = rest_;
  rest += '\x80';
  rest.resize((rest.size() + 8 + kBlock - 1) / kBlock * kBlock - 8, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) rest += static_cast<char>((bits >> shift) & 0xff);
  for (std::size_t at = 0; at < rest.size(); at += kBlock)
    add_block(state, std::string_view(rest).substr(at, kBlock));
  std::string out;
  for (const std::uint32_t word : state) out += fmt::format("{:08x}", word);
  return out;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

}  // namespace shardline
