#include "planner/requests/text_memory.hpp"

#include <algorithm>

namespace shardline {

TextMemory::Text TextMemory::keep(Text ids) {
  if (ids.empty()) return {};
  std::pmr::polymorphic_allocator<std::uint64_t> memory(&memory_);
  std::uint64_t* const copy = memory.allocate(room(ids.size()));
  std::copy(ids.begin(), ids.end(), copy);
  return {copy, ids.size()};
}

void TextMemory::drop(Text& ids) {
  if (ids.empty()) return;
  std::pmr::polymorphic_allocator<std::uint64_t> memory(&memory_);
  memory.deallocate(const_cast<std::uint64_t*>(ids.data()), room(ids.size()));
  ids = {};
}

}  // namespace shardline
