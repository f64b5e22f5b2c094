#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner/studies/deployment.hpp"

namespace shardline {

std::vector<std::vector<std::string>> knob_settings(const std::vector<std::string>& knobs) {
  std::vector<std::vector<std::string>> out{{}};
  for (const std::string& knob : knobs) {
    const std::size_t equals = knob.find('=');
    std::vector<std::string> each;
    for (std::size_t at = equals; at != std::string::npos;) {
      const std::size_t end = knob.find(',', at + 1);
      std::string one = knob.substr(0, equals + 1) + knob.substr(at + 1, end - at - 1);
      if (std::find(each.begin(), each.end(), one) == each.end()) each.push_back(std::move(one));
      at = end;
    }
    if (each.empty()) each.push_back(knob);  // what is wrong with it is said by who reads it
    std::vector<std::vector<std::string>> longer;
    for (const auto& setting : out) {
      for (const std::string& one : each) {
        longer.push_back(setting);
        longer.back().push_back(one);
      }
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace shardline
