// A Schedule is plain data: the operations of one decode step or prefill, the same list on every rank, in
// blocks that repeat. Ranks that hold unequal work form classes with shapes of their own. The same ops are
// timed (hardware/kernel_cost), computed and run; FLOPs and bytes follow from their shapes by geometry
// (models/README.md [G1]-[G7]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/ir/dataflow.hpp"
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
  compress,
  launch  // a host enqueues kernels of its rank
};
inline constexpr std::size_t kOpKinds = 11;
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
  host,
  count
};
std::string_view to_string(Part part);

/// In-order queue of a rank. Ops on different lanes overlap where their dependencies allow. The last two are
/// detached: the end of a block does not wait for them, and they go on beside the blocks that follow, in
/// order among themselves. send: the way out to the next rank of a chain. host: what launches kernels.
enum class Lane : std::uint8_t { compute, communication, send, host };
inline constexpr std::size_t kLanes = 4;
constexpr bool is_detached(Lane l) { return l >= Lane::send; }
std::string_view to_string(Lane lane);

/// Ranks base, base+stride, ..., base+(size-1)*stride. Ranks of one pipeline stage are numbered
/// (dp * KVP + kvp) * TPA + tpa, so that the most communicative groups are the nearest.
struct Group {
  int size = 1;
  int stride = 1;
  bool operator==(const Group&) const = default;
};

/// Experts of a rank, where a GEMM is one of those of its feed-forward layer: held (not only visited), tokens
/// of the group before they are routed, width of one expert on this rank, matrices of one expert.
struct ExpertShape {
  double held = 0, tokens = 0, hidden = 0, inner = 0, matrices = 0;
  bool operator==(const ExpertShape&) const = default;
};

/// [rows, k] x [k, n]. With experts: `copies` distinct matrices are read and `rows` (token, expert) pairs
/// computed.
struct GemmShape {
  double rows = 0, k = 0, n = 0, copies = 1;
  ExpertShape experts = {};  // held = 0: no grouped GEMM
};

/// Query rows against the rows of a KV cache that this rank reads, all requests together. Padding is not
/// counted.
struct AttendShape {
  double q_heads = 0, qk_dim = 0, v_dim = 0;
  double pairs = 0;        // (query, key) pairs of one head that the causal mask leaves
  double kv_rows = 0;      // cached tokens read once by each KV head
  double kv_elements = 0;  // read per cached token: 2*ceil(K/TPA)*h (GQA), kv_lora + rope (MLA)
  double q_rows = 0;
  double tiles = 0;    // query tiles of one head [T2]; 0: decode, the kernel splits the cache instead
  bool whole = false;  // as many pairs as whole sequences of q_rows: no cached prefix, no block of a ring
  // A matrix product of all queries and all keys of a request: `pairs` are those, not the mask's, and scores
  // lie in memory, where an op of their own rewrites them.
  bool rectangle = false;
  // Of the one kernel that signals the end of each of `chunks` parts, of which this op is one; 0: its own.
  double kernel_rows = 0, chunks = 1;
};

/// `rows` x `width` elements; `bytes` is what the kernel reads and writes in HBM (0: not charged).
struct ElementwiseShape {
  double rows = 0, width = 0, bytes = 0;
};

/// `wire` bytes leave this rank for all_to_all and send_recv. For all_reduce and reduce_scatter it is the
/// whole buffer, for all_gather this rank's contribution; the collective algorithm decides what then crosses
/// links.
struct ExchangeShape {
  double bytes = 0;
  // All-to-all of rows: how many this rank has, and elements of one. With experts, each goes to the ranks of
  // `topk` of them (dispatch) or comes back (combine); else a part of each goes to every rank.
  double rows = 0, width = 0, topk = 0, experts = 0;
  bool combine = false;
  Dtype dispatched = Dtype::bf16;  // type of the rows on their way to the experts
  bool operator==(const ExchangeShape&) const = default;
};

union Shape {
  GemmShape gemm;
  AttendShape attend;
  ElementwiseShape elementwise;
  ExchangeShape exchange;
  Shape() : exchange{} {}  // the others are set whole
  explicit Shape(const GemmShape& s) : gemm(s) {}
  explicit Shape(const AttendShape& s) : attend(s) {}
  explicit Shape(const ElementwiseShape& s) : elementwise(s) {}
  explicit Shape(const ExchangeShape& s) : exchange(s) {}
};
/// Whether two shapes of an op of this kind are the same.
bool equal(OpKind kind, const Shape& a, const Shape& b);

/// How a host drives an op. graph: replayed from a CUDA graph. eager: launched kernel by kernel, which adds
/// the system's runtime costs to messages; ring_step, persistent_kv and distribute are host work of such
/// engines. host_layer: the host's time to launch the share of a layer that Op::launches says.
enum class Drive : std::uint8_t { graph, eager, ring_step, persistent_kv, host_layer, distribute };

/// The kernel beside it that may do an elementwise op's work too, and whose measured time then holds it.
enum class Within : std::uint8_t { own, gemm, prefill_attention, decode_attention, decode_merge, experts };

using OpIndex = std::uint32_t;

inline constexpr std::uint32_t kAlike = ~std::uint32_t{0};
inline constexpr int kEveryMember = -1;

struct Op {
  OpKind kind = OpKind::gemm;
  Part part = Part::qkv;
  Lane lane = Lane::compute;
  Drive drive = Drive::graph;
  Within within = Within::own;
  Dtype dtype = Dtype::bf16;  // of weights (gemm) or KV (attend): sets bytes; arithmetic runs at `math`
  Dtype math = Dtype::bf16;
  const char* name = "";
  double launches = 1;  // kernels; a fraction where one persistent kernel serves several chunks
  Group group;          // communication, and ops of one member
  // The member of each group that alone runs this op. Of a send_recv, it sends to the member after it, on
  // Lane::send: the message holds up neither end, and later ops wait for it on the receiver alone.
  int member = kEveryMember;
  Shape shape;                      // of class 0
  std::uint32_t variants = kAlike;  // shapes of all classes: Schedule::variants[variants + class]
  std::uint32_t first_dependency = 0, dependency_count = 0;
  Op() {}  // not defaulted: that would first fill all of it with zeros
};

Flops flops(const Op& op);         // [G1] gemm 2*rows*k*n, [G2] attend 2*pairs*q*(qk+v)
Flops exponentials(const Op& op);  // [G3] attend pairs*q
Bytes weight_bytes(const Op& op);  // [G4] gemm copies*k*n*dtype
Bytes kv_bytes(const Op& op);      // [G5] attend kv_rows*elements*dtype

constexpr int member_of(Group g, int rank) { return rank / g.stride % g.size; }
/// Whether the op is a message of one member alone.
inline bool is_hop(const Op& op) { return op.kind == OpKind::send_recv && op.member != kEveryMember; }
/// Whether `rank` does something in the op, or sends the message that it is.
inline bool takes_part(const Op& op, int rank) {
  return op.member == kEveryMember || member_of(op.group, rank) == op.member;
}
/// Whether later ops of `rank` that depend on this one have something to wait for.
inline bool binds(const Op& op, int rank) {
  return is_hop(op) ? member_of(op.group, rank) == op.member + 1 : takes_part(op, rank);
}

using BlockIndex = std::uint32_t;

/// Consecutive ops that end in a barrier: no op of the block that runs next starts before all ops of this one
/// ended, those on detached lanes apart.
struct Block {
  const char* name = "";
  OpIndex first = 0, last = 0;  // [first, last)
  bool handoff = false;         // sends to the next stage: the stage may take its next microbatch meanwhile
};

/// order[first, last) run one after the other, `times` times: identical layers are stored once.
struct Repeat {
  std::uint32_t first = 0, last = 0;
  int times = 1;
  int round = 0;
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
  // Parts of a microbatch that follow one another through the stages (chunks of a prefill). Each stage has as
  // many, in order; a stage starts one when it has ended the one before and the stage before has handed it
  // on.
  int rounds = 1;
  // Rank r is of class (r / class_stride) % classes. Ranks of one class have equal shapes throughout.
  int classes = 1, class_stride = 1;
  bool detached = false;  // some op is on a detached lane
  std::vector<Shape> variants;
  // Set before lowering: the strategy describes its data flow too, for executors.
  std::shared_ptr<Dataflow> flow;

  void clear();  // keeps `flow` set, emptied
  int class_of(int rank) const { return rank / class_stride % classes; }
  /// The op with the shape of a class.
  Op op_of_class(OpIndex op, int rank_class) const;
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

  /// Ranks r, r + stride, ... of a stage are of unequal work, in `classes` classes. Call first.
  void set_classes(int classes, int stride);
  /// Drops classes again if no op has unequal shapes. Call last.
  void fold_classes();
  /// Gives the last op one shape per class.
  void vary(std::span<const Shape> shapes);
  void drive(Drive how) { drive_ = how; }  // of the ops that follow

  void begin_block(const char* name, bool handoff = false);
  BlockIndex end_block();
  /// The runs that follow are of the stage's round `round`: 0, 1, ...
  void round(int round);
  /// Lets the current stage run these blocks in turn, `times` times; nothing if `times` is 0.
  void run(std::initializer_list<BlockIndex> blocks, int times = 1);
  void end_stage(int copies = 1);

  /// After `dependencies`, or after the previous op of the block if none are given.
  OpIndex gemm(const char* name, Part part, Dtype weights, Dtype math, GemmShape shape, double launches = 1);
  OpIndex attend(const char* name, Dtype kv, Dtype math, AttendShape shape, double launches = 1);
  OpIndex elementwise(const char* name, Part part, OpKind kind, ElementwiseShape shape, double launches = 1,
                      Within within = Within::own);
  /// A collective over one rank is dropped; returns the previous op then. `type` of what is sent.
  OpIndex exchange(const char* name, Part part, OpKind kind, Group group, Bytes bytes);
  OpIndex exchange(const char* name, Part part, OpKind kind, Group group, ExchangeShape shape, Dtype type);
  /// Member `sender` of each group sends to the one after it, and goes on at once.
  OpIndex hop(const char* name, Part part, Group group, int sender);
  /// The host of each rank launches this share of a layer's kernels, as soon as it has launched all before.
  OpIndex launch(const char* name, double share);
  /// Lets member `member` of each group run the last op alone.
  void only(Group group, int member);

  /// Replaces the dependencies of the next op. None: it starts with its block.
  void after(std::span<const OpIndex> dependencies);
  OpIndex previous() const { return static_cast<OpIndex>(s_.ops.size()) - 1; }
  Dataflow* flow() const { return s_.flow.get(); }

 private:
  Op& add(OpKind kind, Part part, const char* name, double launches);
  Schedule& s_;
  std::uint32_t program_of_stage_ = 0;
  int round_ = 0;
  bool explicit_dependencies_ = false;
  Drive drive_ = Drive::graph;
  std::vector<OpIndex> next_dependencies_;
};

}  // namespace shardline
