// What an engine's scheduler is to those who play requests: which of them each step computes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/requests/prefill_delayer.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/serving/trace.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// An engine ends with an error or stands still, by its own rules under this load.
class EngineStops : public UserError {
 public:
  using UserError::UserError;
};
/// One of a pair does.
class PairStops : public EngineStops {
 public:
  using EngineStops::EngineStops;
};

/// What an engine is in a pair of pools. [R12] Under vLLM's NixlConnector it computes prompts and keeps their
/// blocks until they were read, or it reads them, likewise under TensorRT-LLM [R21]; [R14] under SGLang it
/// sends what it computes to who has room.
enum class PairRole : std::uint8_t { none, prefills, decodes };

/// How caches get from one engine of a pair to the other: it reads those that are computed when it has room
/// [R12], or is sent them as they are computed, once it has room [R14], or reads them one after the other,
/// each from an engine that gives one at a time [R21].
enum class CacheWay : std::uint8_t { none, read, sent, in_turn };

/// One engine's scheduler with its KV cache, a step at a time. Requests are added as they come; steps are
/// decided by schedule(), at most depth() of them beyond those that have ended, and end in their order.
class Scheduler {
 public:
  /// A request that was added and not forgotten.
  using Id = std::uint32_t;
  /// Steps alike that only what happens outside of the scheduler ends.
  static constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();

  /// What players see of one.
  struct Request {
    std::uint32_t prompt = 0, answer = 0;  // tokens
    std::uint32_t found = 0;               // of its prompt when it began first: its cached tokens
    std::uint32_t preempted = 0;           // times
    bool done = false;
    std::uint64_t number = 0;  // in the order of adding
  };

  /// Who has one more token for each of some steps that have ended.
  struct Ended {
    std::span<const Id> named;  // some of them, all that are done among these
    /// How many others: each of these had a token in the step before, too.
    std::uint32_t others = 0;
    /// Who was one of the others up to the step before and is not any more; named now or without a token.
    std::span<const Id> before = {};
  };

  /// [R12] A request that has its blocks and begins to read what another engine computed; [R14] or waits
  /// until that one has computed and sent it.
  struct Read {
    Id id = 0;
    std::uint64_t number = 0;  // its own
    std::uint32_t tokens = 0;  // that were not found here
  };
  /// [R14] What a step that has ended computed of a prompt goes to the other engine.
  struct Sent {
    std::uint64_t number = 0;
    std::uint32_t tokens = 0;
    bool last = false;  // the answer's first token goes with it
  };

  virtual ~Scheduler() = default;

  /// A request that came; nothing where the engine refuses it. Its text are the ids of blocks of `text_block`
  /// tokens.
  virtual std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) = 0;
  /// The engine, with all of its groups, has had nothing to do for a while when somebody comes.
  virtual void rests() {}
  /// Whether add() takes a request of that length: asked by players of engines that queue requests in front
  /// of their groups, and a fault of ours of others.
  virtual bool takes(const TraceRequest& /*request*/) const {
    SL_CHECK(false, "only requests in front of groups are asked for");
    return false;
  }
  /// One that is done (checked) leaves its id to another.
  virtual void forget(Id id) = 0;

  /// How many steps may be decided at once, and how many are and have not ended.
  virtual std::size_t depth() const = 0;
  virtual std::size_t decided() const = 0;
  /// Decides the next step, fewer than depth() being decided (checked); false if there is nothing to do.
  virtual bool schedule() = 0;
  /// [R40] Of a group of an engine that holds prompts back: what it says before the next step is decided, and
  /// whether that step begins none.
  virtual PromptBid prompt_bid() {
    SL_CHECK(false, "only groups of an engine that holds prompts back say what they could compute");
    return {};
  }
  virtual void hold_prompts(bool /*hold*/) {
    SL_CHECK(false, "only groups of an engine that holds prompts back begin none");
  }
  /// [R18] Nothing was decided, but something has changed for what is decided next: an engine of which no
  /// group has anything to compute decides again at once, others with their next step.
  virtual bool decides_again() const { return false; }
  /// [R19] Of an attention group of vLLM's in a pair, whose engine meets with the others' in every step:
  /// decides the next step as schedule() does, or an empty one where there is nothing to do, a dummy batch,
  /// in which its worker is asked as in any other. And where no engine of the replica has such a step or
  /// begins one: what hand-offs have ended is known at once.
  virtual void schedule_or_dummy() { SL_CHECK(false, "only groups of pairs run dummy batches"); }
  virtual void look_at_once() { SL_CHECK(false, "only groups of pairs run dummy batches"); }
  /// The first step that is decided and has not ended. There is one (checked).
  virtual const StepBatch& front() const = 0;
  /// [R36] Of an engine with stages: how its steps pass them; the step that was decided last, and whether
  /// somebody has a token at its end that others wait for.
  virtual StageOrder stage_order() const {
    SL_CHECK(false, "only engines with stages pass steps on");
    return {};
  }
  virtual const StepBatch& back() const {
    SL_CHECK(false, "only engines with stages pass steps on");
    return front();
  }
  virtual bool back_answers() const { return true; }
  /// How many steps, from front() on, are sure to be alike if nobody comes; at least 1, at most kEndless.
  virtual std::uint64_t steps_alike() const = 0;
  /// front() and steps like it have ended, at most steps_alike(): who has one more token for each of them,
  /// `request(id).done` if it was the last. Valid until the next call.
  virtual Ended finish_steps(std::uint64_t steps = 1) = 0;

  /// [R12] Of an engine of a pair. Appends who began to read when steps were decided since the last call.
  virtual void take_reads(std::vector<Read>& /*out*/) {}
  /// A request has read all; another engine has read all of the request of this number, which is done. An
  /// engine with nothing to compute may know it at once.
  virtual void has_read(Id /*id*/) { SL_CHECK(false, "only engines of a pair read"); }
  virtual void was_read(std::uint64_t /*number*/, bool /*at_once*/) {
    SL_CHECK(false, "only engines of a pair are read");
  }
  /// Of an engine of a pair, the same of both.
  virtual CacheWay cache_way() const { return CacheWay::none; }
  /// [R14] Prompts that are sent begin only where the other engine has room. Who prefills is told of room for
  /// the request of a number, and appends what steps that have ended computed since the last call.
  virtual void has_room(std::uint64_t /*number*/) {
    SL_CHECK(false, "only engines that send prompts wait for room");
  }
  virtual void take_sent(std::vector<Sent>& /*out*/) {}
  /// [R14] Appends who had the first token from the other engine when a step was decided: at once, not at the
  /// end of one. It is done if that was all of its answer.
  virtual void take_firsts(std::vector<Id>& /*out*/) {}
  /// [R15] The other replica is gone, with what a request was to read: its worker says so as of a read that
  /// has ended. Then it is computed here, where true is given back, or it fails, which is appended to `out`
  /// once.
  struct Failed {
    std::uint64_t number = 0;
    bool at_once = false;  // known when a step was decided, not at the end of one
  };
  virtual bool read_fails(Id /*id*/) {
    SL_CHECK(false, "only engines that read fail to");
    return false;
  }
  virtual void take_failed(std::vector<Failed>& /*out*/) {}
  /// [R15] Of engines that send: who decodes gives the request of a number up, which has nothing of its cache
  /// or not all of it; who prefills forgets one for which there will never be room.
  virtual void give_up(std::uint64_t /*number*/) { SL_CHECK(false, "only engines that wait give up"); }
  virtual void lose_room(std::uint64_t /*number*/) {
    SL_CHECK(false, "only engines that send prompts wait for room");
  }
  /// [R16] Of an engine of a pair: its requests lost all of their blocks, as they had before, and nothing has
  /// changed meanwhile: they compute the same again, until something comes from outside.
  virtual bool circles() const { return false; }
  /// Whether there is something that a hand-off will give back: then an engine may have nothing to do.
  virtual bool waits_for_transfers() const { return false; }

  virtual const Request& request(Id id) const = 0;
  virtual std::size_t running() const = 0;
  virtual std::size_t waiting() const = 0;
  virtual std::uint64_t preemptions() const = 0;
  /// The part of the KV cache that requests hold, 0 to 1.
  virtual double kv_held() const = 0;
};

}  // namespace shardline
