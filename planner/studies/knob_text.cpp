#include "planner/studies/knob_text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "planner/studies/knob_tables.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

KnobParts knob_parts(const std::string& text) {
  const std::size_t equals = text.find('=');
  return {text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)};
}

namespace {

// At a column of the option's text.
[[noreturn]] void knob_fault(const std::string& text, const KnobParts& parts, std::size_t column,
                             std::string what, std::vector<std::string> details = {}) {
  throw UserError({Diagnostic{{argument_name(parts.option), 1, static_cast<int>(column + 1), text},
                              std::move(what),
                              std::move(details)}});
}

std::string found(const KnobParts& parts) { return parts.value.empty() ? "nothing" : parts.value; }

template <class Number>
bool read(const std::string& value, Number& number) {
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, number);
  return error == std::errc{} && end == last;
}

}  // namespace

std::uint32_t knob_number(const std::string& text, const KnobParts& parts, bool may_be_none) {
  // A list's comma would be one of thousands, and a part of thousands, "024", a number.
  if (parts.value.find(',') != std::string::npos)
    knob_fault(text, parts, parts.name.size() + 1,
               "expected one whole number without commas, found " + found(parts));
  if (parts.value.size() > 1 && parts.value.front() == '0' &&
      parts.value.find_first_not_of("0123456789") == std::string::npos)
    knob_fault(text, parts, parts.name.size() + 1,
               "expected a whole number without leading zeros, found " + found(parts));
  std::uint32_t number = 0;
  bool is_number = read(parts.value, number);
  if (const auto count = is_number ? std::nullopt : count_of(parts.value); count && *count <= 1LL << 30) {
    number = static_cast<std::uint32_t>(*count);  // 8K
    is_number = true;
  }
  if (!is_number || number > 1U << 30 || (number == 0 && !may_be_none)) {
    knob_fault(text, parts, parts.name.size() + 1,
               fmt::format("expected a whole number from {}, found {}", may_be_none ? 0 : 1, found(parts)));
  }
  return number;
}

bool knob_flag(const std::string& text, const KnobParts& parts) {
  if (parts.value != "true" && parts.value != "false")
    knob_fault(text, parts, parts.name.size() + 1, "expected true or false, found " + found(parts));
  return parts.value == "true";
}

double knob_part(const std::string& text, const KnobParts& parts) {
  double part = 0;
  if (!read(parts.value, part) || !std::isfinite(part) || part < 0)
    knob_fault(text, parts, parts.name.size() + 1, "expected a number from 0, found " + found(parts));
  return part;
}

std::size_t knob_word(const std::string& text, const KnobParts& parts,
                      const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (parts.value == words[i]) return i;
  }
  knob_fault(text, parts, parts.name.size() + 1, "unknown value " + found(parts),
             expected_one_of(parts.value, words));
}

void unknown_knob(const std::string& text, const KnobParts& parts, const std::vector<std::string>& names) {
  std::vector<std::string> details = expected_one_of(parts.name, names);
  if (std::string other = other_engines_knob(parts.name, names); !other.empty()) {
    details.resize(1);  // what the name is of another engine is nearer than what is like it here
    details.push_back(std::move(other));
  }
  knob_fault(text, parts, 0, "unknown knob " + parts.name, std::move(details));
}

void decoders_knob(const std::string& text, const KnobParts& parts) {
  knob_fault(text, parts, 0,
             parts.name + " is of a server that decodes for another, and does nothing elsewhere",
             {fmt::format("expected {} beside a pool of its own for prompts ({})", argument_name("knob"),
                          argument_name("prefill"))});
}

}  // namespace shardline
