// What `shardline plan` says beside its table: copies, pools of their own, and why nothing fits.
#pragma once

#include <cstddef>
#include <string>

#include "planner/studies/plan_answer.hpp"

namespace shardline::cli {

/// "1 GPU", "8 GPUs".
std::string gpus_text(int gpus);

/// "7 users on 8 GPUs", of the users as they are written.
std::string users_on(const std::string& users, int gpus);

/// Three digits, or all before the point: "0.123", "12.3", "1234".
std::string three_digits(double value);

/// What "2 x 4" in the column of GPUs means, by the first such plan of the answer; empty: none is started
/// several times.
std::string started_copies_text(const PlanAnswer& a, std::size_t width);

/// "idle: row 2 leaves 4 of 8 GPUs free; tokens/s/GPU are over all 8, with these": over which GPUs the rates
/// of the table are, where some plan does not take all; else empty.
std::string idle_text(const PlanAnswer& a, std::size_t width);

/// "fewer GPUs: 4 serve all 16 users, too, ...": PlanAnswer::fewer; else empty.
std::string fewer_text(const PlanAnswer& a, std::size_t width);

/// The best pair of pools in whole replicas of those that the GPUs of the question hold and that meet its
/// target, or that there is none; empty without users who are served, and of
/// one GPU.
std::string pools_text(const PlanAnswer& a, std::size_t width);

/// That users of the first plan wait for memory, where no target of TTFT was asked for; else empty.
std::string unbounded_wait_text(const PlanAnswer& a, std::size_t width);

/// What stands in the way of all plans, a line for each reason with its count: memory, and the engine's rules
/// with their sources, most first.
std::string reasons_text(const PlanAnswer& a, std::size_t width);

/// "not in q.yaml, for scenarios have no keys of it: --rate 5/s", and the same of targets, which it has keys
/// for; empty without such options.
std::string saved_text(const std::string& file, const std::string& targets, const std::string& beside,
                       std::size_t width);

}  // namespace shardline::cli
