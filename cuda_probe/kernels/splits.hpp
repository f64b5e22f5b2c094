// Into how many splits a decode should cut the cache.
#pragma once

#include <cstdint>

namespace shardline {

/// DecodeArguments::splits and MlaDecodeArguments::splits that fill a device of `sms` multiprocessors; at
/// least 1. longest_kv: rows of the longest sequence's cache.
int decode_splits(std::int64_t longest_kv, int sequences, int kv_heads, int sms);
int mla_decode_splits(std::int64_t longest_kv, int sequences, int q_heads, int sms);

}  // namespace shardline
