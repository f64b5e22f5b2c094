#include "planner/handoff/transfer.hpp"

#include <algorithm>
#include <map>

#include "hardware/machine/routes.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/prompt_step.hpp"
#include "sim/base/cancel.hpp"
#include "sim/engine/engine.hpp"

namespace shardline {

namespace {

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

// Tasks of transfers on the links of a fabric.
class Play {
 public:
  Play(const FabricSpec& spec, const FabricRoutes& routes, const TransferCosts& costs)
      : spec_(spec), routes_(routes), costs_(costs) {
    const double share = spec.network.present ? spec.network.send_recv_share : 1;
    for (const FabricRoutes::Edge& e : routes.edges())
      machine_.add("link", e.bandwidth * (e.network ? share : 1.0));
  }

  // Returns the tasks that have to end.
  std::vector<TaskId> add(const Transfer& t) {
    const Handoff& h = *t.handoff;
    const auto layers = static_cast<double>(h.source.kind_of.size());
    std::map<int, TaskId> posted;  // the last descriptors that a rank has submitted
    std::vector<TaskId> ends;
    for (const Flow& f : flows_of(h, costs_.by_layer)) {
      check_cancelled();  // its load is over all links of the fabric
      const double done = costs_.by_layer ? (f.layer + 1) / layers : 1;
      const Seconds ready = std::max(t.begin + t.prefill * done, t.room);
      const int from = t.source_gpu + f.from, to = t.target_gpu + f.to;
      const bool inside = from / spec_.gpus_per_node == to / spec_.gpus_per_node;
      const Seconds each = inside ? costs_.nvlink_descriptor : costs_.network_descriptor;
      const TaskId computed = graph_.add(ready, {}, {});
      const int poster = costs_.receiver_posts ? f.to : f.from;
      std::vector<TaskId> before{computed};
      if (const auto last = posted.find(poster); last != posted.end()) before.push_back(last->second);
      const TaskId post = graph_.add(each * static_cast<double>(f.descriptors), {}, std::span(before));
      posted[poster] = post;
      ends.push_back(move(from, to, f.bytes, post));
    }
    return ends;
  }

  // `times` steps one after the other on every rank.
  void add(const OwnMessages& m, int times) {
    const int ranks = m.group.size;
    for (int member = 0; member < ranks && ranks > 1; ++member) {
      check_cancelled();
      const int gpu = m.first_gpu + member * m.group.stride;
      std::vector<double> load(routes_.edges().size(), 0);
      for (int other = 0; other < ranks; ++other) {
        if (other != member)
          routes_.add_load(routes_.to(m.first_gpu + other * m.group.stride),
                           {{static_cast<FabricPlace>(gpu), m.bytes.value / (ranks - 1)}}, load);
      }
      const std::vector<Demand> sent = demands(load);
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
  std::vector<Demand> demands(const std::vector<double>& load) const {
    std::vector<Demand> out;
    for (std::size_t e = 0; e < load.size(); ++e) {
      if (load[e] > 0) out.push_back(Demand::on(static_cast<ResourceId>(e), Bytes(load[e])));
    }
    return out;
  }

  // A message over the route, behind a handshake: the request for it and the way back.
  TaskId move(int from, int to, double bytes, TaskId before) {
    const FabricRoutes::To& way = routes_.to(to);
    std::vector<double> load(routes_.edges().size(), 0);
    routes_.add_load(way, {{static_cast<FabricPlace>(from), bytes}}, load);
    Seconds latency = way.latency[static_cast<std::size_t>(from)];
    if (from / spec_.gpus_per_node != to / spec_.gpus_per_node) latency += spec_.network.send_recv_extra;
    return graph_.add(2.0 * latency, demands(load), {before}, Sharing::equal_rate);
  }

  const FabricSpec& spec_;
  const FabricRoutes& routes_;
  const TransferCosts costs_;
  Machine machine_;
  TaskGraph graph_;
  Timeline timeline_;
};

}  // namespace

TransferFabric::TransferFabric(const FabricSpec& spec, int gpus) : spec_(spec) {
  const int uplink = nodes_per_uplink(spec);
  spec_.nodes = std::min(spec.nodes, (gpus + spec.gpus_per_node - 1) / spec.gpus_per_node);
  routes_ = std::make_unique<FabricRoutes>(spec_, uplink);
}
TransferFabric::~TransferFabric() = default;
TransferFabric::TransferFabric(TransferFabric&&) noexcept = default;

std::vector<TransferTime> TransferFabric::play(const std::vector<Transfer>& transfers,
                                               const TransferCosts& costs,
                                               const std::vector<OwnMessages>& messages) const {
  // Steps go on until the transfers have ended: twice as many as were not enough.
  for (int steps = messages.empty() ? 0 : 4;; steps *= 2) {
    Play play(spec_, *routes_, costs);
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

HandoffTimes::HandoffTimes(const Case& c, int gpus, long long tokens)
    : case_(c), tokens_(tokens), engine_(engine_transfer(c)), fabric_(c.system.fabric, 2 * gpus) {}

Seconds HandoffTimes::of(const Plan& prefill, const Plan& decode) {
  const Plan from = placed(prefill), to = placed(decode);
  const auto [known, fresh] = known_.try_emplace(to_string(from) + " " + to_string(to));
  if (!fresh) return known->second;
  const Handoff h = hand_over(cache_layout(case_, from, CacheSide::prefilled, tokens_),
                              cache_layout(case_, to, CacheSide::to_decode, tokens_), engine_.pages);
  const int first = gpu_beside(fabric_.spec(), from.gpus(), to.gpus());
  known->second =
      fabric_.play({{&h, 0, first, Seconds(0), Seconds(0), Seconds(0)}}, engine_.costs).front().exposed;
  return known->second;
}

}  // namespace shardline
