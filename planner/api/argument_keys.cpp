#include "planner/api/argument_keys.hpp"

#include <array>

#include "sim/base/argument_names.hpp"

namespace shardline::api {

std::string argument_in(const std::string& message) {
  constexpr std::array kOptions{"any-context",
                                "any-gpus",
                                "at-once",
                                "costs",
                                "decode",
                                "engine",
                                "failure",
                                "gpu-hour",
                                "gpus",
                                "input",
                                "knob",
                                "lengths",
                                "max-local-prefill",
                                "memory",
                                "noise-seed",
                                "output",
                                "path",
                                "plan",
                                "pools",
                                "prefill",
                                "prefill-knob",
                                "prefill-replicas",
                                "prefill-system",
                                "rate",
                                "replicas",
                                "requests",
                                "router",
                                "scenario",
                                "seed",
                                "set",
                                "slo",
                                "system",
                                "think",
                                "threads",
                                "tokens",
                                "tokens-per-user",
                                "trace",
                                "ttft",
                                "ttl",
                                "users",
                                "nodes",
                                "model"};
  const std::string word = message.substr(0, message.find_first_of(" ,:="));
  for (const char* option : kOptions)
    if (word == argument_name(option)) return word;
  for (const char* named : {"system", "model", "engine", "scenario"})
    if (message.starts_with(std::string("unknown ") + named + " ")) return named;
  return message.starts_with("no profile of ") ? "engine" : "";
}

}  // namespace shardline::api
