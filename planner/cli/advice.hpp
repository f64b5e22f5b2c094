// What a word on the command line may have been meant as.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace shardline::cli {

/// Lines on `word`, which `command` does not take or which is no command (`command` empty): a scenario, a
/// model, or a size of a plan. Empty: nothing is known of it. As Program::advice asks for.
std::vector<std::string> advice_on(const std::string& command, const std::string& word,
                                   std::span<const std::string> words);

/// Whether the word is a file of YAML or the name of a shipped scenario.
bool is_scenario(const std::string& word);

/// Whether the word is a system of the catalogue; an engine, "vllm 0.24.0" or "vllm"; a plan's text with
/// sizes.
bool names_system(const std::string& word);
bool names_engine(const std::string& word);
bool names_plan(const std::string& word);

/// Whether the word is a name of the catalogue, a repository of Hugging Face, or where a config.json lies.
bool names_model(const std::string& word);

}  // namespace shardline::cli
