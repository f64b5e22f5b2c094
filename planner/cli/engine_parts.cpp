#include "planner/cli/engine_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/cli/interval_parts.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launch_files.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline::cli {

std::string assumed_text(const Case& c) {
  const EngineProfile& e = *c.engine;
  std::vector<std::string> assumed = e.assumes;
  // Of steps alone the scenario says how long they are.
  if (c.served.total() > 0)
    assumed.insert(assumed.begin(), fmt::format("{} tokens a step", e.tokens_of_step(c.system.device)));
  if (e.kept.one_size())
    assumed.insert(assumed.begin(),
                   fmt::format("{} of each GPU kept for context and graphs", to_string(e.kept.fixed, 2)));
  if (const auto block = block_of(e.name, c))
    assumed.insert(assumed.begin(), fmt::format("cache in blocks of {} tokens", *block));
  assumed.insert(assumed.begin(),
                 fmt::format("CUDA graphs to {} requests", e.graphs.empty() ? 0 : e.graphs.back()));
  return fmt::format("{}", fmt::join(assumed, ", "));
}

std::string stored_text(const Case& c) {
  const std::string cache = std::string(to_string(c.precision.kv)), checkpoint = checkpoint_of(c);
  const std::optional<Dtype> named = checkpoint_cache(c);
  const bool own = kernel_type(c.precision.kv) == kernel_type(named.value_or(c.precision.activations));
  const std::string asked =
      named ? fmt::format("as asked, where the checkpoint's files say {}", to_string(*named)) : "as asked";
  if (checkpoint.empty()) return fmt::format(", KV cache {}{}", cache, own ? "" : " " + asked);
  const std::string other = stored_otherwise(c), unread = types_not_read(c);
  const std::string from = !unread.empty() ? "; " + unread
                           : other.empty() ? " as in " + checkpoint
                                           : fmt::format(" ({} has {})", checkpoint, other);
  if (own) return fmt::format(", KV cache {}{}", cache, from);
  return fmt::format("{}{} KV cache {} {}", from, unread.empty() ? "," : ";", cache, asked);
}

std::string unmeasured_host_text(const Case& c, std::span<const Plan> plans) {
  if (!c.engine || c.engine->host_waited_for || !c.batch.decodes()) return "";
  const auto at =
      std::find_if(plans.begin(), plans.end(), [&](const Plan& p) { return waits_for_host(c, p); });
  if (at == plans.end()) return "";
  return fmt::format(
      "steps of {} wait for the host (kernels, then host: no overlap scheduler): none of the {} measured "
      "points has such steps",
      strategy(at->strategy).name, c.engine->error.rows);
}

std::string engine_text(const Case& c) {
  if (!c.engine) return "  engine: ideal (bare kernels, nothing of what an engine adds around them)\n";
  const EngineProfile& e = *c.engine;
  const char* of = c.served.total() > 0                      ? "served"
                   : c.batch.decodes() && c.batch.prefills() ? "steps alone"
                   : c.batch.prefills()                      ? "steps of the prefill alone"
                                        : "decode only: no prompts beside the steps (a workload has them)";
  const std::string cache = cache_option(e, c.precision.kv);
  const std::string kv = fmt::format("KV cache {} ({})", to_string(c.precision.kv),
                                     cache.empty() ? "no type of this engine" : cache);
  // A type that the scenario or the checkpoint gives is no assumption.
  std::string out = fmt::format("  engine: {} {}, {}; {}assumed: {}{}\n", e.title, e.version, of,
                                c.precision.assumed.kv ? "" : kv + "; ",
                                c.precision.assumed.kv ? kv + ", " : "", assumed_text(c));
  if (const std::string other = stored_otherwise(c); !other.empty())
    out += fmt::format("  types of no published checkpoint: {0} has {1} (models: [{0}] takes them)\n",
                       checkpoint_of(c), other);
  // What the engine's default is, precision_text() says.
  if (const std::string unread = types_not_read(c); !unread.empty() && !c.precision.assumed.weights)
    out += fmt::format("  {}: its matrices may be of other types than these\n", unread);
  if (c.served.total() == 0 && c.batch.kind() == StepKind::prefill)
    out += fmt::format("  TTFT is without the request path around the steps, {} in {}\n",
                       to_string(e.host.path), e.title);
  return out;
}

}  // namespace shardline::cli
