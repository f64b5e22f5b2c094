#include "reports/partition_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "reports/json.hpp"

namespace shardline {

namespace {

std::vector<std::pair<std::string_view, std::string>> texts(const PartitionProvenance& p) {
  return {{"model", p.model},
          {"system", p.system},
          {"version", p.version},
          {"command", p.command},
          {"precision", p.precision}};
}

std::vector<std::pair<std::string_view, long long>> numbers(const PartitionProvenance& p) {
  return {{"gpus_per_rank", p.gpus_per_rank},
          {"granularity_tokens", p.granularity},
          {"spacing_tokens", p.spacing}};
}

template <class Text>
std::string joined(const std::vector<long long>& values, const char* separator, const Text& text) {
  std::string out;
  for (const long long v : values) out += (out.empty() ? "" : separator) + text(v);
  return out;
}

double sum(const std::vector<long long>& tokens) {
  return static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), 0LL));
}

std::string row_json(const PartitionRow& r) {
  const double all = sum(r.tokens);
  return fmt::format(
      "{{\"context_tokens\": {}, \"tokens_per_rank\": [{}],\n       \"ratios\": [{}],\n       \"ttft_s\": "
      "{}, "
      "\"even_ttft_s\": {}, \"bound_s\": {}, \"proven\": {}}}",
      r.context, joined(r.tokens, ", ", [](long long v) { return std::to_string(v); }),
      joined(r.tokens, ", ", [all](long long v) { return number_text(static_cast<double>(v) / all); }),
      number_text(r.ttft.value), number_text(r.even.value), number_text(r.bound.value), r.proven);
}

}  // namespace

std::string partition_text(const std::vector<long long>& tokens) {
  return joined(tokens, "/", [](long long v) { return std::to_string(v); });
}

std::string ratios_text(const std::vector<long long>& tokens) {
  const double all = sum(tokens);
  return joined(tokens, "/",
                [all](long long v) { return fmt::format("{:.3f}", static_cast<double>(v) / all); });
}

std::string partition_csv(const PartitionProvenance& provenance, const std::vector<PartitionRow>& rows) {
  std::string out;
  for (auto& [key, value] : texts(provenance)) {
    std::replace_if(
        value.begin(), value.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    out += fmt::format("# {}: {}\n", key, value);
  }
  for (const auto& [key, value] : numbers(provenance)) out += fmt::format("# {}: {}\n", key, value);
  out += csv_line({"ranks", "context_tokens", "in_table", "tokens_per_rank", "ratios", "ttft_s", "proven",
                   "bound_s", "eq3_s", "one_rank_ttft_s", "even_ttft_s", "interpolated_tokens_per_rank",
                   "interpolated_ttft_s", "evaluations", "grid_search_ttft_s", "grid_search_evaluations",
                   "ttft_low_s", "ttft_high_s"});
  const auto text = [](const std::optional<Seconds>& t) { return t ? number_text(t->value) : ""; };
  for (const PartitionRow& r : rows) {
    out += csv_line({std::to_string(r.ranks), std::to_string(r.context), r.in_table ? "yes" : "no",
                     partition_text(r.tokens), ratios_text(r.tokens), number_text(r.ttft.value),
                     r.proven ? "yes" : "no", number_text(r.bound.value), number_text(r.ideal.value),
                     number_text(r.alone.value), number_text(r.even.value), partition_text(r.interpolated),
                     number_text(r.interpolated_ttft.value), std::to_string(r.evaluations),
                     text(r.grid_search), r.grid_search ? std::to_string(r.grid_evaluations) : "",
                     text(r.ttft_low), text(r.ttft_high)});
  }
  return out;
}

std::string partition_json(const PartitionProvenance& provenance, const std::vector<PartitionRow>& rows) {
  std::string out = "{\n  \"schema\": \"shardline partition table 1\",\n  \"provenance\": {";
  for (const auto& [key, value] : texts(provenance))
    out += fmt::format("{}\n    {}: {}", out.back() == '{' ? "" : ",", json_string(key), json_string(value));
  out += "\n  }";
  for (const auto& [key, value] : numbers(provenance)) out += fmt::format(",\n  \"{}\": {}", key, value);
  out += ",\n  \"tables\": [";
  for (std::size_t first = 0, last; first < rows.size(); first = last) {
    std::string list;
    double worst = 0;
    long long worst_at = 0;
    int lengths = 0;
    for (last = first; last < rows.size() && rows[last].ranks == rows[first].ranks; ++last) {
      const PartitionRow& r = rows[last];
      if (r.in_table) {
        list += fmt::format("{}\n      {}", list.empty() ? "" : ",", row_json(r));
        continue;
      }
      const double loss = r.interpolated_ttft / r.ttft - 1;
      if (lengths++ == 0 || loss > worst) worst = loss, worst_at = r.context;
    }
    out += fmt::format(
        "{}\n    {{\"ranks\": {}, \"interpolation\": {{\"lengths\": {}, \"worst_loss\": {}, "
        "\"worst_at_context_tokens\": {}}},\n     \"rows\": [{}\n     ]}}",
        first > 0 ? "," : "", rows[first].ranks, lengths, number_text(worst), worst_at, list);
  }
  return out + "\n  ]\n}\n";
}

}  // namespace shardline
