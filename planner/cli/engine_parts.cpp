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
#include "planner/layers/drafts.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline::cli {

bool says_step_tokens(const std::vector<std::string>& knobs) {
  return std::any_of(knobs.begin(), knobs.end(), [](const std::string& knob) {
    return knob.starts_with("max_num_batched_tokens=") || knob.starts_with("chunked_prefill_size=") ||
           knob.starts_with("max_num_tokens=");
  });
}

std::string assumed_text(const Case& c, bool says_tokens) {
  const EngineProfile& e = *c.engine;
  std::vector<std::string> assumed = assumed_of_engine(c);
  // Of steps alone the scenario says how long they are.
  if (c.served.total() > 0 && !says_tokens)
    assumed.insert(assumed.begin(), fmt::format("{} tokens a step", e.tokens_of_step(c.system.device)));
  if (e.kept.one_size())
    assumed.insert(assumed.begin(),
                   fmt::format("{} of each GPU kept for context and graphs", to_string(e.kept.fixed, 2)));
  if (const auto block = block_of(e.name, c))
    assumed.insert(assumed.begin(), fmt::format("cache in blocks of {} tokens", *block));
  // Where the checkpoint's own arithmetic is another one, which no kernel of the engine has there.
  if (const Dtype math = c.precision.of(Module::experts).math;
      c.precision.assumed.expert_math && math == Dtype::bf16)
    assumed.insert(assumed.begin(), fmt::format("experts computed in {}", to_string(math)));
  assumed.insert(assumed.begin(),
                 fmt::format("CUDA graphs to {} requests", e.graphs.empty() ? 0 : e.graphs.back()));
  return fmt::format("{}", fmt::join(assumed, ", "));
}

std::string stored_text(const Case& c) {
  const std::string checkpoint = checkpoint_of(c), other = stored_otherwise(c), unread = types_not_read(c);
  std::string out;
  if (!checkpoint.empty())
    out = !unread.empty() ? "; " + unread
          : other.empty() ? " as in " + checkpoint
                          : fmt::format(" ({} has {})", checkpoint, other);
  if (c.precision.assumed.kv) return out;
  const std::optional<Dtype> published = checkpoint_cache(c),
                             own = c.model.checkpoint ? c.model.checkpoint->kv : std::nullopt;
  const std::optional<Dtype> said = own ? own : published;
  const bool as_said = said && kernel_type(*said) == kernel_type(c.precision.kv);
  return out + fmt::format("{} KV cache {} {}{}", unread.empty() ? "," : ";", to_string(c.precision.kv),
                           as_said ? "as its files say" : "as asked",
                           said && !as_said
                               ? fmt::format(", where the checkpoint's files say {}", to_string(*said))
                               : "");
}

std::string assumed_cache_text(const Case& c) {
  if (!c.precision.assumed.kv) return "";
  const std::string unread = cache_not_read(c);
  return fmt::format("KV cache {}{}", to_string(c.precision.kv),
                     unread.empty() ? "" : fmt::format(" (what {} says of it was not read)", unread));
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
  if (!c.engine) return "  engine: " + bare_kernels_text() + "\n";
  const EngineProfile& e = *c.engine;
  const char* of = c.served.total() > 0                      ? "served"
                   : c.batch.decodes() && c.batch.prefills() ? "steps alone"
                   : c.batch.prefills()                      ? "steps of the prefill alone"
                                        : "decode only: no prompts beside the steps (a workload has them)";
  const std::string cache = cache_option(e, c.precision.kv);
  const std::string kv = fmt::format("KV cache {} ({})", to_string(c.precision.kv),
                                     cache.empty() ? "no type of this engine" : cache);
  const std::string unread_cache = c.precision.assumed.kv ? cache_not_read(c) : "";
  // A type that the scenario or the checkpoint gives is no assumption.
  std::string out = fmt::format("  engine: {} {}, {}; {}assumed: {}{}\n", e.title, e.version, of,
                                c.precision.assumed.kv ? "" : kv + "; ",
                                c.precision.assumed.kv ? kv + ", " : "", assumed_text(c));
  if (!unread_cache.empty())
    out += fmt::format("  what {} says of its KV cache was not read (precision: {{kv: ...}} sets it)\n",
                       unread_cache);
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

std::string weights_text(const Case& c) {
  const Dtype attention = c.precision.of(Module::attention).weights;
  const bool experts = has_experts(c.model);
  const Dtype main = c.precision.of(experts ? Module::experts : Module::dense_ffn).weights;
  return main == attention ? fmt::format("weights {}", to_string(main))
                           : fmt::format("attention {}, {} {}", to_string(attention),
                                         experts ? "experts" : "FFN", to_string(main));
}

std::string refusal_text(const Case& c, const Refusal& refusal) {
  return fmt::format("{} does not start this plan: {}; its rule: {} ({})", title_of(*c.engine), refusal.text,
                     refusal.says, refusal.source);
}

}  // namespace shardline::cli
