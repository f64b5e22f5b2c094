#include "planner/scenario/scenario_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shardline::scenario_parts {

namespace {

// Ring sizes and TP of questions that name their plan themselves.
int read_tpa(const Reader& r, int cp, int system_gpus, const char* ranks = "cp") {
  const auto tpa = static_cast<int>(r.at("tpa").integer(1, 1024));
  if (static_cast<long long>(tpa) * cp > system_gpus) {
    r.fault(fmt::format("{}: {} x tpa is {} GPUs but the system has {}", r.path(), ranks,
                        static_cast<long long>(tpa) * cp, system_gpus));
  }
  return tpa;
}

}  // namespace

std::optional<std::size_t> choice(const Reader& r, const std::vector<std::string>& names) {
  const std::size_t i = r.one_of(names);
  return r.is_scalar() && r.text() == names[i] ? std::optional(i) : std::nullopt;
}

std::vector<int> read_token_counts(const Reader& r, int lowest, int highest) {
  std::vector<int> out;
  if (r.is_sequence()) {
    for (const Reader& item : r.items()) out.push_back(static_cast<int>(item.tokens(lowest, highest)));
    if (out.empty()) r.fault(r.path() + " is empty", {"expected a list as [8Ki tokens, 32Ki tokens]"});
  } else {
    out.push_back(static_cast<int>(r.tokens(lowest, highest)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

namespace {

// Whether a value is a range in words, "1-64" and "8 to 64", or asks for all there are; then it is told.
bool told_of_ranges(const Reader& r) {
  const std::string text = r.is_scalar() ? r.text() : "";
  for (const std::string_view all : {"all", "any", "auto", "max"}) {
    if (text != all) continue;
    r.fault(
        fmt::format("{}: expected an integer or a list of them, found {}", r.path(), text),
        {"all of a range are written {from: 1, to: 64}, its powers of two {from: 1, to: 64, step: double}"});
    return true;
  }
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return false;
  std::string_view rest = std::string_view(text).substr(digits);
  for (const std::string_view sign : {"-", "..", ":", " to "}) {
    if (!rest.starts_with(sign)) continue;
    rest.remove_prefix(sign.size());
    if (rest.starts_with('.')) rest.remove_prefix(1);  // "1...64"
    if (rest.empty() || rest.find_first_not_of("0123456789") != std::string_view::npos) return false;
    const std::string_view from = std::string_view(text).substr(0, digits);
    r.fault(fmt::format("{}: expected an integer or a list of them, found {}", r.path(), text),
            {fmt::format("a range is written {{from: {0}, to: {1}}}, its powers of two {{from: {0}, to: {1}, "
                         "step: double}}",
                         from, rest)});
    return true;
  }
  return false;
}

// Whether a value is several numbers without the brackets of a list, "64,128" and "64 128"; then it is told.
bool told_of_brackets(const Reader& r) {
  constexpr const char* kDigits = "0123456789";
  const std::string text = r.is_scalar() ? r.text() : "";
  if (text.empty() || text.find_first_not_of("0123456789,; ") != std::string::npos) return false;
  std::vector<std::string> numbers;
  for (std::size_t at = 0; (at = text.find_first_of(kDigits, at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
    numbers.push_back(text.substr(at, end - at));
    at = end;
  }
  if (numbers.size() < 2) return false;
  std::string detail = fmt::format("a list is written [{}]", fmt::join(numbers, ", "));
  const bool thousands =
      std::all_of(numbers.begin() + 1, numbers.end(), [](const std::string& n) { return n.size() == 3; });
  if (thousands && text.find_first_of("; ") == std::string::npos)
    detail += fmt::format(", and one number {}", fmt::join(numbers, ""));
  r.fault(fmt::format("{}: expected an integer or a list of them, found {}", r.path(), text),
          {std::move(detail)});
  return true;
}

}  // namespace

std::vector<int> read_counts(const Reader& r, int highest, int lowest) {
  std::vector<int> out;
  bool reversed = false;
  if (r.is_sequence()) {
    for (const Reader& item : r.items()) out.push_back(static_cast<int>(item.integer(lowest, highest)));
  } else if (r.is_map()) {
    const auto from = static_cast<int>(r.at("from").integer(lowest, highest));
    const auto to = static_cast<int>(r.at("to").integer(lowest, highest));
    reversed = from > to;
    if (reversed) r.fault(fmt::format("{} runs from {} to {}: from must not exceed to", r.path(), from, to));
    int step = 1;
    bool doubles = false;
    if (const auto s = r.find("step")) {
      const bool number = s->is_scalar() && s->text().find_first_of("0123456789") != std::string::npos;
      if (number || !s->is_scalar()) {
        step = static_cast<int>(s->integer(1, highest));
      } else {
        doubles = true;
        if (s->text() != "double")
          s->fault(fmt::format("{}: expected an integer or double, found {}", s->path(), s->text()));
      }
    }
    r.no_other_keys();
    for (int n = from; n <= to; n = doubles ? 2 * n : n + step) out.push_back(n);
  } else {
    out.push_back(told_of_brackets(r) || told_of_ranges(r) ? lowest
                                                           : static_cast<int>(r.integer(lowest, highest)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.empty() && !reversed)
    r.fault(r.path() + " is empty", {"expected a number, a list of numbers or {from: 1, to: 64}"});
  return out;
}

Kernels read_kernels(const Reader& r, Kernels k) {
  if (const auto v = r.find("elementwise")) k.separate_elementwise = choice(*v, {"fused", "separate"}) == 1u;
  if (const auto v = r.find("split_merge")) k.fused_split_merge = choice(*v, {"separate", "fused"}) == 1u;
  if (const auto v = r.find("shard_merge")) k.separate_shard_merge = choice(*v, {"fused", "separate"}) == 1u;
  if (const auto v = r.find("attention"))
    k.attention = choice(*v, {"flash", "eager"}) == 1u ? AttentionKernel::eager : AttentionKernel::flash;
  if (const auto v = r.find("score_traffic")) {
    k.score_traffic = v->quantity<Bytes>(Bytes(0), Bytes(1000));
    if (k.attention == AttentionKernel::flash)
      v->fault("kernels.score_traffic is for attention: eager; flash kernels keep scores on chip");
  }
  r.no_other_keys();
  return k;
}

NoiseSpec read_noise(const Reader& r) {
  NoiseSpec n;
  if (const auto v = r.find("links")) {
    const auto i = choice(*v, {"nvlink", "network", "all"});
    if (i) n.links = static_cast<NoiseLinks>(*i);
  }
  n.load = r.at("load").number(0, 0.99);
  if (const auto v = r.find("burst")) n.burst = v->quantity<Seconds>(Seconds(1e-6), Seconds(1e3));
  if (const auto v = r.find("flows")) n.flows = static_cast<int>(v->integer(1, 1000));
  if (const auto v = r.find("pairs")) n.pairs = static_cast<int>(v->integer(1, 8192));
  if (const auto v = r.find("seeds")) n.seeds = static_cast<int>(v->integer(1, 4096));
  if (const auto v = r.find("seed")) n.seed = static_cast<std::uint64_t>(v->integer(0, kLargestSeed));
  r.no_other_keys();
  return n;
}

// Of a step: each is a row of its layouts, and groups of decoding requests are, too.
constexpr std::size_t kMostSequences = 4096;

std::vector<Segment> read_requests(const Reader& r) {
  std::vector<Segment> out;
  if (r.is_sequence() && r.items().empty())
    r.fault(r.path() + " is empty", {"expected a list of {new: 128Ki tokens}"});
  for (const Reader& item : r.items()) {
    Segment q;
    q.fresh = item.at("new").tokens(1, kLongest);
    if (const auto v = item.find("cached")) q.cached = v->tokens(0, kLongest);
    const long long count = item.has("count") ? item.at("count").integer(1, 4096) : 1;
    item.find("count");
    item.no_other_keys();
    if (out.size() + static_cast<std::size_t>(count) > kMostSequences) {
      r.fault(fmt::format("requests has more than {} sequences", kMostSequences));
      break;
    }
    out.insert(out.end(), static_cast<std::size_t>(count), q);
  }
  return out;
}

std::vector<Segment> read_decoding(const Reader& r) {
  std::vector<Segment> out;
  if (r.is_sequence() && r.items().empty())
    r.fault(r.path() + " is empty", {"expected a list of {context: 128Ki tokens, count: 32}"});
  for (const Reader& item : r.items()) {
    Segment s{item.at("context").tokens(1, kLongest) - 1, 1};
    if (const auto v = item.find("count")) s.count = static_cast<int>(v->integer(1, 65536));
    item.no_other_keys();
    out.push_back(s);
  }
  if (out.size() > kMostSequences)
    r.fault(fmt::format("{} has more than {} groups", r.path(), kMostSequences));
  return out;
}

Conversation read_conversation(const Reader& r, int system_gpus) {
  Conversation c;
  c.cp = static_cast<int>(r.at("cp").integer(2, 1024));
  c.tpa = read_tpa(r, c.cp, system_gpus);
  const Reader turns = r.at("turns");
  if (turns.is_sequence() && turns.items().empty())
    turns.fault(turns.path() + " is empty", {"expected a list of {new: 8Ki tokens, output: 512 tokens}"});
  constexpr std::size_t kMostTurns = 4096;  // their time grows with the square of their number
  if (turns.is_sequence() && turns.items().size() > kMostTurns)
    turns.fault(fmt::format("{} has more than {} turns", turns.path(), kMostTurns));
  for (const Reader& item : turns.items()) {
    Turn t;
    t.fresh = item.at("new").tokens(1, kLongest);
    if (const auto v = item.find("output")) t.output = v->tokens(0, 1'000'000);
    item.no_other_keys();
    c.turns.push_back(t);
  }
  r.no_other_keys();
  return c;
}

ThresholdGrid read_thresholds(const Reader& r, int system_gpus) {
  ThresholdGrid g;
  g.cp = read_counts(r.at("cp"), 1024);
  if (!g.cp.empty() && g.cp.front() < 2) r.at("cp").fault("thresholds.cp: a ring has at least 2 ranks");
  g.tpa = read_tpa(r, g.cp.empty() ? 1 : g.cp.back(), system_gpus);
  const Reader fresh = r.at("new_tokens");
  g.fresh_from = fresh.at("from").tokens(1, kLongest);
  g.fresh_to = fresh.at("to").tokens(1, kLongest);
  fresh.no_other_keys();
  g.total_to = r.at("longest").tokens(1, kLongest);
  if (g.fresh_from >= g.fresh_to) fresh.fault("thresholds.new_tokens: from must be below to");
  if (g.fresh_to > g.total_to) fresh.fault("thresholds.new_tokens: to must not exceed longest");
  const auto points = [&](const char* key, int& out, int most) {
    if (const auto v = r.find(key)) out = static_cast<int>(v->integer(1, most));
  };
  points("new_tokens_per_octave", g.fresh_per_octave, 64);
  points("miss_rate_per_octave", g.miss_per_octave, 64);
  points("test_points", g.test_points, 100'000);
  g.lowest_miss_rate = static_cast<double>(g.fresh_from) / static_cast<double>(g.total_to);
  if (const auto v = r.find("lowest_miss_rate")) g.lowest_miss_rate = v->number(1e-6, 0.5);
  r.no_other_keys();
  return g;
}

namespace {

constexpr std::size_t kMostContexts = 256;
constexpr long long kMostRows = 1024;  // of a lookup table

// A list of token counts, or {from, to, step}. Ascending, each once.
std::vector<long long> read_contexts(const Reader& r) {
  std::vector<long long> out;
  if (r.is_map()) {
    const long long from = r.at("from").tokens(1, kLongest), to = r.at("to").tokens(1, kLongest);
    const long long step = r.at("step").tokens(1, kLongest);
    r.no_other_keys();
    if (from > to) r.fault(fmt::format("{} runs from {} to {}: from must not exceed to", r.path(), from, to));
    for (long long n = from; n <= to && out.size() <= kMostContexts; n += step) out.push_back(n);
  } else {
    for (const Reader& item : r.items()) {
      const long long n = item.tokens(1, kLongest);
      // What could not be read is no short context.
      if (item.is_scalar() && std::holds_alternative<long long>(parse_tokens(item.text()))) out.push_back(n);
    }
    if (r.is_sequence() && r.items().empty())
      r.fault(r.path() + " is empty", {"expected a list such as [4Ki tokens, 8Ki tokens]"});
  }
  if (out.size() > kMostContexts)
    r.fault(fmt::format("{} has more than {} lengths", r.path(), kMostContexts));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

PartitionGrid read_partition(const Reader& r, int system_gpus) {
  PartitionGrid g;
  const Reader contexts = r.at("contexts"), processes = r.at("processes");
  g.contexts = read_contexts(contexts);
  g.processes = read_counts(processes, 1024);
  const int most = g.processes.empty() ? 1 : g.processes.back();
  if (!g.processes.empty() && g.processes.front() < 2)
    processes.fault("partition.processes: a chain has at least 2 ranks");
  if (r.has("tpa")) {
    g.tpa = read_tpa(r, most, system_gpus, "processes");
  } else if (r.find("tpa"); most > system_gpus) {
    processes.fault(
        fmt::format("partition.processes reaches {} but the system has {} GPUs", most, system_gpus));
  }
  if (const auto v = r.find("granularity")) g.granularity = v->tokens(1, 1'000'000);
  if (const auto v = r.find("spacing")) g.spacing = v->tokens(1, kLongest);
  if (const auto v = r.find("max_loss")) g.max_loss = v->number(0, 1);
  r.no_other_keys();
  if (g.contexts.empty()) return g;
  if (g.contexts.front() / g.granularity < most)
    contexts.fault(fmt::format("partition.contexts: {} tokens are too few for {} ranks with at least {} each",
                               g.contexts.front(), most, g.granularity));
  if ((g.contexts.back() - g.contexts.front()) / g.spacing >= kMostRows)
    r.fault(fmt::format("partition: a row every {} tokens makes more than {} rows", g.spacing, kMostRows));
  return g;
}

}  // namespace shardline::scenario_parts
