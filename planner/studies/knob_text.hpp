// Options of an engine as a command line sets them: "max_num_seqs=256".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardline {

/// One option: a number, a flag, a part or one of some words.
template <class Knobs>
struct KnobText {
  const char* name;
  std::uint32_t Knobs::*number = nullptr;
  bool may_be_none = false;  // 0
  bool of_decoder = false;   // of a server that decodes for another alone
  /// Set by an engine on a server that computes prompts for another, or decodes for another, and read there
  /// by nothing.
  bool idle_in_prefill = false, idle_in_decode = false;
  bool Knobs::*flag = nullptr;
  double Knobs::*part = nullptr;
  /// The words, and what sets the value of a word's index.
  std::vector<std::string> words = {};
  void (*choose)(Knobs&, std::size_t) = nullptr;
};

/// What stands before and behind the "=" of an option.
struct KnobParts {
  std::string name, value;
  const char* option = "knob";  // of the command line, that it was given with
};
KnobParts knob_parts(const std::string& text);
std::uint32_t knob_number(const std::string& text, const KnobParts& parts, bool may_be_none);
bool knob_flag(const std::string& text, const KnobParts& parts);
double knob_part(const std::string& text, const KnobParts& parts);
std::size_t knob_word(const std::string& text, const KnobParts& parts, const std::vector<std::string>& words);
[[noreturn]] void unknown_knob(const std::string& text, const KnobParts& parts,
                               const std::vector<std::string>& names);
[[noreturn]] void decoders_knob(const std::string& text, const KnobParts& parts);

/// Whose options are set: of a server that decodes for another or not, and what they were given with.
struct KnobsGiven {
  bool decoder = false;
  const char* option = "knob";
};

/// Sets the option that the text names. Throws UserError with the place of what is wrong.
template <class Knobs>
void set_knob(Knobs& knobs, const std::vector<KnobText<Knobs>>& known, const std::string& text,
              const KnobsGiven& given = {}) {
  KnobParts parts = knob_parts(text);
  parts.option = given.option;
  for (const KnobText<Knobs>& k : known) {
    if (parts.name != k.name) continue;
    if (k.of_decoder && !given.decoder) decoders_knob(text, parts);
    if (k.number != nullptr) knobs.*k.number = knob_number(text, parts, k.may_be_none);
    if (k.flag != nullptr) knobs.*k.flag = knob_flag(text, parts);
    if (k.part != nullptr) knobs.*k.part = knob_part(text, parts);
    if (k.choose != nullptr) k.choose(knobs, knob_word(text, parts, k.words));
    return;
  }
  std::vector<std::string> names;
  for (const KnobText<Knobs>& k : known) names.emplace_back(k.name);
  unknown_knob(text, parts, names);
}

}  // namespace shardline
