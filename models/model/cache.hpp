// What a request keeps in memory, as engines lay it out, and what a decode step reads of it: [M14].
// models/README.md.
#pragma once

#include <cstdint>

#include "models/model/model.hpp"

namespace shardline {

/// [M14] Bytes of one row of a layer's cache of type `kv` as engines lay it out: of a token; of compressed
/// attention of `ratio` of them, and of a token in its window. 0 where there is none.
double row_bytes(const Attention& attention, Dtype kv);

/// [M14] Bytes of one index key. 0 where a layer has none of its own.
double index_row_bytes(const Attention& attention, Dtype kv);

/// [M14] What one request of `length` tokens keeps in all layers: rows and index keys, windows as far as they
/// reach. Without states.
Bytes cache_bytes(const Model& model, std::int64_t length, Dtype kv);

/// [M14] What one more token adds to that, far behind every window and chunk.
Bytes cache_bytes_per_token(const Model& model, Dtype kv);

/// [M14] States of one request in all layers, whatever its length: recurrences, and their convolutions in
/// BF16.
Bytes state_bytes(const Attention& attention);
Bytes state_bytes(const Model& model);

/// Rows of compressed attention that a token is part of: they overlap where an index chooses among them.
inline int rows_of_token(const Attention& a) { return a.index ? 2 : 1; }

/// [M14] What a layer of compressed attention keeps of one request beside rows and window: values and gates
/// of the tokens that rows to come are made of, in float32 (vllm models/deepseek_v4/compressor.py,
/// CompressorStateCache). 0 of others.
Bytes compressor_bytes(const Attention& attention);

/// [M14] What one decode step reads of one request's cache behind `length` tokens, and of its states, which
/// it writes back whole (counted twice).
Bytes decode_read_bytes(const Model& model, std::int64_t length, Dtype kv);

}  // namespace shardline
