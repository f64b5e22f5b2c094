// Texts that are no plan's and say one: in engines' words, or without separators. For messages.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// What engines' names of parallelism are here: "tensor:tpa=8,tpf=8" of "TP8" and "tp-8",
/// "pipeline:pp=2,tpa=4,tpf=4" of "tp4pp2", "tensor:tpa=8,ep=8" of "tp8ep8" and "TEP8", "dp_ep:dp=8,ep=8" of
/// "dp8ep8" and "DEP8". Empty of other names.
std::string of_engines_names(std::string_view name);

/// "tensor:tpa=8,tpf=8" of "tensor tpa 8 tpf 8" and "tensor-tpa8-tpf8": a strategy's name, its keys and their
/// numbers, whatever is or is not between them. Empty of what is no such text.
std::string with_separators(std::string_view text);

}  // namespace shardline
