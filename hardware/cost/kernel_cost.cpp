#include "hardware/cost/kernel_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr int kLeastKnown = 8, kMostKnown = 13;  // bits
// A floor stays one where sums of times that are equal in theory round apart.
constexpr double kRounding = 1 - 1e-12;

// Every rank of the group sends to every other.
bool exchanges_all(OpKind k) {
  return k == OpKind::all_to_all || k == OpKind::dispatch || k == OpKind::combine;
}

// Fraction of peak of a prefill attention kernel: whole waves of tiles at the tile's own rate, and never
// above the rate that long kernels sustain [H18].
double tile_rate(const Device& d, const AttendPrefillShape& a) {
  if (d.sms == 0) return d.attention();
  const auto tiles = static_cast<double>(a.tiles * a.q_heads);
  const double waves = std::ceil(tiles / d.sms);
  // Tiles that are not full take as long as full ones; a wave that is not full as long as a full one.
  const double used = static_cast<double>(a.q_rows * a.q_heads) / (waves * d.sms * kTileRows);
  return std::min(d.attention(), d.tile() * used);
}

}  // namespace

GroupFabric FabricCache::group(Group g) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = groups_.find(g.word()); it != groups_.end()) return it->second;
  }
  // Computed outside the lock: two threads may do it twice, with the same result.
  const GroupFabric paths = group_fabric(fabric_, g);
  const std::lock_guard lock(mutex_);
  return groups_.emplace(g.word(), paths).first->second;
}

CostModel::CostModel(const System& system, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : system_(&system),
      cache_(cache ? std::move(cache) : std::make_shared<FabricCache>(system.fabric)),
      rule_(rule) {
  const Device& d = system.device;
  tensor_rate_ = *std::max_element(d.peak.begin(), d.peak.end()) * d.compute_efficiency;
  nvlink_rate_ = system.fabric.nvlink.switches > 0
                     ? system.fabric.nvlink.bandwidth * system.fabric.nvlink.efficiency
                     : BytesPerSecond(1);
  network_rate_ = system.fabric.network.present
                      ? system.fabric.network.bandwidth * system.fabric.network.efficiency
                      : BytesPerSecond(1);
  if (!system.calibration.empty()) {
    fitted_.emplace(system);
  }
}

const GroupFabric& CostModel::group(Group g) {
  const std::uint64_t key = g.word();
  if (key == last_key_) return *last_group_;
  auto it = groups_.find(key);
  if (it == groups_.end()) it = groups_.emplace(key, cache_->group(g)).first;
  last_key_ = key;
  last_group_ = &it->second;
  return it->second;
}

namespace {

bool elementwise(const PricedOp& op) {
  return op.kind == OpKind::elementwise || op.kind == OpKind::merge || op.kind == OpKind::compress;
}

}  // namespace

std::uint64_t CostModel::Key::hash() const {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < used; ++i) hash = (std::rotl(hash, 5) ^ words[i]) * 0x9E3779B97F4A7C15;
  return hash;
}

// A sweep asks for thousands of ops, a plan for dozens: the table grows with what is asked.
template <class Value>
void CostModel::Remembered<Value>::grow() {
  const std::vector<Known<Value>> before = std::move(all);
  bits = before.empty() ? kLeastKnown : std::min(bits + 2, kMostKnown);
  all.assign(std::size_t{1} << bits, {});
  for (const Known<Value>& known : before) {
    if (known.key.used > 0) at(known.key) = known;
  }
  found = 0;
}

template <class Value, class Find>
const Value& CostModel::remember(Remembered<Value>& known, const PricedOp& op, Find find) {
  const Key key = key_of(op);
  if (!known.all.empty()) {
    const Known<Value>& there = known.at(key);
    if (there.key == key) return there.value;
  }
  if (known.all.empty() || (known.bits < kMostKnown && known.found >= known.all.size())) known.grow();
  ++known.found;
  Known<Value>& place = known.at(key);
  place.value = find();
  place.key = key;
  return place.value;
}

OpCost CostModel::price(const PricedOp& op) {
  if (!fitted_) return by_parameters(op);
  if (elementwise(op)) return by_measurement(op);
  return remember(known_, op, [&] { return by_measurement(op); });
}

Seconds CostModel::floor(const PricedOp& op) {
  if (!fitted_) return time(op);
  if (!floor_) floor_.emplace(*system_, Pricing::floor);  // sweeps of decode steps ask for none
  const auto find = [&] {
    const std::optional<FittedPrice> p = fitted_price(*floor_, op);
    return p ? p->time * kRounding : alone(by_parameters(op));
  };
  return elementwise(op) ? find() : remember(known_floors_, op, find);
}

PriceInterval CostModel::interval(const PricedOp& op) {
  if (op.drive == Drive::engine) return {system_->host.band, ErrorSource::host, nullptr};
  if (!fitted_) return {};
  std::optional<FittedPrice> p = fitted_price(*fitted_, op);
  if (!p) return {};
  if (p->distance.asks_fixed()) {
    if (!faster_) faster_.emplace(*system_, Pricing::exact, kFaster);
    const std::optional<FittedPrice> quick = fitted_price(*faster_, op);
    const bool same = quick && quick->fit == p->fit;
    p->distance.fixed = same ? static_cast<float>(of_fixed_times(p->time.value, quick->time.value)) : 1.0F;
  }
  return CalibratedCost::interval(op, *p);
}

bool CostModel::Key::operator==(const Key& other) const {
  if (used != other.used) return false;
  for (std::size_t i = 0; i < used; ++i) {
    if (words[i] != other.words[i]) return false;
  }
  return true;
}

CostModel::Key CostModel::key_of(const PricedOp& op) {
  Key key;
  std::uint64_t* const begin = key.words.data();
  std::uint64_t* const fields = write_words<PricedFields>(op, begin);
  key.used = static_cast<std::size_t>(
      std::visit([&](const auto& shape) { return write_words(shape, fields); }, op.shape) - begin);
  return key;
}

// The demands of the op, in the time that was measured: what they do not explain is latency, and where they
// explain more, they are met faster than the parameters say.
OpCost CostModel::lasting(OpCost c, Seconds time) const {
  c.latency = Seconds(0);
  const Seconds busy = alone(c);
  if (busy > time) {
    const double faster = time / busy;
    c.tensor = c.tensor * faster;
    c.memory = c.memory * faster;
    c.exponentials = c.exponentials * faster;
    c.port = c.port * faster;
  } else {
    c.latency = time - busy;
  }
  return c;
}

// Whether fewer processors make it slower: few of them read memory as fast as all.
bool CostModel::by_arithmetic(const PricedOp& op) const {
  const Device& d = system_->device;
  if (is_attention(op.kind)) return flops(op) / d.achieved(op.math) > kv_bytes(op) / d.achieved_memory();
  return is_gemm(op.kind) && flops(op) / d.achieved(op.math) > weight_bytes(op) / d.achieved_memory();
}

std::optional<FittedPrice> CostModel::fitted_price(CalibratedCost& by, const PricedOp& op) {
  const bool exchange = is_communication(op.kind);
  // A pinned algorithm is a question about algorithms, which fits do not tell apart.
  if (op.kind == OpKind::all_reduce && rule_ != AllReduceRule::fastest) return std::nullopt;
  std::optional<FittedPrice> p = by.price(op, exchange ? &group(op.group) : nullptr);
  if (p && op.sms < 1 && by_arithmetic(op)) p->time = p->time / op.sms;
  if (p && exchange && op.drive == Drive::eager && !last_group_->whole.one_node) {
    if (op.kind == OpKind::send_recv) p->time += system_->runtime.send_recv;
    if (exchanges_all(op.kind)) p->time += system_->runtime.all_to_all;
  }
  return p;
}

OpCost CostModel::by_measurement(const PricedOp& op) {
  const std::optional<FittedPrice> p = fitted_price(*fitted_, op);
  OpCost c = by_parameters(op);
  if (!p) return c;
  c = lasting(c, p->time);
  c.algorithm = Algorithm::none;
  c.basis = p->basis;
  c.fit = p->fit;
  return c;
}

OpCost CostModel::by_parameters(const PricedOp& op) {
  const Device& d = system_->device;
  OpCost c;
  if (op.drive == Drive::host_layer) {
    c.latency = system_->runtime.host_layer * op.launches;
    return c;
  }
  if (op.drive == Drive::host_kernel) {
    c.latency = system_->host.launch * op.launches;
    c.basis = Basis::fitted;  // to operators that engines start one by one
    return c;
  }
  if (op.drive == Drive::engine) {
    const ElementwiseShape& around = shape<ElementwiseShape>(op);
    const StepHost& host = system_->host;
    c.latency = host.step + host.request * static_cast<double>(around.rows) +
                host.prompt_token * static_cast<double>(around.width);
    c.basis = Basis::fitted;  // to measured serving
    return c;
  }
  c.latency = d.kernel_cost * op.launches;
  if (is_gemm(op.kind) || is_attention(op.kind)) {
    FlopsPerSecond rate = d.achieved(op.math);
    SL_CHECK(rate > FlopsPerSecond(0), "the device has a unit for the arithmetic of every op");
    if (op.kind == OpKind::attend_prefill && !shape<AttendPrefillShape>(op).all_pairs) {
      rate = d.peak[static_cast<std::size_t>(op.math)] * tile_rate(d, shape<AttendPrefillShape>(op));
    }
    c.tensor = flops(op) * (tensor_rate_ / rate) / op.sms;
    c.memory = is_gemm(op.kind) ? weight_bytes(op) : kv_bytes(op);
    c.exponentials = exponentials(op);
  } else if (is_communication(op.kind)) {
    const CollectiveTime t = collective(op.kind, group(op.group), message_bytes(op), rule_);
    c.latency += t.latency;
    c.algorithm = t.algorithm;
    if (op.drive == Drive::eager && !last_group_->whole.one_node) {
      if (op.kind == OpKind::send_recv) c.latency += system_->runtime.send_recv;
      if (exchanges_all(op.kind)) c.latency += system_->runtime.all_to_all;
    }
    const bool inside = last_group_->whole.one_node;
    c.port_resource = inside ? RankResource::nvlink : RankResource::network;
    c.port = t.wire * ((inside ? nvlink_rate_ : network_rate_) / t.rate);
  } else if (is_of_index(op.kind) || is_recurrent(op.kind) || op.kind == OpKind::mix_streams) {
    // Scores are narrow products of index keys; what was chosen is attended to in the op's own arithmetic.
    c.tensor = flops(op) * (tensor_rate_ / d.achieved(op.math)) / op.sms;
    c.memory = kv_bytes(op) + score_bytes(op) + token_bytes(op) + weight_bytes(op);
    c.exponentials = exponentials(op);
  } else {
    c.memory = shape<ElementwiseShape>(op).bytes;
    if (op.drive == Drive::distribute) c.latency += system_->runtime.distribute;
    if (op.drive == Drive::ring_step) c.latency += system_->runtime.ring_step;
    if (op.drive == Drive::persistent_kv) {
      c.latency += system_->runtime.persistent_layer;
      c.memory = system_->runtime.persistent_traffic * static_cast<double>(shape<ElementwiseShape>(op).rows);
    }
  }
  if (c.latency + c.tensor / tensor_rate_ + c.memory / d.achieved_memory() <= Seconds(0) && c.port.value == 0)
    c.basis = Basis::none;
  return c;
}

Seconds CostModel::alone(const OpCost& c) const {
  const BytesPerSecond port = c.port_resource == RankResource::nvlink ? nvlink_rate_ : network_rate_;
  return c.latency + std::max({c.tensor / tensor_rate_, c.memory / system_->device.achieved_memory(),
                               c.exponentials / system_->device.exponentials, c.port / port});
}

std::string_view to_string(Limit limit) {
  switch (limit) {
    case Limit::tensor:
      return "tensor cores";
    case Limit::memory:
      return "HBM";
    case Limit::exponentials:
      return "exponentials";
    case Limit::nvlink:
      return "NVLink";
    case Limit::network:
      return "network";
    case Limit::overhead:
      return "overhead";
  }
  return "";
}

Limit CostModel::limit(const OpCost& c) const {
  const bool inside = c.port_resource == RankResource::nvlink;
  const std::array<std::pair<Seconds, Limit>, 4> demands{
      {{c.tensor / tensor_rate_, Limit::tensor},
       {c.memory / system_->device.achieved_memory(), Limit::memory},
       {c.exponentials / system_->device.exponentials, Limit::exponentials},
       {c.port / (inside ? nvlink_rate_ : network_rate_), inside ? Limit::nvlink : Limit::network}}};
  const auto longest = std::max_element(demands.begin(), demands.end(),
                                        [](const auto& a, const auto& b) { return a.first < b.first; });
  return longest->first > Seconds(0) ? longest->second : Limit::overhead;
}

Seconds CostModel::time(const PricedOp& op) {
  if (!fitted_) {
    const bool plain = op.kind == OpKind::elementwise || op.kind == OpKind::merge;
    if (plain && op.drive == Drive::graph && shape<ElementwiseShape>(op).bytes == Bytes(0))
      return system_->device.kernel_cost * op.launches;
    return alone(by_parameters(op));
  }
  const auto find = [&] {
    const std::optional<FittedPrice> p = fitted_price(*fitted_, op);
    return p ? p->time : alone(by_parameters(op));
  };
  return elementwise(op) ? find() : remember(known_times_, op, find);
}

Machine CostModel::machine(int ranks) const {
  Machine m;
  for (int r = 0; r < ranks; ++r) {
    const std::string prefix = ranks == 1 ? "" : "rank " + std::to_string(r) + " ";
    m.add(prefix + "tensor", tensor_rate_);
    m.add(prefix + "memory", system_->device.achieved_memory());
    m.add(prefix + "exponentials", system_->device.exponentials);
    m.add(prefix + "nvlink", nvlink_rate_);
    m.add(prefix + "network", network_rate_);
  }
  return m;
}

}  // namespace shardline
