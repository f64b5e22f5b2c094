// What a host starts of a block, kernel by kernel: an op beside the others, and what waits for it.
#include "models/ir/schedule.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void ScheduleBuilder::begin_host_kernels() {
  launch("launch kernels", 0);
  s_.ops.back().drive = Drive::host_kernel;
  after({});
}

void ScheduleBuilder::end_host_kernels() {
  double kernels = 0;
  bool attends = false;
  for (OpIndex i = s_.blocks.back().first + 1; i < s_.ops.size(); ++i) {
    // vllm config/compilation.py, _attention_ops: linear attention splits graphs as attention does.
    const bool attention = is_attention(s_.ops[i].kind) || is_recurrent(s_.ops[i].kind);
    attends = attends || attention;
    if (attention || starts_ == HostStarts::kernels) kernels += s_.ops[i].launches;
  }
  if (starts_ == HostStarts::pieces && attends) kernels += 1;  // the graph behind it
  s_.ops[s_.blocks.back().first].launches = kernels;
  if (explicit_from_ != kNone) s_.dependencies.resize(explicit_from_);
  explicit_from_ = kNone;
  Op& last = s_.ops.back();
  SL_CHECK(s_.ops.size() > s_.blocks.back().first + 1 &&
               last.first_dependency + last.dependency_count == s_.dependencies.size(),
           "a block has a kernel, and nothing was noted behind the last one");
  s_.dependencies.push_back(s_.blocks.back().first);
  ++last.dependency_count;
}

}  // namespace shardline
