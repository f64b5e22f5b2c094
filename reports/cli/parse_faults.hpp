// What CLI11 refuses, said as all other bad input is: what is wrong, what is expected, what is near.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/cli/command_text.hpp"

namespace CLI {
class App;
class Option;
class ParseError;
class Validator;
}  // namespace CLI

namespace shardline::cli {

/// Whole numbers from `least` to `most`, any numbers from `least` to `most`, any number above 0, one of
/// `names`: each names the value that it refuses. CLI11's own say of 2.5 that it is "not in range 1 to 8192",
/// and spell out the largest double.
CLI::Validator whole_number(long long least, long long most);
CLI::Validator number(double least, double most);
CLI::Validator positive_number();
CLI::Validator member(const std::vector<std::string>& names);

/// Throws UserError where a word of the command line is empty, or an option's value behind its `=`: what a
/// script gives whose variable is not set. No option takes an empty value as one.
void refuse_empty_words(std::span<const std::string> words);

/// Further lines on a word that a command does not take or an option that it takes once, or that is no
/// command
/// (`command` empty); `words`: the command line, of which the word is one.
using Advice = std::vector<std::string> (*)(const std::string& command, const std::string& word,
                                            std::span<const std::string> words);

/// Throws UserError for what `app` refused with `fault`; `words`: the command line after the program's name.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& fault, const ProgramText& text,
                         std::span<const std::string> words, Advice advice);

/// An option by one of its names, "-o" or "--out" (checked). CLI11's own search is noexcept and copies names:
/// it ends the process where it cannot allocate.
const CLI::Option& option_of(const CLI::App& command, const std::string& name);

}  // namespace shardline::cli
