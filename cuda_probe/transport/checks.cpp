#include "cuda_probe/transport/checks.hpp"

#include <fmt/format.h>

namespace shardline {

void check_exchange(const Transport& transport, std::span<const Message> messages,
                    std::span<const Stream> streams) {
  const int ranks = transport.ranks();
  if (streams.size() != static_cast<std::size_t>(ranks))
    throw GpuError(fmt::format("exchange: {} streams for {} ranks", streams.size(), ranks));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (m.from < 0 || m.from >= ranks || m.to < 0 || m.to >= ranks)
      throw GpuError(
          fmt::format("exchange: message {} goes from rank {} to rank {} of {}", i, m.from, m.to, ranks));
    const bool unsent = transport.local(m.from) && m.source == nullptr;
    const bool unheld = transport.local(m.to) && m.target == nullptr;
    if (m.bytes > 0 && (unsent || unheld)) {
      throw GpuError(fmt::format("exchange: message {} from rank {} to rank {} has no {}", i, m.from, m.to,
                                 unsent ? "source" : "target"));
    }
  }
}

void check_collective(const Transport& transport, const char* name, std::span<const int> group,
                      std::span<const Buffers> buffers, std::size_t count, std::span<const Stream> streams) {
  if (buffers.size() != group.size() || streams.size() != group.size()) {
    throw GpuError(fmt::format("{}: {} buffers and {} streams for {} ranks", name, buffers.size(),
                               streams.size(), group.size()));
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] < 0 || group[i] >= transport.ranks())
      throw GpuError(fmt::format("{}: rank {} of {}", name, group[i], transport.ranks()));
    if (i > 0 && group[i] <= group[i - 1]) throw GpuError(fmt::format("{}: ranks must ascend", name));
    if (count > 0 && transport.local(group[i]) &&
        (buffers[i].send == nullptr || buffers[i].receive == nullptr))
      throw GpuError(fmt::format("{}: rank {} has no buffer", name, group[i]));
  }
}

}  // namespace shardline
