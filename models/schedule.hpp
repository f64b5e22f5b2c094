// A Schedule is plain data: the operations of one decode step on one representative rank of each symmetric
// class, in blocks that repeat. The same ops are timed (hardware/kernel_cost), computed and run; FLOPs and
// bytes follow from their shapes by geometry (models/README.md [G1]-[G5]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

enum class Dtype : std::uint8_t { fp4, fp8, bf16, fp32 };
/// Bytes of one element; FP4 counts 0.5 (block scales are not counted, as in arXiv 2507.07120, Appendix A).
constexpr double bytes_per_element(Dtype d) {
  return d == Dtype::fp4 ? 0.5 : d == Dtype::fp8 ? 1.0 : d == Dtype::bf16 ? 2.0 : 4.0;
}
std::string_view to_string(Dtype dtype);

enum class OpKind : std::uint8_t {
  gemm,
  attend,
  merge,
  elementwise,
  send_recv,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  compress
};
inline constexpr std::size_t kOpKinds = 10;
std::string_view to_string(OpKind kind);
constexpr bool is_communication(OpKind k) { return k >= OpKind::send_recv && k <= OpKind::all_to_all; }

/// The part of a layer an op belongs to; breakdowns are reported by part.
enum class Part : std::uint8_t {
  qkv,
  attention,
  exchange,
  out_proj,
  attention_sum,
  ffn,
  ffn_sum,
  head,
  hop,
  count
};
std::string_view to_string(Part part);

/// In-order queue of a rank. Ops on different lanes overlap where their dependencies allow.
enum class Lane : std::uint8_t { compute, communication };

/// Ranks base, base+stride, ..., base+(size-1)*stride. Ranks of one pipeline stage are numbered
/// (dp * KVP + kvp) * TPA + tpa, so that the most communicative groups are the nearest.
struct Group {
  int size = 1;
  int stride = 1;
  bool operator==(const Group&) const = default;
};

/// [rows, k] x [k, n]. With experts: `copies` distinct matrices are read and `rows` (token, expert) pairs
/// computed.
struct GemmShape {
  double rows = 0, k = 0, n = 0, copies = 1;
};

/// One query token of each request against `kv_tokens` cached tokens held by this rank.
struct AttendShape {
  double requests = 0, q_heads = 0, qk_dim = 0, v_dim = 0;
  double kv_tokens = 0;
  double kv_elements = 0;  // read per cached token: 2*ceil(K/TPA)*h (GQA), kv_lora + rope (MLA)
};

struct ElementwiseShape {
  double rows = 0, width = 0;
};

/// `wire` bytes leave this rank for all_to_all and send_recv. For all_reduce and reduce_scatter it is the
/// whole buffer, for all_gather this rank's contribution; the collective algorithm decides what then crosses
/// links.
struct ExchangeShape {
  double bytes = 0;
};

using OpIndex = std::uint32_t;

struct Op {
  OpKind kind = OpKind::gemm;
  Part part = Part::qkv;
  Lane lane = Lane::compute;
  Dtype dtype = Dtype::bf16;  // of weights (gemm) or KV (attend): sets bytes; arithmetic runs at `math`
  Dtype math = Dtype::bf16;
  const char* name = "";
  double launches = 1;  // kernels; a fraction where one persistent kernel serves several chunks
  Group group;          // communication only
  union {
    GemmShape gemm;
    AttendShape attend;
    ElementwiseShape elementwise;
    ExchangeShape exchange;
  };
  std::uint32_t first_dependency = 0, dependency_count = 0;
  Op() : gemm{} {}
};

Flops flops(const Op& op);         // [G1] gemm 2*rows*k*n, [G2] attend 2*b*q*(qk+v)*S
Flops exponentials(const Op& op);  // [G3] attend b*q*S
Bytes weight_bytes(const Op& op);  // [G4] gemm copies*k*n*dtype
Bytes kv_bytes(const Op& op);      // [G5] attend b*S*elements*dtype

using BlockIndex = std::uint32_t;

/// Consecutive ops that end in a barrier: no op of the block that runs next starts before all ops of this one
/// ended.
struct Block {
  const char* name = "";
  OpIndex first = 0, last = 0;  // [first, last)
  bool handoff = false;         // sends to the next stage: the stage may take its next microbatch meanwhile
};

/// order[first, last) run one after the other, `times` times: identical layers are stored once.
struct Repeat {
  std::uint32_t first = 0, last = 0;
  int times = 1;
};

/// program[first, last) run by one pipeline stage. `copies` consecutive stages are alike.
struct Stage {
  std::uint32_t first = 0, last = 0;
  int copies = 1;
};

class Schedule {
 public:
  std::vector<Op> ops;
  std::vector<OpIndex> dependencies;  // CSR; indices into ops, within the op's block and smaller than its own
  std::vector<Block> blocks;
  std::vector<BlockIndex> order;
  std::vector<Repeat> program;
  std::vector<Stage> stages;  // at least one
  int ranks_per_stage = 1;
  int in_flight = 1;  // microbatches circulating through the stages

  void clear();
  std::span<const OpIndex> dependencies_of(const Op& op) const {
    return {dependencies.data() + op.first_dependency, op.dependency_count};
  }
  std::span<const BlockIndex> blocks_of(const Repeat& r) const {
    return {order.data() + r.first, r.last - r.first};
  }
  std::span<const Repeat> program_of(const Stage& s) const {
    return {program.data() + s.first, s.last - s.first};
  }
};

/// How often each block runs while one microbatch passes all stages.
std::vector<double> executions(const Schedule& schedule);

/// Appends ops to a Schedule. Each op depends on the previous one unless told otherwise.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(Schedule& schedule) : s_(schedule) { s_.clear(); }

  void begin_block(const char* name, bool handoff = false);
  BlockIndex end_block();
  /// Lets the current stage run these blocks in turn, `times` times; nothing if `times` is 0.
  void run(std::initializer_list<BlockIndex> blocks, int times = 1);
  void end_stage(int copies = 1);

  /// After `dependencies`, or after the previous op of the block if none are given.
  OpIndex gemm(const char* name, Part part, Dtype weights, Dtype math, GemmShape shape, double launches = 1);
  OpIndex attend(const char* name, Dtype kv, Dtype math, AttendShape shape, double launches = 1);
  OpIndex elementwise(const char* name, Part part, OpKind kind, ElementwiseShape shape, double launches = 1);
  /// A collective over one rank is dropped; returns the previous op then.
  OpIndex exchange(const char* name, Part part, OpKind kind, Group group, Bytes bytes);

  /// Replaces the dependencies of the next op.
  void after(std::span<const OpIndex> dependencies);
  OpIndex previous() const { return static_cast<OpIndex>(s_.ops.size()) - 1; }

 private:
  Op& add(OpKind kind, Part part, const char* name, double launches);
  Schedule& s_;
  std::uint32_t program_of_stage_ = 0;
  bool explicit_dependencies_ = false;
  std::vector<OpIndex> next_dependencies_;
};

}  // namespace shardline
