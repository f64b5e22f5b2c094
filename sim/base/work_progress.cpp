#include "sim/base/work_progress.hpp"

namespace shardline {

namespace {

thread_local const WorkListener* g_listener = nullptr;

}  // namespace

WorkScope::WorkScope(const WorkListener* listener) : outer_(g_listener) { g_listener = listener; }

WorkScope::~WorkScope() { g_listener = outer_; }

void tell_work(const char* what, std::uint64_t done, std::uint64_t total) {
  if (g_listener != nullptr && *g_listener) (*g_listener)(what, done, total);
}

}  // namespace shardline
