#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

thread_local const CancelQuestion* g_question = nullptr;

}  // namespace

CancelScope::CancelScope(const CancelQuestion* question) : outer_(g_question) { g_question = question; }

CancelScope::~CancelScope() { g_question = outer_; }

const CancelQuestion* cancel_question() { return g_question; }

void check_cancelled() {
  if (g_question != nullptr && *g_question && (*g_question)()) throw Cancelled{};
}

}  // namespace shardline
