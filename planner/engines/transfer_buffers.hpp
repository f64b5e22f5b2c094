// Memory of the buffers by which servers of TensorRT-LLM hand caches on. planner/README.md [P5].
#pragma once

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Tokens that a buffer of TensorRT-LLM's cache transceiver (max_tokens_in_buffer) has to hold on a rank of a
/// half of a disaggregated pair: those of the longest prompt in whole blocks, of which a server for answers
/// under Helix gets its rank's share alone (cpp/tensorrt_llm/batch_manager/mlaCacheFormatter.cpp, unformat
/// and getBlockNumAccountingForCP@203cb19113ba; cacheTransBuffer.cpp stops at parts of a block).
long long transfer_tokens(const Case& c, const Plan& plan);

/// Bytes of a rank's two buffers, one to send and one to receive, both allocated as the server starts,
/// whatever its role: every layer's part of that many tokens and one block more, as far as its window goes
/// (cpp/tensorrt_llm/batch_manager/baseTransBuffer.cpp@05c8074de10b, cacheTransBuffer.cpp@a2b02652de19;
/// one each by default, TRTLLM_KVCACHE_SEND_MAX_CONCURRENCY_NUM and TRTLLM_REQUEST_KV_CACHE_CONCURRENT in
/// docs/source/features/disagg-serving.md). Of several stages the one with most. 0: another engine, or a
/// server that hands on no cache.
Bytes transfer_buffers(const Case& c, const Plan& plan);

}  // namespace shardline
