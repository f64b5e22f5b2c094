// A Schedule is plain data: the operations of one step, the same list on every rank, in
// blocks that repeat. Ranks that hold unequal work form classes with shapes of their own. The same ops are
// timed (hardware/kernel_cost), computed and run; FLOPs and bytes follow from their shapes by geometry
// (models/README.md [G1]-[G7]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/ir/dataflow.hpp"
#include "models/ir/shapes.hpp"
#include "sim/base/index.hpp"

namespace shardline {

/// What an op does. Each kind has one type of shape, see shape_of().
enum class OpKind : std::uint8_t {
  gemm,
  batched_gemm,  // one matrix per head
  grouped_gemm,  // one matrix per expert
  attend_prefill,
  attend_decode,
  merge,  // partial outputs by their log-sum-exps
  elementwise,
  compress,       // the rows with the highest scores
  launch,         // a host enqueues kernels of its rank
  index_logits,   // scores of an index, which chooses the keys of sparse attention
  top_k,          // the choice
  attend_sparse,  // attention to what was chosen
  module_rest,    // small kernels of a block of sparse attention
  convolve,       // the short convolution of linear attention
  recur,          // its state: decayed, corrected and read
  mix_streams,    // residual streams, to what a sublayer reads or by what it gives
  send_recv,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  dispatch,  // tokens to the ranks of their experts
  combine    // their results back
};
inline constexpr std::size_t kOpKinds = 23;
std::string_view to_string(OpKind kind);
constexpr bool is_communication(OpKind k) { return k >= OpKind::send_recv; }
constexpr bool is_attention(OpKind k) { return k == OpKind::attend_prefill || k == OpKind::attend_decode; }
/// Parts of a block of sparse attention with an index that its own forms price [H71].
constexpr bool is_of_index(OpKind k) { return k >= OpKind::index_logits && k <= OpKind::module_rest; }
/// Linear attention's own, which have states in place of caches.
constexpr bool is_recurrent(OpKind k) { return k == OpKind::convolve || k == OpKind::recur; }
/// Matrix products with weights.
constexpr bool is_gemm(OpKind k) { return k <= OpKind::grouped_gemm; }

/// Index in Shape of the type that an op of this kind has.
constexpr std::size_t shape_of(OpKind k) {
  switch (k) {
    case OpKind::gemm:
      return 0;
    case OpKind::batched_gemm:
      return 1;
    case OpKind::grouped_gemm:
      return 2;
    case OpKind::attend_prefill:
      return 3;
    case OpKind::attend_decode:
      return 4;
    case OpKind::merge:
    case OpKind::elementwise:
    case OpKind::compress:
    case OpKind::launch:
      return 5;
    case OpKind::index_logits:
      return 8;
    case OpKind::top_k:
      return 9;
    case OpKind::attend_sparse:
      return 10;
    case OpKind::module_rest:
      return 11;
    case OpKind::convolve:
    case OpKind::recur:
      return 12;
    case OpKind::mix_streams:
      return 13;
    case OpKind::send_recv:
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      return 6;
    case OpKind::dispatch:
    case OpKind::combine:
      return 7;
  }
  return std::variant_npos;
}

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
  constexpr std::uint64_t word() const {
    return (static_cast<std::uint64_t>(size) << 32) | static_cast<std::uint32_t>(stride);
  }
};

/// How a host drives an op. graph: replayed from a CUDA graph. eager: launched kernel by kernel, which adds
/// the system's runtime costs to messages; ring_step, persistent_kv and distribute are host work of such
/// engines. host_layer: the host's time to launch the share of a layer that Op::launches says. engine:
/// what an engine does around the kernels of a step of `rows` decoding requests and `width` tokens of
/// prompts. host_kernel: the engine's host starts Op::launches kernels, one by one.
enum class Drive : std::uint8_t {
  graph,
  eager,
  ring_step,
  persistent_kv,
  host_layer,
  distribute,
  engine,
  host_kernel
};

/// What of a block an engine's host starts by itself. graph: nothing, one graph of the whole step is
/// replayed. pieces: attention, and a graph of what lies between two attentions. kernels: everything.
enum class HostStarts : std::uint8_t { graph, pieces, kernels };

std::string_view to_string(Drive drive);

/// The kernel beside it that may do an elementwise op's work too, and whose measured time then holds it.
enum class Within : std::uint8_t { own, gemm, prefill_attention, decode_attention, decode_merge, experts };
std::string_view to_string(Within within);

using OpIndex = Index<struct OpTag>;        // of Schedule::ops
using BlockIndex = Index<struct BlockTag>;  // of Schedule::blocks

inline constexpr std::uint32_t kAlike = ~std::uint32_t{0};
inline constexpr int kEveryMember = -1;

/// All of an op that its price may depend on. Cost models see no more, so that a memo of prices, whose key
/// follows from `visit`, cannot forget anything.
struct PricedFields {
  OpKind kind = OpKind::gemm;
  Drive drive = Drive::graph;
  Within within = Within::own;
  Dtype dtype = Dtype::bf16;  // of weights (gemms) or KV (attention): sets bytes; arithmetic runs at `math`
  Dtype math = Dtype::bf16;
  double launches = 1;  // kernels; a fraction where one persistent kernel serves several chunks
  double sms = 1;       // the part of the processors that it may use: those of messages beside it are taken
  Group group;          // communication, and ops of one member
  static constexpr void visit(auto& s, auto&& f) {
    f("kind", s.kind);
    f("drive", s.drive);
    f("within", s.within);
    f("dtype", s.dtype);
    f("math", s.math);
    f("launches", s.launches);
    f("sms", s.sms);
    f("group", s.group);
  }
};
static_assert(complete<PricedFields>(), "visit() names every field once");

struct PricedOp : PricedFields {
  Shape shape;  // of class 0; of the type that shape_of(kind) says
};
static_assert(kMembers<PricedOp> == 2, "a key of PricedFields and the shape holds all of a PricedOp");

struct Op : PricedOp {
  Part part = Part::qkv;
  Lane lane = Lane::compute;
  const char* name = "";
  // The member of each group that alone runs this op. Of a send_recv, it sends to the member after it, on
  // Lane::send: the message holds up neither end, and later ops wait for it on the receiver alone.
  int member = kEveryMember;
  std::uint32_t variants = kAlike;  // shapes of all classes: Schedule::variants[variants + class]
  std::uint32_t first_dependency = 0, dependency_count = 0;
};

/// The shape of an op, whose type must be that of its kind.
template <class S>
const S& shape(const PricedOp& op) {
  return std::get<S>(op.shape);
}

/// Whether all of both that a price may depend on is equal.
bool same_price(const PricedOp& a, const PricedOp& b);

Flops flops(const PricedOp& op);         // [G1] gemms 2*rows*k*n, [G2] attention 2*pairs*q*(qk+v)
Flops exponentials(const PricedOp& op);  // [G3] attention pairs*q
Bytes weight_bytes(const PricedOp& op);  // [G4] gemms matrices*k*n*dtype
Bytes kv_bytes(const PricedOp& op);      // [G5] attention kv_rows*elements*dtype; index keys; states [G9]
/// [G9] Rows that linear attention reads and writes beside its states, 2 bytes a number: queries, keys and
/// values in and out of the convolution; the same and the outputs of the state.
Bytes token_bytes(const PricedOp& op);
/// [G8] Scores of an index that are written, or read to choose: 4 bytes each.
Bytes score_bytes(const PricedOp& op);
/// That leave this rank, or that it contributes [ExchangeShape]; 0 of computation.
Bytes message_bytes(const PricedOp& op);

/// One line: kind, types, launches, group and every field of the shape by its name.
std::string describe(const PricedOp& op);

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

/// Consecutive ops that end in a barrier: no op of the block that runs next starts before all ops of this one
/// ended, those on detached lanes apart.
struct Block {
  const char* name = "";
  OpIndex first, last;   // [first, last)
  bool handoff = false;  // sends to the next stage: the stage may take its next microbatch meanwhile
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
  /// Whether an op waits for nothing in its block but its own start by the engine's host: for the block
  /// before.
  bool opens_block(const Op& op) const {
    for (const OpIndex d : dependencies_of(op)) {
      if (ops[d].drive != Drive::host_kernel) return false;
    }
    return true;
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
  /// What the host starts of the blocks that follow. Returns what it was.
  HostStarts host_starts(HostStarts what) { return std::exchange(starts_, what); }

  void begin_block(const char* name, bool handoff = false);
  BlockIndex end_block();
  /// The runs that follow are of the stage's round `round`: 0, 1, ...
  void round(int round);
  /// Lets the current stage run these blocks in turn, `times` times; nothing if `times` is 0.
  void run(std::initializer_list<BlockIndex> blocks, int times = 1);
  void end_stage(int copies = 1);

  /// After `dependencies`, or after the previous op of the block if none are given.
  OpIndex gemm(const char* name, Part part, Dtype weights, Dtype math, GemmShape shape, double launches = 1);
  OpIndex gemm(const char* name, Part part, Dtype weights, Dtype math, BatchedGemmShape shape,
               double launches = 1);
  OpIndex gemm(const char* name, Part part, Dtype weights, Dtype math, GroupedGemmShape shape,
               double launches = 1);
  OpIndex attend(const char* name, Dtype kv, Dtype math, AttendPrefillShape shape, double launches = 1);
  OpIndex attend(const char* name, Dtype kv, Dtype math, AttendDecodeShape shape, double launches = 1);
  /// Of sparse attention, in the cache's type.
  OpIndex indexed(const char* name, Part part, Dtype kv, Dtype math, const IndexLogitsShape& shape);
  OpIndex indexed(const char* name, Part part, Dtype kv, Dtype math, const TopKShape& shape);
  OpIndex indexed(const char* name, Part part, Dtype kv, Dtype math, const AttendSparseShape& shape,
                  double launches = 1);
  OpIndex indexed(const char* name, Part part, Dtype kv, Dtype math, const ModuleRestShape& shape,
                  double launches);
  /// Weights in float32, as hyper-connections have them.
  OpIndex mix(const char* name, Part part, Dtype math, const MixShape& shape);
  /// convolve or recur.
  OpIndex recurrent(const char* name, OpKind kind, Dtype math, const RecurrentShape& shape);
  OpIndex elementwise(const char* name, Part part, OpKind kind, ElementwiseShape shape, double launches = 1,
                      Within within = Within::own);
  /// A collective over one rank is dropped; returns the previous op then. `type` of what is sent.
  OpIndex exchange(const char* name, Part part, OpKind kind, Group group, Bytes bytes);
  OpIndex exchange(const char* name, Part part, OpKind kind, Group group, ExchangeShape shape, Dtype type);
  /// Dispatch or combine; dropped over one rank.
  OpIndex route(const char* name, OpKind kind, Group group, RoutedShape shape, Dtype type);
  /// Another schedule's op as it is, but for what it waits for.
  OpIndex copy(const Op& op);
  /// Member `sender` of each group sends to the one after it, and goes on at once.
  OpIndex hop(const char* name, Part part, Group group, int sender);
  /// The host of each rank launches this share of a layer's kernels, as soon as it has launched all before.
  OpIndex launch(const char* name, double share);
  /// Lets member `member` of each group run the last op alone.
  void only(Group group, int member);

  /// Replaces the dependencies of the next op. None: it starts with its block.
  void after(std::span<const OpIndex> dependencies);
  OpIndex previous() const { return OpIndex(static_cast<std::uint32_t>(s_.ops.size()) - 1); }
  Dataflow* flow() const { return s_.flow.get(); }

 private:
  // Of a shape by its own type: only its own fields are written.
  template <class S>
  Op& add(OpKind kind, Part part, const char* name, double launches, const S& shape);
  template <class S>
  OpIndex matrices(OpKind kind, const char* name, Part part, Dtype weights, Dtype math, const S& shape,
                   double launches);
  // The first op of a block that a host starts: it takes as long as starting all others does, and the last
  // of them waits for it.
  void begin_host_kernels();
  void end_host_kernels();
  Schedule& s_;
  std::uint32_t program_of_stage_ = 0;
  int round_ = 0;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t explicit_from_ = kNone;  // where those of the next op begin, if after() was called
  Drive drive_ = Drive::graph;
  HostStarts starts_ = HostStarts::graph;
};

}  // namespace shardline
