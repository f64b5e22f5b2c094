#include "planner/studies/served_bytes.hpp"

#include <concepts>
#include <type_traits>

#include "sim/base/packed.hpp"

namespace shardline {

namespace {

template <class T, class Of>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Of>;

}  // namespace

template <class Archive, MaybeConst<ServedSeries::Interval> T>
void visit_fields(Archive& archive, T& interval) {
  auto& [running, waiting, held, prompting, decoding] = interval;
  archive(running, waiting, held, prompting, decoding);
}

void visit_fields(Packer& archive, const ServedSeries& series) {
  archive(series.length(), series.intervals());
}

void visit_fields(Unpacker& archive, ServedSeries& series) {
  Seconds length;
  std::vector<ServedSeries::Interval> intervals;
  archive(length, intervals);
  series = ServedSeries(length, std::move(intervals));
}

template <class Archive, MaybeConst<ToldLatency> T>
void visit_fields(Archive& archive, T& told) {
  auto& [mean, quantiles, half_widths, count, curve] = told;
  archive(mean, quantiles, half_widths, count, curve);
}

template <class Archive, MaybeConst<LatencyTarget> T>
void visit_fields(Archive& archive, T& target) {
  auto& [of, quantile, most] = target;
  archive(of, quantile, most);
}

template <class Archive, MaybeConst<TargetResult> T>
void visit_fields(Archive& archive, T& result) {
  auto& [target, measured, met] = result;
  archive(target, measured, met);
}

template <class Archive, MaybeConst<PairPart> T>
void visit_fields(Archive& archive, T& part) {
  auto& [mean, median, p99] = part;
  archive(mean, median, p99);
}

template <class Archive, MaybeConst<BoardWatts> T>
void visit_fields(Archive& archive, T& watts) {
  auto& [kernels, idle] = watts;
  archive(kernels, idle);
}

template <class Archive, MaybeConst<ServedPair> T>
void visit_fields(Archive& archive, T& pair) {
  auto& [prefill_gpus, decode_gpus, prefill_busy, decode_busy, prefill_dummies, decode_dummies, prefill_kv,
         sending, reading, prompt, room, transfer, begin, tokens_read, local_prefills, given_up, way,
         preemptions, prefill_down, cut_transfers, failed_loads, recomputed, lost_tokens, prefill_watts,
         prefill_series] = pair;
  archive(prefill_gpus, decode_gpus, prefill_busy, decode_busy, prefill_dummies, decode_dummies, prefill_kv,
          sending, reading, prompt, room, transfer, begin);
  archive(tokens_read, local_prefills, given_up, way, preemptions, prefill_down, cut_transfers, failed_loads,
          recomputed, lost_tokens, prefill_watts, prefill_series);
}

template <class Archive, MaybeConst<ServedLoadAnswer> T>
void visit_fields(Archive& archive, T& answer) {
  auto& [latencies, targets, met, sent, answered, refused, preemptions, steps, seconds, requests_per_s,
         goodput, sent_per_s, output_per_s_gpu, input_per_s_gpu, found, prompting, decoding, idle, running,
         kv_held, kv_most, waiting, watts, down, retried, unserved, series, timeline, pair, growth_per_s] =
      answer;
  SL_CHECK(timeline == nullptr, "a play without pictures");
  archive(latencies, targets, met, sent, answered, refused, preemptions, steps, seconds, requests_per_s,
          goodput);
  archive(sent_per_s, output_per_s_gpu, input_per_s_gpu, found, prompting, decoding, idle, running, kv_held,
          kv_most);
  archive(waiting, watts, down, retried, unserved, series, pair, growth_per_s);
}

std::string to_bytes(const ServedLoadAnswer& answer) {
  Packer out;
  out(answer);
  return std::move(out).bytes();
}

ServedLoadAnswer served_load(std::string_view bytes) {
  ServedLoadAnswer out;
  Unpacker in(bytes);
  in(out);
  SL_CHECK(in.done(), "one answer");
  return out;
}

}  // namespace shardline
