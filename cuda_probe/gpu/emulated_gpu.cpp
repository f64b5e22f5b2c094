#include "cuda_probe/gpu/emulated_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_probe/gpu/reference_kernels.hpp"

namespace shardline {

EmulatedGpu::EmulatedGpu(const EmulatedOptions& options) : options_(options), random_(options.seed) {}

EmulatedGpu::Queue& EmulatedGpu::queue(Stream stream) {
  if (stream.id >= queues_.size()) throw GpuError(fmt::format("stream {} does not exist", stream.id));
  return queues_[stream.id];
}

std::shared_ptr<EmulatedGpu::Record>& EmulatedGpu::latest(Event event) {
  if (event.id >= events_.size()) throw GpuError(fmt::format("event {} does not exist", event.id));
  return events_[event.id];
}

Stream EmulatedGpu::stream() {
  queues_.emplace_back();
  return {static_cast<std::uint32_t>(queues_.size() - 1)};
}

Event EmulatedGpu::event() {
  events_.emplace_back();
  return {static_cast<std::uint32_t>(events_.size() - 1)};
}

void EmulatedGpu::record(Event event, Stream stream) {
  Queue& q = queue(stream);
  auto& record = latest(event);
  record = std::make_shared<Record>(Record{.event = event.id, .done = false, .time = {}, .clock = q.clock});
  Work work;
  work.number = enqueued_++;
  work.record = record;
  q.work.push_back(std::move(work));
}

void EmulatedGpu::wait(Stream stream, Event event) {
  Queue& q = queue(stream);
  const auto& record = latest(event);
  if (record == nullptr) return;
  q.clock.join(record->clock);
  Work work;
  work.number = enqueued_++;
  work.awaited = record;
  q.work.push_back(std::move(work));
}

void EmulatedGpu::enqueue(Stream stream, const char* name, std::function<void(Touches&)> touch,
                          std::function<void()> compute) {
  Queue& q = queue(stream);
  q.clock.advance(stream.id);
  const std::uint64_t number = enqueued_++;
  q.work.push_back({.number = number,
                    .name = fmt::format("{} #{} on stream {}", name, number, stream.id),
                    .touch = std::move(touch),
                    .compute = std::move(compute),
                    .record = nullptr,
                    .awaited = nullptr,
                    .clock = q.clock});
}

template <class Kernel>
void EmulatedGpu::enqueue_kernel(Stream stream, const char* name, const Kernel& kernel) {
  enqueue(
      stream, name, [kernel](Touches& t) { reference::touch(t, kernel); },
      [kernel] { reference::compute(kernel); });
}

int EmulatedGpu::pick() {
  std::vector<int> ready;
  const Work* stuck = nullptr;
  std::size_t stuck_stream = 0;
  for (std::size_t s = 0; s < queues_.size(); ++s) {
    if (queues_[s].work.empty()) continue;
    const Work& head = queues_[s].work.front();
    if (head.awaited == nullptr || head.awaited->done) {
      ready.push_back(static_cast<int>(s));
    } else if (stuck == nullptr) {
      stuck = &head;
      stuck_stream = s;
    }
  }
  if (ready.empty()) {
    if (stuck == nullptr) return -1;
    throw GpuError(fmt::format("deadlock: stream {} waits for event {}, whose record was dropped",
                               stuck_stream, stuck->awaited->event));
  }
  const auto number = [&](int s) { return queues_[static_cast<std::size_t>(s)].work.front().number; };
  switch (options_.order) {
    case StreamOrder::by_stream:
      return ready.front();
    case StreamOrder::latest_stream_first:
      return ready.back();
    case StreamOrder::as_enqueued:
      return *std::min_element(ready.begin(), ready.end(),
                               [&](int a, int b) { return number(a) < number(b); });
    case StreamOrder::random:
      return ready[random_() % ready.size()];
  }
  return ready.front();
}

void EmulatedGpu::step(Queue& q, std::uint32_t stream) {
  const Work work = std::move(q.work.front());
  q.work.pop_front();
  if (work.awaited != nullptr) {
    q.time = std::max(q.time, work.awaited->time);
    return;
  }
  if (work.record != nullptr) {
    work.record->done = true;
    work.record->time = q.time;
    return;
  }
  Touches touches(memory_, work.name);
  work.touch(touches);
  if (options_.race_check) races_.add(touches, stream, work.clock);
  work.compute();
  std::size_t bytes = 0;
  for (const Touch& t : touches.all()) bytes += t.end - t.begin;
  q.time += microseconds(1) + Bytes(static_cast<double>(bytes)) / gigabytes_per_second(1);
  ++done_;
}

void EmulatedGpu::synchronize() {
  try {
    for (int s = pick(); s >= 0; s = pick())
      step(queues_[static_cast<std::size_t>(s)], static_cast<std::uint32_t>(s));
  } catch (...) {
    for (Queue& q : queues_) q.work.clear();
    races_.clear();
    throw;
  }
  races_.clear();
  memory_.forget_released();
  Seconds latest_time{};
  for (const Queue& q : queues_) latest_time = std::max(latest_time, q.time);
  for (Queue& q : queues_) q.time = latest_time;
}

Seconds EmulatedGpu::elapsed(Event from, Event to) {
  for (const Event e : {from, to}) {
    const auto& record = latest(e);
    if (record == nullptr || !record->done)
      throw GpuError(fmt::format("elapsed: event {} is not completed", e.id));
  }
  return latest(to)->time - latest(from)->time;
}

void EmulatedGpu::upload(void* to, const void* from, std::size_t bytes) {
  synchronize();
  memory_.check("upload", "target", to, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void EmulatedGpu::download(void* to, const void* from, std::size_t bytes) {
  synchronize();
  memory_.check("download", "source", from, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void EmulatedGpu::fill(Stream stream, void* to, std::uint8_t byte, std::size_t bytes) {
  enqueue(
      stream, "fill",
      [=](Touches& t) {
        t.write("target", static_cast<std::byte*>(to), flat(static_cast<std::int64_t>(bytes)));
      },
      [=] {
        if (bytes > 0) std::memset(to, byte, bytes);
      });
}

void EmulatedGpu::copy(Stream stream, const Copy& copy) { enqueue_kernel(stream, "copy", copy); }
void EmulatedGpu::prefill(Stream stream, const PrefillArguments& a) { enqueue_kernel(stream, "prefill", a); }
void EmulatedGpu::decode(Stream stream, const DecodeArguments& a) { enqueue_kernel(stream, "decode", a); }
void EmulatedGpu::mla_decode(Stream stream, const MlaDecodeArguments& a) {
  enqueue_kernel(stream, "mla_decode", a);
}
void EmulatedGpu::merge(Stream stream, const MergeArguments& a) { enqueue_kernel(stream, "merge", a); }
void EmulatedGpu::compress(Stream stream, const CompressArguments& a) {
  enqueue_kernel(stream, "compress", a);
}
void EmulatedGpu::rms_norm(Stream stream, const RowArguments& a) {
  enqueue_kernel(stream, "rms_norm", reference::RmsNorm{a});
}
void EmulatedGpu::swiglu(Stream stream, const RowArguments& a) {
  enqueue_kernel(stream, "swiglu", reference::Swiglu{a});
}
void EmulatedGpu::add(Stream stream, const RowArguments& a) {
  enqueue_kernel(stream, "add", reference::Add{a});
}
void EmulatedGpu::gemm(Stream stream, const GemmArguments& a) { enqueue_kernel(stream, "gemm", a); }

}  // namespace shardline
