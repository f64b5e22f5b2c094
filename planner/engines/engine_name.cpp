// How engines and their versions are named.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "planner/engines/profile.hpp"

namespace shardline {

EngineName engine_name(const std::string& text) {
  constexpr const char* kBetween = " \t=/:@";  // also pip's "vllm==0.24.0" and an image's "vllm:v0.24.0"
  const std::size_t first = text.find_first_not_of(kBetween);
  if (first == std::string::npos) return {};
  const std::size_t blank = std::min(text.find_first_of(kBetween, first), text.size());
  const std::size_t version = std::min(text.find_first_not_of(kBetween, blank), text.size());
  const std::size_t end = text.find_last_not_of(kBetween) + 1;
  EngineName out{text.substr(first, blank - first), text.substr(version, end - std::min(version, end))};
  const auto digit = [&](std::size_t i) {
    return i < out.name.size() && out.name[i] >= '0' && out.name[i] <= '9';
  };
  const std::size_t hyphen = out.name.find('-');  // "vllm-0.24.0", but not "tensorrt-llm"
  if (out.version.empty() && hyphen != std::string::npos &&
      (digit(hyphen + 1) || (out.name[hyphen + 1] == 'v' && digit(hyphen + 2)))) {
    out.version = out.name.substr(hyphen + 1);
    out.name.resize(hyphen);
  }
  if (out.version.size() > 1 && (out.version[0] == 'v' || out.version[0] == 'V') && out.version[1] >= '0' &&
      out.version[1] <= '9')
    out.version.erase(0, 1);
  return out;
}

bool earlier_version(const std::string& a, const std::string& b) {
  const auto numbers_of = [](const std::string& version) {
    std::array<int, 3> numbers{};
    std::size_t at = 0;
    for (int& n : numbers) {
      const std::size_t end = std::min(version.find('.', at), version.size());
      std::from_chars(version.data() + at, version.data() + end, n);
      at = std::min(end + 1, version.size());
    }
    return numbers;
  };
  return numbers_of(a) < numbers_of(b);
}

bool same_engine(std::string_view a, std::string_view b) {
  const auto letters = [](std::string_view name) {
    std::string out;
    for (const char c : name)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  return letters(a) == letters(b);
}

EngineProfile load_engine(const EngineName& engine, const std::filesystem::path& folder) {
  return load_engine(engine.name, engine.version, folder);
}

}  // namespace shardline
