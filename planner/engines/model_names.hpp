// Names of models as other tools write them.
#pragma once

#include <optional>
#include <string>

namespace shardline {

/// "meta-llama/Llama-3.1-8B-Instruct" of an address of Hugging Face, whatever page of the repository it is
/// of: "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/tree/main", "hf.co/...", "hf://...". Other
/// names are as they were.
std::string without_address(const std::string& model);

/// "llama3.1-70b" of "llama3.1:70b", "llama-3.1-8b" of "llama-3.1-8b:latest": a name with a tag, as Ollama's
/// and images' have it; "org/name" of "org/name@main", as revisions are named. Empty of a name without one.
std::string without_tag(const std::string& model);

/// A repository of somebody's quantised weights, by its name.
struct QuantisedName {
  std::string base;   // "Llama-3.1-70B-Instruct" of "RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic"
  std::string types;  // "FP8-dynamic"
  std::string here;   // a type of precision.weights of as many bits: "fp8"
};
/// Nothing where no part of the name is of a way to quantise.
std::optional<QuantisedName> quantised_name(const std::string& repository);

/// Whether two repositories' names, less their owners and "Meta-" before Llama, are the same in any capitals.
bool same_base(const std::string& a, const std::string& b);
/// "llama" of "meta-llama/Meta-Llama-3.1-8B": the letters that a repository's own name begins with, in small.
std::string family_of(const std::string& repository);

}  // namespace shardline
