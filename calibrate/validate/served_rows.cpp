#include "calibrate/validate/served_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>

#include "calibrate/csv.hpp"
#include "planner/engines/profile.hpp"
#include "planner/serving/served.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

constexpr std::array<const char*, 18> kColumns{
    "system",      "model",   "precision", "backend", "backend_version", "isl_tokens", "osl_tokens",
    "concurrency", "gpus",    "tp",        "pp",      "attn_dp",         "moe_tp",     "moe_ep",
    "ttft_ms",     "tpot_ms", "measured",  "source"};

// How a table names a system.
constexpr std::array<std::pair<const char*, const char*>, 8> kSystems{{{"h100_sxm", "h100-hgx"},
                                                                       {"h200_sxm", "h200-hgx"},
                                                                       {"a100_sxm", "a100-sxm"},
                                                                       {"b200_sxm", "b200-hgx"},
                                                                       {"b200", "b200-hgx"},
                                                                       {"gb200", "gb200-nvl72"},
                                                                       {"gb200_sxm", "gb200-nvl72"},
                                                                       {"gb300", "gb300-nvl72"}}};

// What a checkpoint computes in. Precisions are the checkpoint's: FP8 of Llama has static scales (ModelOpt),
// that of Qwen3-32B was quantised on the fly; R1's has blocks; gpt-oss has MXFP4 experts and BF16 for the
// rest. KV types are not recorded: FP8 where the engine's scripts say so (InferenceX 843c6254:
// 70b_fp8_h200_trt_slurm.sh, dsr1_fp8_h200_trt_slurm.sh), else BF16.
struct Served {
  const char* id;         // a part of the model's name in a table
  const char* precision;  // there
  const char* engine;     // "": any
  const char* model;      // of the catalogue
  const char* types;
  bool experts;
};
constexpr std::array<Served, 10> kServed{{
    {"Qwen3-32B", "fp8", "", "qwen3-32b", "{weights: fp8_dynamic, kv: fp8, math: fp8}", false},
    {"Qwen3-32B", "", "", "qwen3-32b", "{weights: bf16, kv: bf16, math: bf16}", false},
    {"Llama-3.1-8B", "fp8", "", "llama-3.1-8b", "{weights: fp8_static, kv: fp8, math: fp8}", false},
    {"Llama-3.1-8B", "", "", "llama-3.1-8b", "{weights: bf16, kv: bf16, math: bf16}", false},
    {"Llama-3.1-70B", "fp8", "", "llama-3.1-70b", "{weights: fp8_static, kv: fp8, math: fp8}", false},
    {"Llama-3.1-70B", "", "", "llama-3.1-70b", "{weights: bf16, kv: bf16, math: bf16}", false},
    {"DeepSeek-R1", "fp8", "trtllm", "deepseek-r1", "{weights: fp8_block, kv: fp8, math: fp8}", true},
    {"DeepSeek-R1", "fp8", "", "deepseek-r1", "{weights: fp8_block, kv: bf16, math: fp8}", true},
    {"gpt-oss-120b", "", "", "gpt-oss-120b",
     "{weights: bf16, math: bf16, expert_weights: mxfp4, expert_math: bf16, kv: bf16}", true},
    {"gpt-oss-20b", "", "", "gpt-oss-20b",
     "{weights: bf16, math: bf16, expert_weights: mxfp4, expert_math: bf16, kv: bf16}", true},
}};

const Served* served_as(const std::string& model, const std::string& precision, const std::string& engine) {
  for (const Served& s : kServed) {
    const bool own =
        std::string_view(s.id).starts_with("gpt-oss");  // one checkpoint, whatever a table calls it
    if (model.find(s.id) != std::string::npos && (own || precision == s.precision) &&
        (*s.engine == '\0' || engine == s.engine))
      return &s;
  }
  return nullptr;
}

struct Cells {
  std::map<std::string, std::string> text;
  double number(const char* column, double otherwise = 0) const {
    const std::string& t = text.at(column);
    double v = otherwise;  // good_counts() has read it
    std::from_chars(t.data(), t.data() + t.size(), v);
    return v;
  }
  int count(const char* column) const { return static_cast<int>(number(column, 1)); }
};

// The layout of a row. The 15 rows of R1 under TensorRT-LLM of 2025-11-02 ran EP 8, and at 8K/1K beyond 32
// users attention DP 8, whatever the table says (SemiAnalysisAI/InferenceX e06929c70,
// benchmarks/dsr1_fp8_h200_trt_slurm.sh).
std::string plan_of(const Cells& c, const Served& s) {
  int tp = c.count("tp"), dp = c.count("attn_dp"), moe_tp = c.count("moe_tp"), ep = c.count("moe_ep");
  const int pp = c.count("pp");
  if (c.text.at("measured") == "2025-11-02" && std::string_view(s.model) == "deepseek-r1") {
    ep = c.count("gpus"), moe_tp = 1;
    if (c.number("isl_tokens") > 8000 && c.number("concurrency") > 32) dp = c.count("gpus"), tp = 1;
  }
  std::string out = dp > 1   ? fmt::format("dp_ep:dp={}", dp)
                    : pp > 1 ? fmt::format("pipeline:pp={}", pp)
                             : "tensor:";
  const auto add = [&](const char* key, int value) {
    if (value > 1) out += fmt::format("{}{}={}", out.back() == ':' ? "" : ",", key, value);
  };
  add("tpa", tp);
  if (s.experts) add("ep", ep);
  add("tpf", s.experts ? moe_tp : tp);
  if (pp > 1) add("in_flight", pp);
  return out + (out.back() == ':' ? "batch=1" : ",batch=1");
}

// A step with room for one prompt beside the users who decode, as NVIDIA's scripts for InferenceX have it
// (e06929c70, dsr1_fp8_h200_trt_slurm.sh: MAX_NUM_TOKENS).
long long one_prompt(const ServedRow& r, double nominal_input) {
  constexpr double kWhole = 64;
  return static_cast<long long>(std::ceil((r.users + nominal_input + kWhole) / kWhole) * kWhole);
}

// Requests of a user. InferenceX's clients send ten (25506e87c, gptoss_fp4_h100_docker.sh). What those of
// AIConfigurator sent follows from their means: silicon_sample.csv (095f58a51) has them with all their
// digits, sums of whole nanoseconds over the number of requests. Times ten of each user they are whole in
// vLLM's rows of 0.12.0, which is what its runner asks for (37f267b5a,
// src/aiconfigurator/eval/benchmarks/genai_perf_runner.py:222); under TensorRT-LLM 1.0.0rc3, SGLang
// 0.5.1.post1 and 0.5.8.post1 times twenty, but 2,000 in all where there are 128 users (or one or two less,
// of which requests must have failed: Llama-3.1-8B, 1K). Other rows are rounded.
double rounds_of(const ServedRow& r) {
  const bool twenty = (r.engine == "trtllm" && r.version == "1.0.0rc3") ||
                      (r.engine == "sglang" && (r.version == "0.5.1.post1" || r.version == "0.5.8.post1"));
  return r.equal_lengths && twenty ? std::min(20.0, 2000 / r.users) : kMeasuredRounds;
}

// How a row's engine was started, where that is not what its profile says.
// Whether its host works beside kernels follows from its version (EngineProfile::waits_in_version); rows
// without one ran as the profile's version does: InferenceX's scripts asked vLLM for async scheduling before
// it was the default (9596d23d7, 70b_fp8_h200_slurm.sh; e06929c70, gptoss_fp4_h100_slurm.sh).
// AIConfigurator's generator starts SGLang with --enable-mixed-chunk since 07a377923 (19 January 2026;
// before, it wrote an option that SGLang does not have), its template for 0.5.6.post2 is of c46a56b02 (22
// January). It leaves chunked prefill of TensorRT-LLM off (961028348, src/aiconfigurator/cli:
// templates/trtllm/dynamo/extra_engine_args.1.0.0rc3.yaml.j2 and backends/trtllm.py:105; c0c44d911^,
// extra_engine_args.1.3.0rc1.yaml.j2).
// With which budget of tokens these servers of vLLM and TensorRT-LLM ran nothing says. Its generator would
// have written batch + input + 1500 tokens (37f267b5a, src/aiconfigurator/generator/backends/trtllm.py:140;
// 2cecd6596, generator/rule_plugin/vllm.rule:20), which are one whole prompt of 2K or 4K, but two of 1K. Its
// estimates, which these rows were gathered to be held against, take one prompt a step
// (docs/cli_user_guide.md at 095f58a51: --ctx-tokens, "Default: same as ISL"). One prompt is assumed: played
// either way, rows of each engine and model say so (planner/requests/README.md, "Measured loops"). Budgets
// and parts of memory: InferenceX 9596d23d7, 70b_fp8_h200_slurm.sh, 70b_fp8_h200_trt_slurm.sh; e06929c70,
// dsr1_fp8_h200_trt_slurm.sh (a budget of one prompt); 626932a11, dsr1_fp8_h200.sh; cec542a9a,
// gptoss_fp4_h100.sh.
void add_start(ServedRow& r, double nominal_input) {
  const bool trtllm = r.engine == "trtllm", sglang = r.engine == "sglang", vllm = r.engine == "vllm";
  r.rounds = rounds_of(r);
  r.mixes_prompts = sglang && r.equal_lengths && !earlier_version(r.version, "0.5.6");
  if (r.equal_lengths) {
    r.whole_prompts = trtllm;
    if (vllm || trtllm) r.step_tokens = one_prompt(r, nominal_input);
    return;
  }
  if (vllm && (r.model == "llama-3.1-70b" || r.model == "gpt-oss-120b")) r.memory = 0.9;
  if (trtllm && r.model == "llama-3.1-70b") r.step_tokens = 16384;
  if (trtllm && r.model == "deepseek-r1") r.step_tokens = one_prompt(r, nominal_input), r.memory = 0.75;
  if (sglang && r.model == "deepseek-r1") r.step_tokens = 32768, r.memory = 0.82;
}

// A GPU of these rows takes up to 118 thousand prompt tokens per second (2K/100, 64 users, one GPU); the data
// sheet's 1,979 TFLOP/s of FP8 over 2 x 7.5e9 operations a token are 132 thousand.
constexpr const char* kCachedPrefixes =
    "cached prefixes or a wrong number of users in 13 of 21 rows by the notes of the tables, with up to 118 "
    "thousand prompt tokens/s per GPU, 89 % of what the data sheet's FP8 rate allows; the other 8 are of the "
    "same runs";

// Why a row says nothing of what it seems to say; empty: it does.
std::string fault_of(const Cells& c, const ServedRow& r) {
  if (r.model == "deepseek-r1" && r.engine == "trtllm" && r.version == "1.1.0rc2.post2")
    return "measured with multi-token prediction (InferenceX bf3456727: the points are those of its MTP "
           "search)";
  if (r.model == "gpt-oss-120b" && r.users >= 512 && r.date >= "2025-12-05" && r.date < "2025-12-10")
    return "a wrong number of users: the client had 512 written into it (InferenceX 25506e87c)";
  if (c.text.at("model") == "nvidia/Llama-3.1-8B-Instruct-FP8" && r.engine == "vllm") return kCachedPrefixes;
  if (r.model == "gpt-oss-120b" && r.engine == "trtllm" && r.version == "1.3.0rc1" && r.gpus == 2 &&
      r.users >= 320)
    return "caches of 320 requests in 16 bits, with all tokens in every layer as the engine keeps them, are "
           "larger than what two GPUs have for them, and a TTFT of 2.3 s says that none waited: caches of a "
           "type or size that the table does not name";
  return "";
}

// Why its TTFT alone does.
std::string ttft_fault_of(const ServedRow& r) {
  if (r.model == "deepseek-r1")
    return "servers that were not warm: kernels of experts are tuned in the first steps (InferenceX has "
           "--num-warmups since 2026-01, d053ae24e; SGLang's first answers take seconds)";
  if (r.model == "gpt-oss-120b" && r.engine == "vllm" && !r.version.empty() &&
      !earlier_version(r.version, "0.13.0"))
    return "experts ran by Marlin's kernels (VLLM_MXFP4_USE_MARLIN=1, InferenceX since 4e52ed4c6, "
           "gptoss_fp4_h100): weights alone are in FP4, so that prompts take about twice what the engine's "
           "own "
           "choice does; they were not measured on its shapes";
  if (r.model == "llama-3.1-70b" && r.engine == "trtllm" && r.input < 1024 && r.output < 1024 && r.gpus < 8)
    return "held for 20 steps (batch_wait_timeout_iters of InferenceX 9596d23d7, 70b_fp8_h200_trt_slurm.sh)";
  return "";
}

void leave_out(ServedTable& t, const ServedRow& r, const std::string& reason, bool ttft_alone) {
  const auto same = [&](const LeftOutRows& l) {
    return l.reason == reason && l.engine == r.engine && l.ttft_alone == ttft_alone;
  };
  const auto at = std::find_if(t.left_out.begin(), t.left_out.end(), same);
  if (at == t.left_out.end())
    t.left_out.push_back({reason, r.engine, 1, ttft_alone});
  else
    ++at->rows;
}

// "0.24.0", "1.3.0rc10", "v0.5.14.post1+cu130", or nothing: profiles say it, and launch files may.
bool is_version(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '+' || c == '-' || c == '_';
  });
}

void add_row(ServedTable& out, const Cells& c, int line) {
  ServedRow r;
  const auto system = std::find_if(kSystems.begin(), kSystems.end(),
                                   [&](const auto& s) { return c.text.at("system") == s.first; });
  r.engine = c.text.at("backend");
  const Served* s = served_as(c.text.at("model"), c.text.at("precision"), r.engine);
  if (system == kSystems.end() || s == nullptr) {
    leave_out(
        out, r,
        fmt::format("no system or model of the catalogue: {} on {}", c.text.at("model"), c.text.at("system")),
        false);
    return;
  }
  r.system = system->second;
  r.model = s->model;
  r.precision = s->types;
  const bool named = *s->precision != '\0';  // else one checkpoint, whatever a table calls it
  r.label = r.model + (named ? std::string(" ") + s->precision : "");
  r.version = c.text.at("backend_version");
  if (!is_version(r.version)) {
    leave_out(out, r, "backend_version is no version, for instance 0.24.0", false);
    return;
  }
  r.date = c.text.at("measured");
  r.source = c.text.at("source");
  r.plan = plan_of(c, *s);
  r.equal_lengths = r.source.find("gap-analysis") != std::string::npos;
  const double drawn = r.equal_lengths ? 1 : 0.9;  // InferenceMAX draws 80 to 100 % of the nominal lengths
  r.input = c.number("isl_tokens") * drawn;
  r.output = c.number("osl_tokens") * drawn;
  r.users = c.number("concurrency");
  r.gpus = c.count("gpus");
  r.tpot = c.number("tpot_ms") * 1e-3;
  r.ttft = c.number("ttft_ms") * 1e-3;
  r.line = line;
  add_start(r, c.number("isl_tokens"));
  if (const std::string fault = fault_of(c, r); !fault.empty()) {
    leave_out(out, r, fault, false);
    if (fault == kCachedPrefixes) out.priced.push_back(std::move(r));
    return;
  }
  if (const std::string fault = ttft_fault_of(r); !fault.empty()) {
    leave_out(out, r, fault, true);
    r.ttft = 0;
  }
  out.rows.push_back(std::move(r));
}

// No system or layout of a row has more GPUs, so that products of four parts are numbers still.
constexpr double kMostGpus = 10000;

// Whether a row's numbers are counts and times, and its GPUs those of its layout.
bool good_counts(CsvText& csv, std::size_t line, const std::vector<CsvCell>& cells,
                 const std::map<std::string_view, std::size_t>& at, const Cells& row) {
  bool good = true;
  const auto cell = [&](const char* column) -> const CsvCell& { return cells[at.at(column)]; };
  for (const auto& [column, least] :
       {std::pair("isl_tokens", 1.0), std::pair("osl_tokens", 2.0), std::pair("concurrency", 1.0)})
    good = csv.integer(line, cell(column), column, least).has_value() && good;
  for (const char* column : {"gpus", "tp", "pp", "attn_dp", "moe_tp", "moe_ep"}) {
    const bool needed = column == std::string_view("gpus") || column == std::string_view("tp");
    if (needed || !row.text.at(column).empty())
      good = csv.integer(line, cell(column), column, 1, kMostGpus).has_value() && good;
  }
  good = csv.time(line, cell("tpot_ms"), "tpot_ms").has_value() && good;
  if (!row.text.at("ttft_ms").empty()) good = csv.time(line, cell("ttft_ms"), "ttft_ms").has_value() && good;
  if (!good) return false;
  const double layout = row.number("tp", 1) * row.number("pp", 1) * row.number("attn_dp", 1);
  if (row.number("gpus") == layout) return true;
  csv.fault(line, cell("gpus"), "gpus",
            fmt::format("{:.0f} GPUs, but tp x pp x attn_dp is {:.0f}", row.number("gpus"), layout));
  return false;
}

}  // namespace

ServedTable parse_served_rows(const std::string& name, const std::string& text) {
  CsvText csv(name, text);
  ServedTable out;
  std::map<std::string_view, std::size_t> at;
  CancelCheck check;
  for (std::size_t l = 0; l < csv.lines().size() && !csv.hopeless(); ++l) {
    check();
    if (csv.lines()[l].empty()) continue;
    const std::vector<CsvCell> cells = csv.cells(l, CsvStyle::quotes);
    if (at.empty()) {
      at = csv.places(l, cells);
      for (const char* column : kColumns) {
        if (!at.contains(column)) csv.fault(l, {"", 1}, column, fmt::format("no column {}", column));
      }
      csv.finish();
      continue;
    }
    Cells row;
    if (cells.size() != at.size()) {
      csv.fault(l, fmt::format("{} cells, the header has {}", cells.size(), at.size()));
      continue;
    }
    for (const char* column : kColumns) row.text[column] = std::string(cells[at.at(column)].text);
    bool good = true;
    good = good_counts(csv, l, cells, at, row) && good;
    if (good) add_row(out, row, static_cast<int>(l) + 1);
  }
  csv.finish();
  return out;
}

ServedTable load_served_rows(const std::filesystem::path& file) {
  return parse_served_rows(file.string(), read_text(file, kLargestTable));
}

}  // namespace shardline
