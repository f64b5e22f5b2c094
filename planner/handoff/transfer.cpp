#include "planner/handoff/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "hardware/machine/routes.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/prompt_step.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/engine/engine.hpp"

namespace shardline {

namespace {

// What the play of a step of a rank takes, and each link that its messages use: peak resident memory of 64
// ranks on GB200, whose messages use 1,152, rounded up (tests/golden/memory.py asks again).
constexpr double kStepBytes = 400, kDemandBytes = 45, kPlayBytes = 85e6;
constexpr int kMostSteps = 1 << 14;  // of a plan beside a transfer: more are not played

// What goes from one rank to another at once: of all layers, or of one.
struct Flow {
  int from = 0, to = 0, layer = 0;
  long long descriptors = 0;
  double bytes = 0;
};

// Of a gathered hand-off one message per pair of ranks, whatever it is made of.
std::vector<Flow> flows_of(const Handoff& h, bool by_layer) {
  std::map<std::tuple<int, int, int>, Flow> flows;  // by layer first: they are sent in this order
  CancelCheck check;
  for (const CachePiece& p : h.pieces) {
    check();
    for (int layer = p.layers.first; layer < p.layers.end; ++layer) {
      if (h.source.kind_of[static_cast<std::size_t>(layer)] != p.kind) continue;
      const int key = by_layer ? layer : 0;
      Flow& f = flows[{key, p.from, p.to}];
      f.from = p.from;
      f.to = p.to;
      f.layer = key;
      f.descriptors = h.pages.gathered ? 1 : f.descriptors + p.descriptors / p.layer_count;
      f.bytes += p.bytes.value / p.layer_count;
    }
  }
  std::vector<Flow> out;
  for (const auto& [key, f] : flows) out.push_back(f);
  return out;
}

// Tasks of transfers on the links of a fabric, or of two.
MemoryNeed need_of(double steps, std::size_t demands) {
  return {Bytes(kPlayBytes + steps * (kStepBytes + kDemandBytes * static_cast<double>(demands))),
          fmt::format("{:.0f} steps of ranks beside a hand-off", steps),
          "fewer tokens, which take less time"};
}

class Play {
 public:
  Play(const std::vector<TransferFabric::Side>& sides, const TransferCosts& costs)
      : sides_(sides), costs_(costs) {
    for (const TransferFabric::Side& side : sides) {
      first_.push_back(links_);
      const double share = side.spec.network.present ? side.spec.network.send_recv_share : 1;
      for (const FabricRoutes::Edge& e : side.routes->edges())
        machine_.add("link", e.bandwidth * (e.network ? share : 1.0));
      links_ += side.routes->edges().size();
    }
  }

  // Returns the tasks that have to end.
  std::vector<TaskId> add(const Transfer& t) {
    const Handoff& h = *t.handoff;
    const auto layers = static_cast<double>(h.source.kind_of.size());
    // Layer by layer several transfers are under way at once, each in its own order.
    if (costs_.by_layer) posted_.clear();
    std::vector<TaskId> ends;
    for (const Flow& f : flows_of(h, costs_.by_layer)) {
      check_cancelled();  // its load is over all links of the fabric
      const double done = costs_.by_layer ? (f.layer + 1) / layers : 1;
      const Seconds ready = std::max(t.begin + t.prefill * done, t.room);
      const int from = t.source_gpu + f.from, to = t.target_gpu + f.to;
      const Seconds each = inside(from, to) ? costs_.nvlink_descriptor : costs_.network_descriptor;
      const TaskId computed = graph_.add(ready, {}, {});
      const int poster = costs_.receiver_posts ? to : from;
      std::vector<TaskId> before{computed};
      if (const auto last = posted_.find(poster); last != posted_.end()) before.push_back(last->second);
      const TaskId post = graph_.add(each * static_cast<double>(f.descriptors), {}, std::span(before));
      posted_[poster] = post;
      ends.push_back(move(from, to, f.bytes, post));
    }
    return ends;
  }

  // `times` steps one after the other on every rank, of one fabric.
  void add(const OwnMessages& m, int times) {
    const FabricRoutes& routes = *sides_.front().routes;
    const int ranks = m.group.size;
    for (int member = 0; member < ranks && ranks > 1; ++member) {
      check_cancelled();
      const int gpu = m.first_gpu + member * m.group.stride;
      std::vector<double> load(routes.edges().size(), 0);
      for (int other = 0; other < ranks; ++other) {
        if (other != member)
          routes.add_load(routes.to(m.first_gpu + other * m.group.stride),
                          {{static_cast<FabricPlace>(gpu), m.bytes.value / (ranks - 1)}}, load);
      }
      const std::vector<Demand> sent = demands(load, first_.front());
      if (member == 0) require_memory(need_of(own_steps_ += static_cast<double>(ranks) * times, sent.size()));
      TaskId last = graph_.add(Seconds(0), {}, {});
      CancelCheck check;
      for (int step = 0; step < times; ++step) {
        check();
        const TaskId computed = graph_.add(m.pause, {}, {last});
        last = graph_.add(Seconds(0), sent, {computed}, Sharing::equal_rate);
      }
    }
  }

  const Timeline& play() {
    Engine().run(graph_, machine_, timeline_);
    return timeline_;
  }

 private:
  static std::vector<Demand> demands(const std::vector<double>& load, std::size_t first) {
    std::vector<Demand> out;
    for (std::size_t e = 0; e < load.size(); ++e) {
      if (load[e] > 0) out.push_back(Demand::on(static_cast<ResourceId>(first + e), Bytes(load[e])));
    }
    return out;
  }

  bool inside(int from, int to) const {
    const int node = sides_.front().spec.gpus_per_node;
    return sides_.size() == 1 && from / node == to / node;
  }

  // GPUs of a side, whose other half stands for those elsewhere.
  static int half(const FabricSpec& spec) { return spec.nodes / 2 * spec.gpus_per_node; }

  // A way on a side, and what its latency is.
  Seconds take(std::size_t side, int from, int to, double bytes, std::vector<Demand>& out) const {
    const auto& [spec, routes] = sides_[side];
    const FabricRoutes::To& way = routes->to(to);
    std::vector<double> load(routes->edges().size(), 0);
    routes->add_load(way, {{static_cast<FabricPlace>(from), bytes}}, load);
    const std::vector<Demand> on = demands(load, first_[side]);
    out.insert(out.end(), on.begin(), on.end());
    Seconds latency = way.latency[static_cast<std::size_t>(from)];
    if (from / spec.gpus_per_node != to / spec.gpus_per_node) latency += spec.network.send_recv_extra;
    return latency;
  }

  // A message over the route, behind a handshake: the request for it and the way back. Between two fabrics it
  // leaves one as to a node of its own network, and comes to the other as from one of that: it takes links of
  // both at once, at the rate of the narrower, and the longer way.
  TaskId move(int from, int to, double bytes, TaskId before) {
    std::vector<Demand> on;
    Seconds latency;
    if (sides_.size() == 1) {
      latency = take(0, from, to, bytes, on);
    } else {
      latency = std::max(take(0, from, from + half(sides_[0].spec), bytes, on),
                         take(1, to + half(sides_[1].spec), to, bytes, on));
    }
    return graph_.add(2.0 * latency, on, {before}, Sharing::equal_rate);
  }

  const std::vector<TransferFabric::Side>& sides_;
  const TransferCosts costs_;
  std::vector<std::size_t> first_;  // link of each side
  std::size_t links_ = 0;
  std::map<int, TaskId> posted_;  // the last descriptors that a GPU has submitted
  double own_steps_ = 0;          // of all ranks
  Machine machine_;
  TaskGraph graph_;
  Timeline timeline_;
};

}  // namespace

namespace {

int nodes_of(const FabricSpec& spec, int gpus) {
  return (gpus + spec.gpus_per_node - 1) / spec.gpus_per_node;
}

TransferFabric::Side side_of(FabricSpec spec, int nodes) {
  const int uplink = nodes_per_uplink(spec);
  spec.nodes = nodes;
  auto routes = std::make_unique<FabricRoutes>(spec, uplink);
  return {std::move(spec), std::move(routes)};
}

}  // namespace

TransferFabric::TransferFabric(const FabricSpec& spec, int gpus) {
  sides_.push_back(side_of(spec, std::min(spec.nodes, nodes_of(spec, gpus))));
}

TransferFabric::TransferFabric(const FabricSpec& source, int source_gpus, const FabricSpec& target,
                               int target_gpus) {
  SL_CHECK(source.network.present && target.network.present, "no_way_between() was asked");
  sides_.push_back(side_of(source, 2 * nodes_of(source, source_gpus)));
  sides_.push_back(side_of(target, 2 * nodes_of(target, target_gpus)));
}
TransferFabric::~TransferFabric() = default;
TransferFabric::TransferFabric(TransferFabric&&) noexcept = default;

std::vector<TransferTime> TransferFabric::play(const std::vector<Transfer>& transfers,
                                               const TransferCosts& costs,
                                               const std::vector<OwnMessages>& messages) const {
  SL_CHECK(messages.empty() || !of_two(), "messages are of one fabric");
  // Steps go on until the transfers have ended: twice as many as were not enough.
  for (int steps = messages.empty() ? 0 : 4;; steps *= 2) {
    Play play(sides_, costs);
    std::vector<std::vector<TaskId>> ends;
    for (const Transfer& t : transfers) {
      check_cancelled();
      ends.push_back(play.add(t));
    }
    for (const OwnMessages& m : messages) play.add(m, steps);
    const Timeline& timeline = play.play();
    std::vector<TransferTime> out;
    Seconds last;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      TransferTime time{std::max(t.begin, t.room), std::max(t.begin + t.prefill, t.room), Seconds(0)};
      for (const TaskId id : ends[i]) time.end = std::max(time.end, timeline.spans[id].end);
      time.exposed = time.end - std::max(t.begin + t.prefill, t.room);
      last = std::max(last, time.end);
      out.push_back(time);
    }
    // The plan's own messages lasted at least as long, or there are none.
    if (messages.empty() || timeline.makespan() > last || steps >= kMostSteps) return out;
  }
}

int whole_nodes(const FabricSpec& spec, int gpus) { return nodes_of(spec, gpus) * spec.gpus_per_node; }

int gpu_beside(const FabricSpec& spec, int others, int gpus) {
  if (others + gpus <= spec.gpus_per_node) return others;
  const int next = (others + spec.gpus_per_node - 1) / spec.gpus_per_node * spec.gpus_per_node;
  const int all = spec.nodes * spec.gpus_per_node;
  if (next + gpus <= all) return next;
  return std::max(0, std::min(others, all - gpus));
}

EngineTransfer engine_transfer(const Case& c) {
  EngineTransfer out;
  out.pages.source.block = out.pages.target.block = c.kv_block;
  if (c.engine && c.engine->pools.compressed_block > 0 && has_compression(c.model))
    out.pages.source.block = out.pages.target.block = static_cast<int>(c.engine->pools.compressed_block);
  out.of = "vLLM's NIXL connector";
  if (!c.engine) return out;
  if (c.engine->name == "sglang") {
    const CachePages pages{static_cast<int>(kPromptPage), PageOrder::tokens_first};
    out.pages.source = out.pages.target = pages;
    out.costs.receiver_posts = false;
    out.of = "SGLang's transfer engine";
  } else if (c.engine->name == "trtllm") {
    out.pages.source.block = out.pages.target.block = tensorrt_llm_block(c);
    out.pages.gathered = true;
    out.costs.receiver_posts = false;
    out.of = "TensorRT-LLM's cache transceiver";
  }
  return out;
}

namespace {

// What a layout of caches depends on: not who shares the feed-forward network, nor how many requests there
// are, nor how many tokens its modules draft.
Plan placed(Plan p) {
  p.batch = p.in_flight = p.ep = p.tpf = 1;
  p.dense_tp = 0;
  if (p[kDrafts] > 0) p.set(kDrafts, 1);
  return p;
}

}  // namespace

std::optional<std::string> no_way_between(const Case& prefill, const Case& decode) {
  for (const Case* c : {&prefill, &decode}) {
    if (!c->system.fabric.network.present)
      return fmt::format("{} has no network: nothing leads from it to another system", c->system.name);
  }
  if (kernel_type(prefill.precision.kv) != kernel_type(decode.precision.kv))
    return fmt::format(
        "its KV cache is in {} on {} and in {} on {}: a cache is handed over as it is, see "
        "precision.kv",
        to_string(prefill.precision.kv), prefill.system.name, to_string(decode.precision.kv),
        decode.system.name);
  return std::nullopt;
}

ReplicaPlaces places_of(const System& system, int prefill_gpus, int decode_gpus) {
  const FabricSpec& f = system.fabric;
  const bool apart = prefill_gpus + decode_gpus > f.gpus_per_node && f.nodes > 1;
  return apart ? ReplicaPlaces::apart : ReplicaPlaces::beside;
}

HandoffTimes::HandoffTimes(const Case& c, int gpus, long long tokens, ReplicaPlaces places)
    : case_(c),
      tokens_(tokens),
      engine_(engine_transfer(c)),
      places_(places),
      fabric_(c.system.fabric,
              2 * (places == ReplicaPlaces::apart ? whole_nodes(c.system.fabric, gpus) : gpus)) {}

HandoffTimes::HandoffTimes(const Case& prefill, int prefill_gpus, const Case& decode, int decode_gpus,
                           long long tokens)
    : case_(prefill),
      to_(std::make_unique<Case>(decode)),
      tokens_(tokens),
      engine_(engine_transfer(decode)),
      fabric_(prefill.system.fabric, prefill_gpus, decode.system.fabric, decode_gpus) {}

Seconds HandoffTimes::of(const Plan& prefill, const Plan& decode) {
  const Plan from = placed(prefill), to = placed(decode);
  const auto [known, fresh] = known_.try_emplace(to_string(from) + " " + to_string(to));
  if (fresh) known->second = play(from, to, engine_.costs);
  return known->second;
}

Seconds HandoffTimes::of_bytes(const Plan& prefill, const Plan& decode) {
  TransferCosts costs = engine_.costs;
  costs.network_descriptor = costs.nvlink_descriptor = Seconds(0);
  return play(placed(prefill), placed(decode), costs);
}

Seconds HandoffTimes::play(const Plan& from, const Plan& to, const TransferCosts& costs) {
  const Handoff h =
      hand_over(cache_layout(case_, from, CacheSide::prefilled, tokens_),
                cache_layout(to_ ? *to_ : case_, to, CacheSide::to_decode, tokens_), engine_.pages);
  const FabricSpec& spec = fabric_.spec();
  int first = 0;
  if (!to_)
    first = places_ == ReplicaPlaces::apart ? whole_nodes(spec, from.gpus())
                                            : gpu_beside(spec, from.gpus(), to.gpus());
  return fabric_.play({{&h, 0, first, Seconds(0), Seconds(0), Seconds(0)}}, costs).front().exposed;
}

}  // namespace shardline
