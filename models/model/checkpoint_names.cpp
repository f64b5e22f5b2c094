#include "models/model/checkpoint_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/model/model.hpp"

namespace shardline::checkpoint {

namespace {

constexpr std::string_view kDraftRoots =
    "mtp.layers. mtp. model.mtp.layers. model.mtp_layers. model.language_model.mtp.layers.";

// Matrices are apart by a space, the names of one by '|'. Names are those of the modules in a family's
// checkpoints, as engines' loaders expect them (load_weights of vllm-project/vllm 68afd7889723,
// model_executor/models), then those of engines that fuse some (packed_modules_mapping and
// stacked_params_mapping there).
struct FamilyNames {
  std::string_view architecture;  // its name begins so
  std::string_view roots;         // before a layer's number
  std::string_view gqa;
  std::string_view gqa_out;
  std::string_view dense;  // gate, up, down; of a plain network without the gate
  std::string_view experts;
  std::string_view shared;
  std::string_view draft_roots = kDraftRoots;  // of modules that draft, where layers' numbers do not go on
};

constexpr std::string_view kRoots =
    "model.layers. model.language_model.layers. language_model.model.layers. layers.";
constexpr std::string_view kGqa =
    "self_attn.q_proj|self_attn.qkv_proj self_attn.k_proj|self_attn.qkv_proj "
    "self_attn.v_proj|self_attn.qkv_proj";
constexpr std::string_view kOut = "self_attn.o_proj";
constexpr std::string_view kMlp = "mlp.gate_proj|mlp.gate_up_proj mlp.up_proj|mlp.gate_up_proj mlp.down_proj";
constexpr std::string_view kExperts =
    "mlp.experts.0.gate_proj|mlp.experts.gate_up_proj mlp.experts.0.up_proj|mlp.experts.gate_up_proj "
    "mlp.experts.0.down_proj|mlp.experts.down_proj";
// The names that DeepSeek and Qwen give them; a list that excludes either excludes both.
constexpr std::string_view kShared =
    "mlp.shared_experts.gate_proj|mlp.shared_expert.gate_proj|mlp.shared_experts.gate_up_proj|"
    "mlp.shared_expert.gate_up_proj "
    "mlp.shared_experts.up_proj|mlp.shared_expert.up_proj|mlp.shared_experts.gate_up_proj|"
    "mlp.shared_expert.gate_up_proj "
    "mlp.shared_experts.down_proj|mlp.shared_expert.down_proj";
// w1 is the gate, w3 goes up, w2 down. The 5th version of transformers calls Mixtral's block mlp.
constexpr std::string_view kSparseBlock =
    "block_sparse_moe.experts.0.w1|mlp.experts.gate_up_proj "
    "block_sparse_moe.experts.0.w3|mlp.experts.gate_up_proj "
    "block_sparse_moe.experts.0.w2|mlp.experts.down_proj";
constexpr std::string_view kSparseShared =
    "block_sparse_moe.shared_experts.gate_proj|block_sparse_moe.shared_experts.gate_up_proj "
    "block_sparse_moe.shared_experts.up_proj|block_sparse_moe.shared_experts.gate_up_proj "
    "block_sparse_moe.shared_experts.down_proj";

constexpr std::array kFamilies{
    // One module called mixer per layer, of whichever kind; vLLM calls the root model.
    FamilyNames{"NemotronH", "backbone.layers. model.layers. layers.",
                "mixer.q_proj|mixer.qkv_proj mixer.k_proj|mixer.qkv_proj mixer.v_proj|mixer.qkv_proj",
                "mixer.o_proj", "mixer.up_proj mixer.down_proj",
                "mixer.experts.0.up_proj mixer.experts.0.down_proj",
                "mixer.shared_experts.up_proj mixer.shared_experts.down_proj"},
    FamilyNames{"Mixtral", kRoots, kGqa, kOut, kMlp, kSparseBlock, kSparseShared},
    FamilyNames{"MiniMax", kRoots, kGqa, kOut, kMlp, kSparseBlock, kSparseShared},
    FamilyNames{"KimiLinear", kRoots, kGqa, kOut, kMlp, kSparseBlock, kSparseShared},
    FamilyNames{"KimiK3", kRoots, kGqa, kOut, kMlp, kSparseBlock, kSparseShared},
    FamilyNames{"Phi3", kRoots, "self_attn.qkv_proj", kOut, "mlp.gate_up_proj mlp.gate_up_proj mlp.down_proj",
                kExperts, kShared},  // gate and up are one module
    FamilyNames{"Falcon", "transformer.h.", "self_attention.query_key_value", "self_attention.dense",
                "mlp.dense_h_to_4h mlp.dense_4h_to_h", kExperts, kShared},
    FamilyNames{"RW", "transformer.h.", "self_attention.query_key_value", "self_attention.dense",
                "mlp.dense_h_to_4h mlp.dense_4h_to_h", kExperts, kShared},
    FamilyNames{
        "Llama4", kRoots, kGqa, kOut,
        "feed_forward.gate_proj|feed_forward.gate_up_proj feed_forward.up_proj|feed_forward.gate_up_proj "
        "feed_forward.down_proj",
        "feed_forward.experts.0.gate_proj|feed_forward.experts.gate_up_proj "
        "feed_forward.experts.0.up_proj|feed_forward.experts.gate_up_proj "
        "feed_forward.experts.0.down_proj|feed_forward.experts.down_proj",
        "feed_forward.shared_expert.gate_proj|feed_forward.shared_expert.gate_up_proj "
        "feed_forward.shared_expert.up_proj|feed_forward.shared_expert.gate_up_proj "
        "feed_forward.shared_expert.down_proj"},
    FamilyNames{"Deepseek", kRoots, kGqa, kOut, kMlp,
                "mlp.experts.0.gate_proj|mlp.experts.gate_up_proj|ffn.experts.0.w1 "
                "mlp.experts.0.up_proj|mlp.experts.gate_up_proj|ffn.experts.0.w3 "
                "mlp.experts.0.down_proj|mlp.experts.down_proj|ffn.experts.0.w2",
                "mlp.shared_experts.gate_proj|mlp.shared_experts.gate_up_proj|ffn.shared_experts.w1|"
                "ffn.shared_experts.gate_up_proj "
                "mlp.shared_experts.up_proj|mlp.shared_experts.gate_up_proj|ffn.shared_experts.w3|"
                "ffn.shared_experts.gate_up_proj "
                "mlp.shared_experts.down_proj|ffn.shared_experts.w2|ffn.shared_experts.down_proj",
                // V4's are mtp.0: a rule of layers.0 is none of theirs (vllm/models/deepseek_v4/nvidia/mtp.py
                // 0050eb86aeec, load_weights), V3's are numbered after the layers.
                "mtp."},
    FamilyNames{"Step3p", kRoots, kGqa, kOut, kMlp,
                "moe.gate_proj|moe.experts moe.up_proj|moe.experts moe.down_proj|moe.experts",
                "share_expert.gate_proj|share_expert.gate_up_proj "
                "share_expert.up_proj|share_expert.gate_up_proj share_expert.down_proj"},
    FamilyNames{"", kRoots, kGqa, kOut, kMlp, kExperts, kShared},
};

// MLA: without compressed queries q_proj makes them. vLLM and SGLang fuse both narrow projections.
constexpr std::string_view kMla =
    "self_attn.q_a_proj|self_attn.fused_qkv_a_proj|self_attn.fused_qkv_a_proj_with_mqa self_attn.q_b_proj "
    "self_attn.kv_a_proj_with_mqa|self_attn.fused_qkv_a_proj|self_attn.fused_qkv_a_proj_with_mqa "
    "self_attn.kv_b_proj";
constexpr std::string_view kMlaWideQueries =
    "self_attn.q_proj self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj";
// DeepSeek's own names (inference/model.py) and those of transformers.
constexpr std::string_view kCompressed =
    "attn.wq_a|self_attn.q_a_proj|attn.fused_wqa_wkv attn.wq_b|self_attn.q_b_proj "
    "attn.wkv|self_attn.kv_proj|attn.fused_wqa_wkv";
// Qwen3-Next stores one matrix, Qwen3.5 two.
constexpr std::string_view kGatedDelta =
    "linear_attn.in_proj_qkv|linear_attn.in_proj_qkvz linear_attn.in_proj_z|linear_attn.in_proj_qkvz";
constexpr std::string_view kIndex =
    "self_attn.indexer.wq_b|attn.indexer.wq_b self_attn.indexer.wk|attn.indexer.wk "
    "self_attn.indexer.weights_proj|attn.indexer.weights_proj|self_attn.indexers_proj";
constexpr std::string_view kLatents =
    "mixer.fc1_latent_proj|mlp.fc1_latent_proj|block_sparse_moe.fc1_latent_proj "
    "mixer.fc2_latent_proj|mlp.fc2_latent_proj|block_sparse_moe.fc2_latent_proj";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

const FamilyNames& family_of(const Model& m) {
  return *std::find_if(kFamilies.begin(), kFamilies.end(),
                       [&](const FamilyNames& f) { return m.architecture.starts_with(f.architecture); });
}

// The matrices of one layer below all of its roots.
class LayerNames {
 public:
  LayerNames(const Model& m, std::vector<std::string> begins, bool draft, std::vector<Matrix>& out)
      : model_(m), family_(family_of(m)), begins_(std::move(begins)), draft_(draft), out_(out) {}

  void add(MatrixPart part, std::string_view matrices) {
    for (const std::string_view matrix : split(matrices, ' ')) {
      Matrix one{part, draft_, {}};
      for (const std::string& begin : begins_) {
        for (const std::string_view name : split(matrix, '|')) {
          one.names.push_back(fmt::format("{}{}", begin, name));
          // Without an architecture nobody knows what the family calls its networks.
          if (!model_.architecture.empty() || !name.starts_with("mlp.")) continue;
          for (const char* other : {"feed_forward", "ffn"})
            one.names.push_back(fmt::format("{}{}{}", begin, other, name.substr(3)));
        }
      }
      out_.push_back(std::move(one));
    }
  }

  void add_mixer(const Attention& a) {
    switch (a.kind) {
      case AttentionKind::gqa:
        add(MatrixPart::attention, family_.gqa);
        add(MatrixPart::out_proj, family_.gqa_out);
        break;
      case AttentionKind::mla:
        add(MatrixPart::attention, a.q_lora_rank > 0 ? kMla : kMlaWideQueries);
        add(MatrixPart::out_proj, kOut);
        break;
      case AttentionKind::compressed:
        add(MatrixPart::attention, kCompressed);
        add(MatrixPart::out_proj, "attn.wo_b|self_attn.o_b_proj");
        break;
      case AttentionKind::delta:
        add(MatrixPart::attention, a.delta->channel_decay ? kGqa : kGatedDelta);
        add(MatrixPart::out_proj, a.delta->channel_decay ? kOut : "linear_attn.out_proj");
        break;
      case AttentionKind::mamba:
        add(MatrixPart::attention, "mixer.in_proj");
        add(MatrixPart::out_proj, "mixer.out_proj");
        break;
      case AttentionKind::none:
        break;
    }
    if (a.index && !a.index->shared) add(MatrixPart::index, kIndex);
  }

  void add_network(const FeedForward& f) {
    if (f.none()) return;
    if (f.dense()) return add(MatrixPart::dense, of_kind(family_.dense));
    add(MatrixPart::experts, of_kind(family_.experts));
    if (f.shared_experts > 0) add(MatrixPart::shared, of_kind(family_.shared));
    if (f.latent > 0) add(MatrixPart::latents, kLatents);
  }

 private:
  /// A plain network has no gate.
  std::string_view of_kind(std::string_view matrices) const {
    const bool gated = model_.ffn_kind == FfnKind::gated;
    return !gated && split(matrices, ' ').size() == 3 ? matrices.substr(matrices.find(' ') + 1) : matrices;
  }

  const Model& model_;
  const FamilyNames& family_;
  std::vector<std::string> begins_;
  bool draft_;
  std::vector<Matrix>& out_;
};

std::vector<std::string> begins_of(std::string_view roots, int layer) {
  std::vector<std::string> out;
  for (const std::string_view root : split(roots, ' ')) out.push_back(fmt::format("{}{}.", root, layer));
  return out;
}

}  // namespace

std::vector<Matrix> matrices_of(const Model& m) {
  std::vector<Matrix> out;
  const std::string_view roots = family_of(m).roots;
  int layer = 0;
  for (const LayerRun& run : m.runs) {
    for (const int end = layer + run.count; layer < end; ++layer) {
      LayerNames names(m, begins_of(roots, layer), false, out);
      names.add_mixer(m.attentions[static_cast<std::size_t>(run.attention)]);
      names.add_network(m.ffns[static_cast<std::size_t>(run.ffn)]);
    }
  }
  // DeepSeek to V3.2 and GLM number them after the layers, others below mtp.
  for (int i = 0; m.drafts && i < m.drafts->count; ++i) {
    std::vector<std::string> begins = begins_of(roots, layer + i);
    for (std::string& begin : begins_of(family_of(m).draft_roots, i)) begins.push_back(std::move(begin));
    LayerNames names(m, std::move(begins), true, out);
    names.add_mixer(m.drafts->attention);
    names.add_network(m.drafts->ffn);
  }
  std::vector<std::string> head{"lm_head", "language_model.lm_head", "model.lm_head"};
  if (m.architecture.empty() || m.architecture.starts_with("Deepseek")) head.emplace_back("head");
  out.push_back({MatrixPart::head, false, std::move(head)});
  return out;
}

namespace {

constexpr std::string_view kExpertNumber = "experts.";

constexpr std::array<std::string_view, 27> kWithoutType{
    "norm",    "bias",        "embed",     "rotary",     "vision",    "visual", "vit",
    "audio",   "image",       "projector", "mm_",        "router",    "conv1d", "scale",
    "eh_proj", "shared_head", "_gate",     "in_proj_a",  "in_proj_b", "A_log",  "dt_bias",
    "tower",   "multi_modal", "adapter",   "compressor", "indexer",   "gate."};

/// Pairs of characters that one of the words begins with, a bit each.
class Beginnings {
 public:
  constexpr Beginnings() {
    for (const std::string_view word : kWithoutType)
      bits_[at(word[0], word[1]) / 64] |= bit(word[0], word[1]);
  }
  constexpr bool has(char first, char second) const {
    return (bits_[at(first, second) / 64] & bit(first, second)) != 0;
  }

 private:
  static constexpr std::size_t at(char first, char second) {
    return static_cast<unsigned char>(first) * std::size_t{256} + static_cast<unsigned char>(second);
  }
  static constexpr std::uint64_t bit(char first, char second) {
    return std::uint64_t{1} << at(first, second) % 64;
  }
  std::array<std::uint64_t, 1024> bits_{};
};

}  // namespace

// One pass for all words: files list tens of thousands of names.
bool without_type(std::string_view pattern) {
  static constexpr Beginnings kBeginnings;
  if (pattern.ends_with("gate")) return true;
  for (std::size_t at = 1; at < pattern.size(); ++at) {
    if (!kBeginnings.has(pattern[at - 1], pattern[at])) continue;
    const std::string_view rest = pattern.substr(at - 1);
    if (std::any_of(kWithoutType.begin(), kWithoutType.end(),
                    [&](std::string_view word) { return rest.starts_with(word); }))
      return true;
  }
  return false;
}

bool has_expert(std::string_view name) { return name.find(kExpertNumber) != name.npos; }

std::string of_first_expert(std::string_view name) {
  std::string out;
  out.reserve(name.size());
  std::size_t from = 0;
  for (std::size_t at = name.find(kExpertNumber); at != name.npos; at = name.find(kExpertNumber, from)) {
    const std::size_t digits = at + kExpertNumber.size();
    std::size_t end = digits;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    out.append(name.substr(from, digits - from));
    if (end > digits) out += '0';
    from = end;
  }
  return std::move(out.append(name.substr(from)));
}

}  // namespace shardline::checkpoint
