#include "planner/engines/model_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace shardline {

namespace {

bool begins(std::string_view text, std::string_view with) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return text.size() >= with.size() && std::equal(with.begin(), with.end(), text.begin(),
                                                  [&](char a, char b) { return lower(a) == lower(b); });
}

bool drop(std::string_view& text, std::string_view with) {
  if (!begins(text, with)) return false;
  text.remove_prefix(with.size());
  return true;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string own_name(const std::string& repository) {
  const std::string name = repository.substr(repository.find('/') + 1);
  return begins(name, "meta-llama") ? name.substr(5) : name;
}

struct Way {
  std::string_view part;  // of a name, in small letters
  std::string_view here;
};
// As owners of quantised weights name them: NVIDIA, Red Hat (vLLM's), AWQ's and GPTQ's converters,
// llama.cpp's.
constexpr std::array kWays{
    Way{"fp8", "fp8"},   Way{"w8a8", "fp8"},    Way{"int8", "fp8"},      Way{"8bit", "fp8"},
    Way{"nvfp4", "fp4"}, Way{"mxfp4", "mxfp4"}, Way{"fp4", "fp4"},       Way{"awq", "int4"},
    Way{"gptq", "int4"}, Way{"int4", "int4"},   Way{"w4a16", "int4"},    Way{"4bit", "int4"},
    Way{"bnb", "int4"},  Way{"gguf", "int4"},   Way{"quantized", "fp8"},
};

}  // namespace

std::optional<QuantisedName> quantised_name(const std::string& repository) {
  const std::string name = own_name(repository), low = lower(name);
  for (std::size_t at = low.find_first_of("-_."); at != low.npos; at = low.find_first_of("-_.", at + 1)) {
    const std::string_view part =
        std::string_view(low).substr(at + 1, low.find_first_of("-_.", at + 1) - at - 1);
    const auto* const way =
        std::find_if(kWays.begin(), kWays.end(), [&](const Way& w) { return w.part == part; });
    if (way == kWays.end()) continue;
    const auto* const in = std::find_if(kWays.begin(), kWays.end(), [&](const Way& w) {
      return w.part != "quantized" && low.find(w.part, at) != low.npos;  // "-quantized.w4a16"
    });
    return QuantisedName{name.substr(0, at), name.substr(at + 1),
                         std::string(in == kWays.end() ? way->here : in->here)};
  }
  return std::nullopt;
}

bool same_base(const std::string& a, const std::string& b) {
  return lower(own_name(a)) == lower(own_name(b));
}

std::string family_of(const std::string& repository) {
  const std::string name = lower(own_name(repository));
  return name.substr(
      0, static_cast<std::size_t>(
             std::find_if_not(name.begin(), name.end(),
                              [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }) -
             name.begin()));
}

std::string without_address(const std::string& model) {
  std::string_view rest = model;
  const bool scheme = drop(rest, "https://") || drop(rest, "http://");
  drop(rest, "www.");
  const bool host = drop(rest, "huggingface.co/") || drop(rest, "hf.co/");
  if (!host && (scheme || !(drop(rest, "hf://") || drop(rest, "hf:")))) return model;
  drop(rest, "models/");
  rest = rest.substr(0, rest.find_first_of("?#"));
  const std::size_t owner = rest.find('/');
  if (owner == rest.npos || owner == 0) return model;
  const std::string_view name = rest.substr(0, rest.find('/', owner + 1));  // less /tree/main and the like
  return name.size() > owner + 1 ? std::string(name) : model;
}

std::string without_tag(const std::string& model) {
  const std::size_t at = model.find_first_of(":@");
  if (at == model.npos || at == 0 || model.find("://") != model.npos) return "";
  const std::string name = model.substr(0, at), tag = model.substr(at + 1);
  // "70b"; another tag is a type, a version or "latest".
  const bool size =
      model[at] == ':' && !tag.empty() && std::isdigit(static_cast<unsigned char>(tag.front())) != 0;
  return size ? name + "-" + tag : name;
}

}  // namespace shardline
