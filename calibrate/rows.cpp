#include "calibrate/rows.hpp"

#include <algorithm>
#include <string_view>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// A library's other kernel by the same name, which it takes up to so much of a number. README.md [F15].
struct HiddenKernel {
  const char *family, *kernel, *number;
  double most;
  const char* own_name;
};
constexpr HiddenKernel kHidden[] = {
    // MiniMax-M3's block by TensorRT-LLM on Blackwell: the scores of one index head, which ranks of up to 16
    // query heads (one KV head) have, take 0.42 ns a token and request, those of two and four 0.05 ns (GB200,
    // 64 requests of 131,071 tokens: 3.7 ms with 1 to 16 heads, 0.57 with 32, 0.62 with 64).
    {"sparse_decode", "msa_fmha_sm100", "heads_local", 16, "msa_fmha_sm100_one_kv_head"},
};

}  // namespace

void name_hidden_kernel(const Form& form, std::span<const double> x, std::vector<std::string>& words) {
  for (const HiddenKernel& hidden : kHidden) {
    if (std::string_view(form.family) != hidden.family) continue;
    const auto kernel = std::find(words.begin(), words.end(), hidden.kernel);
    const auto number = std::find(form.numbers.begin(), form.numbers.end(), std::string_view(hidden.number));
    if (kernel == words.end() || number == form.numbers.end()) continue;
    if (x[static_cast<std::size_t>(number - form.numbers.begin())] <= hidden.most) *kernel = hidden.own_name;
  }
}

VariantRows rows_of(const Form& form, const System& system, const MeasurementTable& table) {
  VariantRows out;
  std::vector<const std::vector<double>*> numbers;
  std::vector<const std::vector<std::string>*> words;
  for (const char* column : form.numbers) numbers.push_back(&table.number(column));
  for (const char* column : form.words) words.push_back(&table.word(column));
  std::vector<double> x(numbers.size());
  std::vector<std::string> variant(words.size());
  std::map<std::vector<std::string>, bool> known;
  CancelCheck check;
  for (std::size_t row = 0; row < table.size(); ++row) {
    check();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (*numbers[i])[row];
    for (std::size_t i = 0; i < variant.size(); ++i) variant[i] = (*words[i])[row];
    name_hidden_kernel(form, x, variant);
    const auto [found, fresh] = known.try_emplace(variant, false);
    if (fresh) {
      FormContext context;
      found->second = form.context(variant, system, context);
    }
    if (!found->second || !form.covers(x)) {
      ++out.left_out;
      continue;
    }
    FitRows& rows = out.variants[variant];
    rows.width = x.size();
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(table.median[row].value);
    out.engines[variant].push_back(row < table.engines.size() ? table.engines[row] : "");
  }
  return out;
}

bool of_another_engine(const MeasurementTable& table, std::size_t row, const std::string& framework) {
  return row < table.engines.size() && of_another_engine(table.engines[row], framework);
}

bool of_another_engine(const std::string& engine, const std::string& framework) {
  return !framework.empty() && !engine.empty() && engine != framework;
}

std::string variant_name(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) {
    if (!w.empty()) out += (out.empty() ? "" : " ") + w;
  }
  return out.empty() ? "all" : out;
}

}  // namespace shardline
