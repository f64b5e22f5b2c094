// TensorRT-LLM's PyTorch executor with pipeline stages, in the engine's own terms: all ranks' loops,
// iteration by iteration. Slow, and what TrtllmScheduler played by the clock of its stages must be equal to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "planner/requests/played_engine.hpp"
#include "tests/planner/requests/plain_trtllm_engine.hpp"

namespace shardline {

// _executor_loop_pp() of every rank and the thread of each that receives and sends sample states: (pp - 1) ->
// 0 -> 1 -> ... The hosts take no time, and messages but those of a stage's own hand-over.
class PlainTrtllmPipeline : private PlainTrtllmEngine {
 public:
  PlainTrtllmPipeline(const TrtllmKnobs& knobs, const StageTimes& times)
      : PlainTrtllmEngine(knobs), times_(times), pp_size_(times.count()), ranks_(pp_size_) {}

  // Throws UserError where the engine ends with an error.
  std::vector<AnsweredRequest> play(const std::vector<TraceRequest>& requests) {
    std::size_t next = 0;
    for (std::size_t nothing = 0; answers_.size() < requests.size(); ++iterations_) {
      Rank& first = ranks_.front();
      if (active_requests_.empty() && waiting_queue_.empty() && unhandled() == 0)
        first.now = std::max(first.now, requests[next].arrival.value);  // blocks on the queue of requests
      while (next < requests.size() && requests[next].arrival.value <= first.now) add(requests[next++]);
      while (!waiting_queue_.empty() && active_requests_.size() < max_num_requests()) {
        active_requests_.push_back(waiting_queue_.front());
        waiting_queue_.pop_front();
      }
      batches_.push_back(schedule());
      batches += batches_.back().empty() ? 0 : 1;
      nothing = batches_.back().empty() ? nothing + 1 : 0;
      if (nothing > 2 * pp_size_ + 2 && unhandled() == 0) throw UserError("the engine stands still");
      for (std::size_t r = 0; r < pp_size_; ++r) launch(r);
      const std::vector<std::size_t> executed = fetch_executed_batches();
      for (std::size_t r = 1; r < pp_size_; ++r) follow(r, executed);
      for (const std::size_t i : executed) handle(batches_[i]);
    }
    return answers_;
  }

  std::uint32_t available() const { return pool_.available(); }
  std::uint64_t batches = 0, chunks = 0, waited = 0, merged = 0;

 private:
  struct Context {
    Ptr request;
    std::int64_t tokens, past;
    bool last;
  };
  struct Batch {
    std::vector<Context> contexts;
    std::vector<Ptr> generations;
    std::vector<double> had;      // by the rank behind, or with tokens behind the last one
    std::vector<double> done;     // what a rank's sampler_event waits for
    std::vector<double> put;      // into a rank's executed_batch_queue
    std::vector<double> arrived;  // in a rank's executed_batch_response_queue
    bool handled = false;
    bool empty() const { return contexts.empty() && generations.empty(); }
  };
  struct Rank {
    double now = 0, free = 0, link = 0;  // of its host, its stream, and the link to the next rank
    std::ptrdiff_t previous = -1;        // the batch that it launched last
    double told = 0;                     // when the rank before had the schedule, or the number of batches
  };

  void add(const TraceRequest& request) {
    auto r = std::make_shared<Req>();
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer =
        static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, k_.max_seq_len - request.input));
    r->seen.number = answer_of_.size();
    r->prompt_len = r->num_tokens = request.input;
    r->max_new_tokens = r->seen.answer;
    r->words = request.blocks;
    r->text_block = kTraceBlock;
    r->id = static_cast<Scheduler::Id>(r->seen.number);
    AnsweredRequest a;
    a.number = r->seen.number;
    a.came = request.arrival;
    a.prompt = r->seen.prompt;
    a.answer = r->seen.answer;
    answer_of_.push_back(a);
    waiting_queue_.push_back(std::move(r));
  }

  // _schedule(), _add_inflight_ids(), prepare_resources() and _update_request_states() of the first rank.
  Batch schedule() {
    newly_contributed_.clear();
    for (const Ptr& r : active_requests_)
      if (r->state == State::context_init && r->seq) contribute(*r);
    std::vector<Ptr> fitting, contexts, generations;
    no_evict(fitting);
    micro_batch(fitting, contexts, generations);
    if (waiting_requests(contexts, generations)) contexts.clear();
    Batch out;
    std::int64_t budget = k_.max_num_tokens - static_cast<std::int64_t>(generations.size());
    for (const Ptr& r : contexts) {
      if (!r->seq) add_sequence(*r);
      std::int64_t size = std::min(r->chunk_size, r->remaining());
      if (size < r->remaining()) size = (r->position + size) / block() * block() - r->position;
      if (k_.enable_chunked_prefill && size > budget)
        size = std::max(r->position, (r->position + budget) / block() * block()) - r->position;
      if (size == 0) continue;
      budget = std::max<std::int64_t>(0, budget - size);
      out.contexts.push_back({r, size, r->position, size == r->remaining()});
      chunks += size < r->remaining() ? 1 : 0;
    }
    for (const Ptr& r : generations) {
      add_token(*r);
      inflight_req_ids_.insert(r->id);
      out.generations.push_back(r);
    }
    for (const Context& c : out.contexts) {
      c.request->position += c.tokens;
      if (!c.last) continue;
      inflight_req_ids_.insert(c.request->id);
      const bool completes = !k_.disable_overlap_scheduler && c.request->max_new_tokens == 1;
      c.request->state = completes ? State::to_complete : State::in_progress;
    }
    return out;
  }

  static StepBatch work_of(const Batch& batch) {
    StepBatch out;
    for (const Context& c : batch.contexts)
      out.prompts.push_back({static_cast<std::uint32_t>(c.tokens), static_cast<std::uint32_t>(c.past)});
    for (const Ptr& r : batch.generations) {
      const auto cached = static_cast<std::uint32_t>(r->num_tokens - 1);
      ++out.decodes;
      out.cached += cached;
      out.longest = std::max(out.longest, cached);
    }
    return out;
  }

  // Stages 0 to 2 of an iteration of one rank.
  void launch(std::size_t r) {
    Rank& rank = ranks_[r];
    Batch& batch = batches_[iterations_];
    if (r > 0) rank.now = std::max(rank.now, rank.told);  // recv_schedule_from_prev_pp
    if (r + 1 < pp_size_) ranks_[r + 1].told = rank.now;  // send_schedule_to_next_pp
    if (!batch.empty()) {
      std::vector<StageTime> of(pp_size_);
      times_.of(work_of(batch), of);
      const double begins = std::max({rank.now, rank.free, r > 0 ? batch.had[r - 1] : 0});
      rank.free = begins + of[r].occupied.value;
      const double computed = begins + of[r].busy.value;
      const bool last = r + 1 == pp_size_;
      // The last rank's tokens go their way when its host sends them, below.
      if (!last) rank.link = std::max(computed, rank.link) + of[r].handed.value;
      way_back_.resize(iterations_ + 1);
      if (last) way_back_[iterations_] = of[r].handed.value;
      batch.had.push_back(rank.link);
      batch.done.push_back(last ? computed : rank.link);
      batch.put.assign(pp_size_, -1);
      batch.arrived.assign(pp_size_, -1);
    }
    const std::ptrdiff_t previous = rank.previous;
    if (!batch.empty()) rank.previous = static_cast<std::ptrdiff_t>(iterations_);
    const bool last = r + 1 == pp_size_;
    if ((last || !batch.empty()) && previous >= 0)  // sync_previous_sampler_event
      rank.now = std::max(rank.now, batches_[static_cast<std::size_t>(previous)].done[r]);
    const std::size_t offset = last ? 1 : pp_size_ - 1;  // executed_microbatch_id
    if (iterations_ >= offset && !batches_[iterations_ - offset].empty())
      batches_[iterations_ - offset].put[r] = rank.now;
  }

  // The thread of the first rank has a batch once both ends of the ring asked for it; -1: not yet.
  double arrives(std::size_t i) {
    Batch& b = batches_[i];
    if (b.empty() || b.put[0] < 0 || b.put[pp_size_ - 1] < 0) return -1;
    if (b.arrived[0] < 0) {
      Rank& last = ranks_[pp_size_ - 1];
      last.link = std::max(b.put[pp_size_ - 1], last.link) + way_back_[i];
      b.arrived[pp_size_ - 1] = b.put[pp_size_ - 1];
      b.arrived[0] = std::max(last.link, b.put[0]);
    }
    return b.arrived[0];
  }
  std::size_t unhandled() const {
    return static_cast<std::size_t>(std::count_if(batches_.begin() + static_cast<std::ptrdiff_t>(first_),
                                                  batches_.end(),
                                                  [](const Batch& b) { return !b.empty() && !b.handled; }));
  }

  // Stage 3.1 of the first rank.
  std::vector<std::size_t> fetch_executed_batches() {
    std::vector<std::size_t> out;
    Rank& rank = ranks_.front();
    bool must_get = batches_[iterations_].empty();
    for (std::size_t i = first_; i <= iterations_; ++i) {
      if (batches_[i].empty() || batches_[i].handled) continue;
      const double at = arrives(i);
      if (at < 0) break;
      if (at > rank.now) {
        if (!must_get) break;
        rank.now = at;
        ++waited;
      }
      must_get = false;
      out.push_back(i);
    }
    merged += out.size() > 1 ? 1 : 0;
    ranks_[1].told = rank.now;  // send_expected_batch_num
    return out;
  }

  // Stages 3.2 and 3.3 of the others.
  void follow(std::size_t r, const std::vector<std::size_t>& executed) {
    Rank& rank = ranks_[r];
    rank.now = std::max(rank.now, rank.told);
    if (r + 1 < pp_size_) ranks_[r + 1].told = rank.now;
    for (const std::size_t i : executed) {
      Batch& b = batches_[i];
      if (r + 1 < pp_size_) b.arrived[r] = std::max(b.arrived[r - 1], b.put[r]);
      rank.now = std::max(rank.now, b.arrived[r]);
    }
  }

  // _handle_executed_batch() of the first rank.
  void handle(Batch& batch) {
    batch.handled = true;
    while (first_ < batches_.size() && (batches_[first_].empty() || batches_[first_].handled)) ++first_;
    const double now = ranks_.front().now;
    const auto token = [&](Req& r) {
      AnsweredRequest& a = answer_of_[r.seen.number];
      if (r.num_tokens == r.prompt_len) a.first = Seconds(now);
      a.last = Seconds(now);
      if (++r.num_tokens - r.prompt_len >= r.max_new_tokens) r.state = State::complete;
      inflight_req_ids_.erase(r.id);
    };
    for (const Context& c : batch.contexts)
      if (c.last) token(*c.request);
    for (const Ptr& r : batch.generations) token(*r);
    for (const Context& c : batch.contexts)
      if (c.last) store(*c.request, c.request->prompt_len);
    for (const Ptr& r : active_requests_) {
      if (r->state != State::complete) continue;
      terminate(*r, false);
      AnsweredRequest& a = answer_of_[r->seen.number];
      a.found = r->seen.found;
      answers_.push_back(a);
    }
    std::erase_if(active_requests_, [](const Ptr& r) { return r->state == State::complete; });
  }

  const StageTimes& times_;
  const std::size_t pp_size_;
  std::vector<Rank> ranks_;
  std::vector<double> way_back_;  // by batch
  std::size_t iterations_ = 0, first_ = 0;
  std::vector<Batch> batches_;  // by iteration, of nobody too
  std::deque<Ptr> waiting_queue_;
  std::vector<AnsweredRequest> answer_of_, answers_;
};

}  // namespace shardline
