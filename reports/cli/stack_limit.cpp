#include "reports/cli/stack_limit.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline::cli {

void need_stack() {
  constexpr rlim_t kLeast = rlim_t{4} << 20, kUsual = rlim_t{8} << 20;  // bytes
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kUsual) return;
  // The stack of the first thread grows up to what the limit is now, not to what it was at the beginning.
  const rlimit raised{std::min(kUsual, limit.rlim_max), limit.rlim_max};
  if (setrlimit(RLIMIT_STACK, &raised) == 0) limit = raised;
  if (limit.rlim_cur < kLeast)
    throw UserError(fmt::format("the stack may have {} KiB, and {} are needed: raise it with ulimit -s",
                                limit.rlim_cur >> 10, kLeast >> 10));
}

}  // namespace shardline::cli
