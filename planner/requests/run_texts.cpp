#include "planner/requests/run_texts.hpp"

#include "sim/base/error.hpp"

namespace shardline {

std::uint32_t RunTexts::add(const ChainText& of) {
  auto text = static_cast<std::uint32_t>(texts_.size());
  if (unused_.empty()) {
    texts_.emplace_back();
  } else {
    text = unused_.back();
    unused_.pop_back();
  }
  Text& t = texts_[text];
  t.ids = memory_.keep(of.text);
  t.number = of.number;
  if (!t.ids.empty()) {
    const std::uint32_t parts = of.text_block / of.block;
    SL_CHECK(parts_ == 0 || parts_ == parts, "blocks of all texts are alike");
    parts_ = parts;
  }
  const std::uint64_t said = std::uint64_t{parts_} * t.ids.size();
  t.shared = static_cast<std::uint32_t>(std::min<std::uint64_t>(of.prompt / of.block, said));
  t.uses = 1;
  return text;
}

void RunTexts::drop(std::uint32_t text) {
  Text& t = texts_[text];
  if (--t.uses > 0) return;
  memory_.drop(t.ids);
  unused_.push_back(text);
}

}  // namespace shardline
