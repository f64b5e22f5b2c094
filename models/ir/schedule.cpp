#include "models/ir/schedule.hpp"

#include <array>

#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(Dtype d) {
  constexpr std::array<std::string_view, 4> names{"fp4", "fp8", "bf16", "fp32"};
  return names[static_cast<std::size_t>(d)];
}

std::string_view to_string(OpKind k) {
  constexpr std::array<std::string_view, kOpKinds> names{
      "gemm",       "attend",         "merge",      "elementwise", "send_recv", "all_reduce",
      "all_gather", "reduce_scatter", "all_to_all", "compress",    "launch"};
  return names[static_cast<std::size_t>(k)];
}

std::string_view to_string(Lane l) {
  constexpr std::array<std::string_view, kLanes> names{"compute", "communication", "send", "host"};
  return names[static_cast<std::size_t>(l)];
}

std::string_view to_string(Part p) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Part::count)> names{
      "qkv", "attention", "exchange", "out_proj", "attention_sum", "ffn", "ffn_sum", "head", "hop", "host"};
  return names[static_cast<std::size_t>(p)];
}

Flops flops(const Op& op) {
  if (op.kind == OpKind::gemm) return Flops(2 * op.shape.gemm.rows * op.shape.gemm.k * op.shape.gemm.n);
  if (op.kind == OpKind::attend) {
    const AttendShape& a = op.shape.attend;
    return Flops(2 * a.pairs * a.q_heads * (a.qk_dim + a.v_dim));
  }
  return Flops(0);
}

Flops exponentials(const Op& op) {
  if (op.kind != OpKind::attend) return Flops(0);
  return Flops(op.shape.attend.pairs * op.shape.attend.q_heads);
}

Bytes weight_bytes(const Op& op) {
  if (op.kind != OpKind::gemm) return Bytes(0);
  return Bytes(op.shape.gemm.copies * op.shape.gemm.k * op.shape.gemm.n * bytes_per_element(op.dtype));
}

Bytes kv_bytes(const Op& op) {
  if (op.kind != OpKind::attend) return Bytes(0);
  return Bytes(op.shape.attend.kv_rows * op.shape.attend.kv_elements * bytes_per_element(op.dtype));
}

void Schedule::clear() {
  ops.clear();
  dependencies.clear();
  blocks.clear();
  order.clear();
  program.clear();
  stages.clear();
  ranks_per_stage = 1;
  in_flight = 1;
  rounds = 1;
  classes = class_stride = 1;
  detached = false;
  variants.clear();
  if (flow) flow->clear();
}

Op Schedule::op_of_class(OpIndex i, int rank_class) const {
  Op op = ops[i];
  if (op.variants != kAlike) op.shape = variants[op.variants + static_cast<std::uint32_t>(rank_class)];
  return op;
}

bool equal(OpKind kind, const Shape& x, const Shape& y) {
  switch (kind) {
    case OpKind::gemm: {
      const GemmShape &a = x.gemm, &b = y.gemm;
      return a.rows == b.rows && a.k == b.k && a.n == b.n && a.copies == b.copies && a.experts == b.experts;
    }
    case OpKind::attend: {
      const AttendShape &a = x.attend, &b = y.attend;
      return a.q_heads == b.q_heads && a.qk_dim == b.qk_dim && a.v_dim == b.v_dim && a.pairs == b.pairs &&
             a.kv_rows == b.kv_rows && a.kv_elements == b.kv_elements && a.q_rows == b.q_rows &&
             a.tiles == b.tiles && a.rectangle == b.rectangle && a.whole == b.whole &&
             a.kernel_rows == b.kernel_rows && a.chunks == b.chunks;
    }
    case OpKind::merge:
    case OpKind::elementwise:
    case OpKind::launch:
    case OpKind::compress: {
      const ElementwiseShape &a = x.elementwise, &b = y.elementwise;
      return a.rows == b.rows && a.width == b.width && a.bytes == b.bytes;
    }
    default:
      return x.exchange == y.exchange;
  }
}

std::vector<double> executions(const Schedule& schedule) {
  std::vector<double> times(schedule.blocks.size(), 0.0);
  for (const Stage& stage : schedule.stages) {
    for (const Repeat& repeat : schedule.program_of(stage)) {
      for (const BlockIndex b : schedule.blocks_of(repeat))
        times[b] += static_cast<double>(repeat.times) * stage.copies;
    }
  }
  return times;
}

void ScheduleBuilder::set_classes(int classes, int stride) {
  SL_CHECK(s_.ops.empty(), "classes are set before the first op");
  s_.classes = classes;
  s_.class_stride = stride;
}

void ScheduleBuilder::fold_classes() {
  for (const Op& op : s_.ops) {
    if (op.variants != kAlike || op.member != kEveryMember) return;
  }
  s_.classes = s_.class_stride = 1;
}

void ScheduleBuilder::vary(std::span<const Shape> shapes) {
  Op& op = s_.ops.back();
  SL_CHECK(static_cast<int>(shapes.size()) == s_.classes, "one shape per class");
  op.shape = shapes.front();
  bool alike = true;
  for (const Shape& shape : shapes) alike = alike && equal(op.kind, shape, shapes.front());
  if (alike) return;
  op.variants = static_cast<std::uint32_t>(s_.variants.size());
  s_.variants.insert(s_.variants.end(), shapes.begin(), shapes.end());
}

void ScheduleBuilder::begin_block(const char* name, bool handoff) {
  const auto at = static_cast<OpIndex>(s_.ops.size());
  s_.blocks.push_back({name, at, at, handoff});
  explicit_dependencies_ = false;
}

BlockIndex ScheduleBuilder::end_block() {
  s_.blocks.back().last = static_cast<OpIndex>(s_.ops.size());
  SL_CHECK(s_.blocks.back().last > s_.blocks.back().first, "a block has at least one op");
  return static_cast<BlockIndex>(s_.blocks.size()) - 1;
}

void ScheduleBuilder::run(std::initializer_list<BlockIndex> blocks, int times) {
  if (times == 0) return;
  const auto first = static_cast<std::uint32_t>(s_.order.size());
  s_.order.insert(s_.order.end(), blocks);
  s_.program.push_back({first, static_cast<std::uint32_t>(s_.order.size()), times, round_});
}

void ScheduleBuilder::round(int round) {
  SL_CHECK(round == 0 || round == round_ + 1, "rounds follow one another");
  round_ = round;
  s_.rounds = std::max(s_.rounds, round + 1);
}

void ScheduleBuilder::end_stage(int copies) {
  SL_CHECK(round_ == s_.rounds - 1, "all stages have the same rounds");
  round_ = 0;
  const auto end = static_cast<std::uint32_t>(s_.program.size());
  s_.stages.push_back({program_of_stage_, end, copies});
  program_of_stage_ = end;
}

void ScheduleBuilder::after(std::span<const OpIndex> dependencies) {
  next_dependencies_.assign(dependencies.begin(), dependencies.end());
  explicit_dependencies_ = true;
}

Op& ScheduleBuilder::add(OpKind kind, Part part, const char* name, double launches) {
  const auto index = static_cast<OpIndex>(s_.ops.size());
  Op& op = s_.ops.emplace_back();
  op.kind = kind;
  op.part = part;
  op.name = name;
  op.launches = launches;
  op.drive = drive_;
  op.first_dependency = static_cast<std::uint32_t>(s_.dependencies.size());
  if (explicit_dependencies_) {
    s_.dependencies.insert(s_.dependencies.end(), next_dependencies_.begin(), next_dependencies_.end());
    explicit_dependencies_ = false;
  } else if (index > s_.blocks.back().first) {
    s_.dependencies.push_back(index - 1);
  }
  op.dependency_count = static_cast<std::uint32_t>(s_.dependencies.size()) - op.first_dependency;
  return op;
}

OpIndex ScheduleBuilder::gemm(const char* name, Part part, Dtype weights, Dtype math, GemmShape shape,
                              double launches) {
  Op& op = add(OpKind::gemm, part, name, launches);
  op.dtype = weights;
  op.math = math;
  op.shape.gemm = shape;
  return previous();
}

OpIndex ScheduleBuilder::attend(const char* name, Dtype kv, Dtype math, AttendShape shape, double launches) {
  Op& op = add(OpKind::attend, Part::attention, name, launches);
  op.dtype = kv;
  op.math = math;
  op.shape.attend = shape;
  return previous();
}

OpIndex ScheduleBuilder::elementwise(const char* name, Part part, OpKind kind, ElementwiseShape shape,
                                     double launches, Within within) {
  Op& op = add(kind, part, name, launches);
  op.within = within;
  op.shape.elementwise = shape;
  return previous();
}

OpIndex ScheduleBuilder::exchange(const char* name, Part part, OpKind kind, Group group, ExchangeShape shape,
                                  Dtype type) {
  if (group.size == 1) return previous();
  Op& op = add(kind, part, name, 1);
  op.lane = Lane::communication;
  op.group = group;
  op.dtype = op.math = type;
  op.shape.exchange = shape;
  return previous();
}

OpIndex ScheduleBuilder::hop(const char* name, Part part, Group group, int sender) {
  SL_CHECK(sender >= 0 && sender + 1 < group.size, "a hop goes from one member of its group to the next");
  Op& op = add(OpKind::send_recv, part, name, 1);
  op.lane = Lane::send;
  op.group = group;
  op.member = sender;
  op.shape.exchange = {};
  s_.detached = true;
  return previous();
}

OpIndex ScheduleBuilder::launch(const char* name, double share) {
  after({});
  Op& op = add(OpKind::launch, Part::host, name, share);
  op.lane = Lane::host;
  op.drive = Drive::host_layer;
  op.shape.elementwise = {};
  s_.detached = true;
  return previous();
}

void ScheduleBuilder::only(Group group, int member) {
  SL_CHECK(!is_communication(s_.ops.back().kind), "messages are of groups");
  s_.ops.back().group = group;
  s_.ops.back().member = member;
}

OpIndex ScheduleBuilder::exchange(const char* name, Part part, OpKind kind, Group group, Bytes bytes) {
  ExchangeShape shape;
  shape.bytes = bytes.value;
  return exchange(name, part, kind, group, shape, Dtype::bf16);
}

}  // namespace shardline
