#include "cuda_probe/execute/cuda/device_executor.hpp"

#include <algorithm>
#include <string>

#include "cuda_probe/execute/cuda/supported.hpp"

namespace shardline {

namespace {

constexpr Lane kAllLanes[] = {Lane::compute, Lane::communication, Lane::send, Lane::host};
constexpr Lane kOfBlocks[] = {Lane::compute, Lane::communication};

/// Throws unless the schedule can run on the transport.
const Schedule& runnable(const Schedule& s, const Transport& transport) {
  if (const auto why = unsupported(s)) throw ExecutionError(*why);
  if (transport.ranks() < ranks_of(s))
    throw ExecutionError("the schedule has " + std::to_string(ranks_of(s)) + " ranks, the transport " +
                         std::to_string(transport.ranks()));
  return s;
}

}  // namespace

Seconds DeviceResult::makespan() const {
  Seconds last;
  for (const OpTime& t : times) last = std::max(last, t.end);
  return last;
}

Tensors<float> rounded_to_bf16(const Tensors<double>& tensors) {
  Tensors<float> rounded = tensors.cast<float>();
  for (Matrix<float>& m : rounded.whole) {
    for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = to_float(to_bf16(m.data()[i]));
  }
  return rounded;
}

DeviceExecutor::DeviceExecutor(const Schedule& schedule, const Tensors<float>& inputs, Lanes& lanes,
                               const DeviceOptions& options)
    : schedule_(runnable(schedule, lanes.transport())),
      flow_(*schedule.flow),
      inputs_(inputs),
      lanes_(lanes),
      transport_(lanes.transport()),
      ranks_(ranks_of(schedule)),
      layout_(flow_, ranks_),
      memory_(transport_),
      block_end_(static_cast<std::size_t>(ranks_)),
      ops_(schedule.ops.size()) {
  lanes_.start_over();
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    for (Event& end : block_end_[static_cast<std::size_t>(r)]) end = lanes_.event(r);
    Gpu& gpu = transport_.gpu(r);
    if (std::find(devices_.begin(), devices_.end(), &gpu) != devices_.end()) continue;
    devices_.push_back(&gpu);
    began_.push_back(lanes_.event(r));
  }
  for (const Extent& e : flow_.extents) {
    if (local(e.rank))
      layout_.set_memory(e.slot, e.rank, memory_.allocate(e.rank, layout_.bytes(e.slot, e.rank)));
  }
  for (const BlockIndex b : block_order(schedule_)) {
    for (OpIndex op = schedule_.blocks[b].first; op < schedule_.blocks[b].last; ++op) plan_op(op, options);
  }
}

void DeviceExecutor::plan_op(OpIndex op, const DeviceOptions& options) {
  OpPlan& plan = ops_[op];
  plan.start.resize(static_cast<std::size_t>(ranks_));
  plan.end.resize(plan.start.size());
  plan.launches.resize(plan.start.size());
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    plan.start[static_cast<std::size_t>(r)] = lanes_.event(r);
    plan.end[static_cast<std::size_t>(r)] = lanes_.event(r);
  }
  if (op >= flow_.ops.size()) return;
  const OpFlow& part = flow_.ops[op];
  if (part.moves > 0)
    plan.exchange = plan_exchange(schedule_, layout_, op, transport_, memory_, options.collectives);
  for (std::uint32_t i = 0; i < part.actions; ++i) {
    const Action& a = flow_.actions[part.first_action + i];
    if (!local(a.rank)) continue;
    plan.launches[static_cast<std::size_t>(a.rank)].push_back(
        plan_action(flow_, layout_, a, options.scale, transport_.gpu(a.rank), memory_));
  }
}

void DeviceExecutor::synchronize() {
  for (Gpu* gpu : devices_) gpu->synchronize();
}

void DeviceExecutor::fill_padding_keys() {
  constexpr std::uint8_t large = 0x71;  // 0x7171 is 1.2e30
  for (const Action& a : flow_.actions) {
    if (a.function != Function::attend || !local(a.rank)) continue;
    Region part = flow_.regions_of(a)[1];
    const std::int64_t first = part.row;
    std::int64_t row = 0;
    for (const Interval& i : flow_.token_list(a.keys)) {
      part.row = first + row;
      row += i.size();
      if (i.request != kPadding) continue;
      part.rows = 1;
      for (; part.row < first + row; ++part.row)
        transport_.gpu(a.rank).fill(lanes_.stream(a.rank, Lane::compute), layout_.block(a.rank, part).at,
                                    large, static_cast<std::size_t>(part.columns) * sizeof(Bf16));
    }
  }
}

void DeviceExecutor::load_inputs() {
  constexpr std::uint8_t nan = 0xff;
  for (const Extent& e : flow_.extents) {
    const std::size_t bytes = layout_.bytes(e.slot, e.rank);
    if (local(e.rank) && bytes > 0)
      transport_.gpu(e.rank).fill(lanes_.stream(e.rank, Lane::compute), layout_.memory(e.slot, e.rank), nan,
                                  bytes);
  }
  fill_padding_keys();
  synchronize();
  std::vector<Bf16> numbers;
  for (const Binding& b : flow_.inputs) {
    if (!local(b.rank)) continue;
    const Matrix<float> part = input_part(flow_, inputs_, b);
    const std::int64_t columns = layout_.columns(b.slot, b.rank), pitch = layout_.pitch(b.slot, b.rank);
    if (part.rows() != layout_.rows(b.slot, b.rank) || part.cols() != columns ||
        layout_.number(b.slot) != Number::bf16)
      throw ExecutionError(std::string("input '") + flow_.slots[b.slot].name + "' does not fit its slot");
    numbers.assign(static_cast<std::size_t>(part.rows() * pitch), Bf16{0xffff});
    for (Eigen::Index row = 0; row < part.rows(); ++row) {
      for (Eigen::Index column = 0; column < part.cols(); ++column)
        numbers[static_cast<std::size_t>(row * pitch + column)] = to_bf16(part(row, column));
    }
    transport_.gpu(b.rank).upload(layout_.memory(b.slot, b.rank), numbers.data(),
                                  numbers.size() * sizeof(Bf16));
  }
  synchronize();
}

Event DeviceExecutor::began(int rank) const {
  const auto device = std::find(devices_.begin(), devices_.end(), &transport_.gpu(rank));
  return began_[static_cast<std::size_t>(device - devices_.begin())];
}

void DeviceExecutor::start() {
  std::vector<bool> recorded(devices_.size());
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    Gpu& gpu = transport_.gpu(r);
    const auto device =
        static_cast<std::size_t>(std::find(devices_.begin(), devices_.end(), &gpu) - devices_.begin());
    if (!recorded[device]) gpu.record(began_[device], lanes_.stream(r, Lane::compute));
    recorded[device] = true;
    for (const Lane lane : kAllLanes) gpu.wait(lanes_.stream(r, lane), began_[device]);
  }
}

void DeviceExecutor::enqueue_op(const Block& block, OpIndex op) {
  OpPlan& plan = ops_[op];
  const Lane lane = schedule_.ops[op].lane;
  const std::vector<OpIndex> before = predecessors(schedule_, block, op);
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    for (const OpIndex b : before) {
      if (schedule_.ops[b].lane != lane && waits_for(schedule_, op, b, r))
        transport_.gpu(r).wait(lanes_.stream(r, lane), ops_[b].end[static_cast<std::size_t>(r)]);
    }
    transport_.gpu(r).record(plan.start[static_cast<std::size_t>(r)], lanes_.stream(r, lane));
  }
  std::vector<Stream> streams;
  for (int r = 0; r < transport_.ranks(); ++r) streams.push_back(lanes_.stream(r, lane));
  enqueue(plan.exchange, transport_, streams);
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    const Stream stream = lanes_.stream(r, lane);
    for (const Launch& launch : plan.launches[static_cast<std::size_t>(r)]) launch(transport_.gpu(r), stream);
    transport_.gpu(r).record(plan.end[static_cast<std::size_t>(r)], stream);
  }
}

void DeviceExecutor::end_block() {
  for (int r = 0; r < ranks_; ++r) {
    if (!local(r)) continue;
    Gpu& gpu = transport_.gpu(r);
    const std::array<Event, 2>& end = block_end_[static_cast<std::size_t>(r)];
    for (std::size_t lane = 0; lane < 2; ++lane) gpu.record(end[lane], lanes_.stream(r, kOfBlocks[lane]));
    for (std::size_t lane = 0; lane < 2; ++lane) gpu.wait(lanes_.stream(r, kOfBlocks[lane]), end[1 - lane]);
  }
}

Output<float> DeviceExecutor::download(const Binding& b) {
  Output<float> output{b, {}};
  if (!local(b.rank)) return output;
  const std::int64_t row_count = layout_.rows(b.slot, b.rank), columns = layout_.columns(b.slot, b.rank);
  const std::int64_t pitch = layout_.pitch(b.slot, b.rank);
  output.values.resize(row_count, columns);
  const auto take = [&](auto number, auto to_number) {
    std::vector<decltype(number)> numbers(static_cast<std::size_t>(row_count * pitch));
    transport_.gpu(b.rank).download(numbers.data(), layout_.memory(b.slot, b.rank),
                                    numbers.size() * sizeof number);
    for (std::int64_t row = 0; row < row_count; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        output.values(row, column) = to_number(numbers[static_cast<std::size_t>(row * pitch + column)]);
    }
  };
  if (layout_.number(b.slot) == Number::bf16) {
    take(Bf16{}, [](Bf16 v) { return to_float(v); });
  } else {
    take(0.0f, [](float v) { return v; });
  }
  return output;
}

DeviceResult DeviceExecutor::run() {
  load_inputs();
  start();
  const std::vector<BlockIndex> blocks = block_order(schedule_);
  for (const BlockIndex b : blocks) {
    const Block& block = schedule_.blocks[b];
    for (OpIndex op = block.first; op < block.last; ++op) enqueue_op(block, op);
    end_block();
  }
  synchronize();
  DeviceResult result;
  result.ranks = ranks_;
  result.times.resize(schedule_.ops.size() * static_cast<std::size_t>(ranks_));
  for (const BlockIndex b : blocks) {
    for (OpIndex op = schedule_.blocks[b].first; op < schedule_.blocks[b].last; ++op) {
      for (int r = 0; r < ranks_; ++r) {
        if (!local(r)) continue;
        Gpu& gpu = transport_.gpu(r);
        const auto rank = static_cast<std::size_t>(r);
        result.times[static_cast<std::size_t>(op) * static_cast<std::size_t>(ranks_) + rank] = {
            gpu.elapsed(began(r), ops_[op].start[rank]), gpu.elapsed(began(r), ops_[op].end[rank])};
      }
    }
  }
  for (const Binding& b : flow_.outputs) result.outputs.push_back(download(b));
  return result;
}

}  // namespace shardline
