#include "models/ir/schedule.hpp"

#include <fmt/format.h>

#include <array>

#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(Dtype d) {
  constexpr std::array<std::string_view, kDtypes> names{"fp4",       "fp8",          "bf16",        "fp32",
                                                        "fp8_block", "fp4_unscaled", "fp8_dynamic", "mxfp4",
                                                        "int4",      "int4_group32"};
  return names[static_cast<std::size_t>(d)];
}

std::string_view to_string(AttentionFamily f) { return f == AttentionFamily::mla ? "mla" : "gqa"; }

std::string_view to_string(CacheRows c) { return c == CacheRows::latent ? "latent" : "heads"; }

std::string_view to_string(LatentProduct p) {
  return p == LatentProduct::expand_values ? "expand_values" : "absorb_query";
}

std::string_view to_string(StateDecay d) {
  return d == StateDecay::added ? "added" : d == StateDecay::per_channel ? "per_channel" : "per_head";
}

std::string_view to_string(Carrier c) { return c == Carrier::engine ? "engine" : "library"; }

std::string_view to_string(OpKind k) {
  constexpr std::array<std::string_view, kOpKinds> names{
      "gemm",        "batched_gemm",   "grouped_gemm", "attend_prefill", "attend_decode", "merge",
      "elementwise", "compress",       "launch",       "index_logits",   "top_k",         "attend_sparse",
      "module_rest", "convolve",       "recur",        "mix_streams",    "send_recv",     "all_reduce",
      "all_gather",  "reduce_scatter", "all_to_all",   "dispatch",       "combine"};
  return names[static_cast<std::size_t>(k)];
}

std::string_view to_string(Drive d) {
  constexpr std::array<std::string_view, 8> names{"graph",      "eager",      "ring_step", "persistent_kv",
                                                  "host_layer", "distribute", "engine",    "host_kernel"};
  return names[static_cast<std::size_t>(d)];
}

std::string_view to_string(Within w) {
  constexpr std::array<std::string_view, 6> names{
      "own", "gemm", "prefill_attention", "decode_attention", "decode_merge", "experts"};
  return names[static_cast<std::size_t>(w)];
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

namespace {

void put(std::string& text, const char* name, const auto& field) {
  using T = std::decay_t<decltype(field)>;
  if constexpr (std::is_same_v<T, bool>) {
    if (field) text += fmt::format(" {}", name);
  } else if constexpr (std::is_enum_v<T>) {
    text += fmt::format(" {}={}", name, to_string(field));
  } else if constexpr (std::is_arithmetic_v<T>) {
    text += fmt::format(" {}={}", name, field);
  } else if constexpr (std::is_same_v<T, Group>) {
    if (field.size > 1) text += fmt::format(" {}={}x{}", name, field.size, field.stride);
  } else {
    text += fmt::format(" {}={}", name, to_string(field));
  }
}

}  // namespace

bool equal(const Shape& a, const Shape& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&](const auto& x) { return same_fields(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}

bool same_price(const PricedOp& a, const PricedOp& b) {
  return same_fields<PricedFields>(a, b) && equal(a.shape, b.shape);
}

std::string describe(const PricedOp& op) {
  std::string text;
  const auto field = [&](const char* name, const auto& value) { put(text, name, value); };
  PricedFields::visit(op, field);
  std::visit([&](const auto& s) { s.visit(s, field); }, op.shape);
  return text.substr(1);
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
  for (const Shape& shape : shapes) {
    SL_CHECK(shape.index() == shape_of(op.kind), "shapes are of the op's kind");
    alike = alike && equal(shape, shapes.front());
  }
  if (alike) return;
  op.variants = static_cast<std::uint32_t>(s_.variants.size());
  s_.variants.insert(s_.variants.end(), shapes.begin(), shapes.end());
}

void ScheduleBuilder::begin_block(const char* name, bool handoff) {
  const OpIndex at(static_cast<std::uint32_t>(s_.ops.size()));
  s_.blocks.push_back({name, at, at, handoff});
  if (explicit_from_ != kNone) s_.dependencies.resize(explicit_from_);
  explicit_from_ = kNone;
  if (starts_ != HostStarts::graph) begin_host_kernels();
}

BlockIndex ScheduleBuilder::end_block() {
  if (starts_ != HostStarts::graph) end_host_kernels();
  s_.blocks.back().last = OpIndex(static_cast<std::uint32_t>(s_.ops.size()));
  SL_CHECK(s_.blocks.back().last > s_.blocks.back().first, "a block has at least one op");
  return BlockIndex(static_cast<std::uint32_t>(s_.blocks.size()) - 1);
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
  if (explicit_from_ == kNone) explicit_from_ = static_cast<std::uint32_t>(s_.dependencies.size());
  s_.dependencies.resize(explicit_from_);
  for (const OpIndex d : dependencies) s_.dependencies.push_back(d);
}

template <class S>
Op& ScheduleBuilder::add(OpKind kind, Part part, const char* name, double launches, const S& shape) {
  const auto index = static_cast<std::uint32_t>(s_.ops.size());
  Op& op = s_.ops.emplace_back();
  op.kind = kind;
  op.part = part;
  op.name = name;
  op.launches = launches;
  op.drive = drive_;
  op.shape = shape;
  SL_CHECK(op.shape.index() == shape_of(kind), "an op has the shape of its kind");
  if (explicit_from_ != kNone) {
    op.first_dependency = explicit_from_;
    explicit_from_ = kNone;
  } else {
    op.first_dependency = static_cast<std::uint32_t>(s_.dependencies.size());
    if (index > s_.blocks.back().first) s_.dependencies.emplace_back(index - 1);
  }
  op.dependency_count = static_cast<std::uint32_t>(s_.dependencies.size()) - op.first_dependency;
  return op;
}

template <class S>
OpIndex ScheduleBuilder::matrices(OpKind kind, const char* name, Part part, Dtype weights, Dtype math,
                                  const S& shape, double launches) {
  Op& op = add(kind, part, name, launches, shape);
  op.dtype = weights;
  op.math = math;
  return previous();
}

OpIndex ScheduleBuilder::gemm(const char* name, Part part, Dtype weights, Dtype math, GemmShape shape,
                              double launches) {
  return matrices(OpKind::gemm, name, part, weights, math, shape, launches);
}

OpIndex ScheduleBuilder::gemm(const char* name, Part part, Dtype weights, Dtype math, BatchedGemmShape shape,
                              double launches) {
  return matrices(OpKind::batched_gemm, name, part, weights, math, shape, launches);
}

OpIndex ScheduleBuilder::gemm(const char* name, Part part, Dtype weights, Dtype math, GroupedGemmShape shape,
                              double launches) {
  return matrices(OpKind::grouped_gemm, name, part, weights, math, shape, launches);
}

OpIndex ScheduleBuilder::attend(const char* name, Dtype kv, Dtype math, AttendPrefillShape shape,
                                double launches) {
  return matrices(OpKind::attend_prefill, name, Part::attention, kv, math, shape, launches);
}

OpIndex ScheduleBuilder::attend(const char* name, Dtype kv, Dtype math, AttendDecodeShape shape,
                                double launches) {
  return matrices(OpKind::attend_decode, name, Part::attention, kv, math, shape, launches);
}

OpIndex ScheduleBuilder::indexed(const char* name, Part part, Dtype kv, Dtype math,
                                 const IndexLogitsShape& shape) {
  return matrices(OpKind::index_logits, name, part, kv, math, shape, 1);
}

OpIndex ScheduleBuilder::indexed(const char* name, Part part, Dtype kv, Dtype math, const TopKShape& shape) {
  return matrices(OpKind::top_k, name, part, kv, math, shape, 1);
}

OpIndex ScheduleBuilder::indexed(const char* name, Part part, Dtype kv, Dtype math,
                                 const AttendSparseShape& shape, double launches) {
  return matrices(OpKind::attend_sparse, name, part, kv, math, shape, launches);
}

OpIndex ScheduleBuilder::indexed(const char* name, Part part, Dtype kv, Dtype math,
                                 const ModuleRestShape& shape, double launches) {
  return matrices(OpKind::module_rest, name, part, kv, math, shape, launches);
}

OpIndex ScheduleBuilder::recurrent(const char* name, OpKind kind, Dtype math, const RecurrentShape& shape) {
  return matrices(kind, name, Part::attention, math, math, shape, 1);
}

OpIndex ScheduleBuilder::mix(const char* name, Part part, Dtype math, const MixShape& shape) {
  return matrices(OpKind::mix_streams, name, part, Dtype::fp32, math, shape, 1);
}

OpIndex ScheduleBuilder::elementwise(const char* name, Part part, OpKind kind, ElementwiseShape shape,
                                     double launches, Within within) {
  add(kind, part, name, launches, shape).within = within;
  return previous();
}

OpIndex ScheduleBuilder::exchange(const char* name, Part part, OpKind kind, Group group, ExchangeShape shape,
                                  Dtype type) {
  if (group.size == 1) return previous();
  Op& op = add(kind, part, name, 1, shape);
  op.lane = Lane::communication;
  op.group = group;
  op.dtype = op.math = type;
  return previous();
}

OpIndex ScheduleBuilder::route(const char* name, OpKind kind, Group group, RoutedShape shape, Dtype type) {
  if (group.size == 1) return previous();
  Op& op = add(kind, Part::ffn_sum, name, 1, shape);
  op.lane = Lane::communication;
  op.group = group;
  op.dtype = op.math = type;
  return previous();
}

OpIndex ScheduleBuilder::hop(const char* name, Part part, Group group, int sender) {
  SL_CHECK(sender >= 0 && sender + 1 < group.size, "a hop goes from one member of its group to the next");
  Op& op = add(OpKind::send_recv, part, name, 1, ExchangeShape{});
  op.lane = Lane::send;
  op.group = group;
  op.member = sender;
  s_.detached = true;
  return previous();
}

OpIndex ScheduleBuilder::launch(const char* name, double share) {
  after({});
  Op& op = add(OpKind::launch, Part::host, name, share, ElementwiseShape{});
  op.lane = Lane::host;
  op.drive = Drive::host_layer;
  s_.detached = true;
  return previous();
}

void ScheduleBuilder::only(Group group, int member) {
  SL_CHECK(!is_communication(s_.ops.back().kind), "messages are of groups");
  s_.ops.back().group = group;
  s_.ops.back().member = member;
}

OpIndex ScheduleBuilder::copy(const Op& op) {
  Op& own = add(op.kind, op.part, op.name, op.launches, op.shape);
  const std::uint32_t first = own.first_dependency, count = own.dependency_count;
  own = op;
  own.first_dependency = first;
  own.dependency_count = count;
  SL_CHECK(own.variants == kAlike && !is_detached(own.lane), "shapes of classes are in its own schedule");
  return previous();
}

OpIndex ScheduleBuilder::exchange(const char* name, Part part, OpKind kind, Group group, Bytes bytes) {
  ExchangeShape shape;
  shape.bytes = bytes;
  return exchange(name, part, kind, group, shape, Dtype::bf16);
}

}  // namespace shardline
