// Parameters of the vision towers beside language models, and of what joins them. Their matrices follow from
// a vision_config as the models' code makes them: transformers models/{siglip,gemma3,gemma4,llama4,qwen3_vl}
// /modeling_*.py, and Kimi's modeling_kimi_k25.py (MoonViT). models/README.md, [M3].
#include <fmt/format.h>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

/// A tower of blocks: attention through `heads_width` channels, and a network through `inner`.
struct Tower {
  double depth = 0, width = 0, inner = 0, heads_width = 0;
  bool gated = false;  // three matrices in a network, not two
  bool biases = true;  // of every matrix
  double norms = 4;    // parameters of the norms of a block, in widths: two LayerNorms
};

double parameters(const Tower& t) {
  double block = 4 * t.width * t.heads_width + (t.gated ? 3 : 2) * t.width * t.inner + t.norms * t.width;
  if (t.biases) block += 3 * t.heads_width + t.width + (t.gated ? 2 : 1) * t.inner + t.width;
  return t.depth * block;
}

class Keys {
 public:
  explicit Keys(const Reader& at) : at_(at) { at.allow_other_keys(); }
  double operator()(const char* key, double when_missing) const {
    const auto found = at_.find(key);
    return found && !found->is_null() ? static_cast<double>(found->integer(1, limits::kWidth)) : when_missing;
  }
  /// How many of so many layers a list names.
  std::size_t layers(const char* key, double of) const {
    const auto found = at_.find(key);
    if (!found || found->is_null()) return 0;
    const std::vector<Reader> items = found->items();
    for (const Reader& item : items) item.integer(0, static_cast<std::int64_t>(of) - 1);
    return items.size();
  }
  bool flag(const char* key, bool when_missing) const {
    const auto found = at_.find(key);
    return found && !found->is_null() ? found->boolean() : when_missing;
  }

 private:
  Reader at_;
};

double linear(double from, double to, bool bias = true) { return from * to + (bias ? to : 0); }

void count(Import& in, double parameters) {
  in.m.vision_parameters = static_cast<std::int64_t>(parameters);
  in.note(fmt::format("counted, not timed: the vision tower and its projector, {:.2f} B parameters",
                      parameters / 1e9));
}

}  // namespace

void count_siglip(Import& in, const Reader& vision) {
  const Keys v(vision);
  const double width = v("hidden_size", 1152), patch = v("patch_size", 14), side = v("image_size", 896);
  const double patches = (side / patch) * (side / patch);
  count(in, parameters({.depth = v("num_hidden_layers", 27),
                        .width = width,
                        .inner = v("intermediate_size", 4304),
                        .heads_width = width}) +
                linear(3 * patch * patch, width) + patches * width + 2 * width + width * in.m.hidden + width);
}

void count_gemma4_vision(Import& in, const Reader& vision) {
  const Keys v(vision);
  const double width = v("hidden_size", 1152), patch = v("patch_size", 16);
  const double heads = v("num_attention_heads", 16) * v("head_dim", 72);
  count(in, parameters({.depth = v("num_hidden_layers", 27),
                        .width = width,
                        .inner = v("intermediate_size", 4304),
                        .heads_width = heads,
                        .gated = true,
                        .biases = false}) +
                3 * patch * patch * width + 2 * v("position_embedding_size", 10240) * width +
                width * in.m.hidden);
}

void count_llama4_vision(Import& in, const Reader& vision) {
  const Keys v(vision);
  const double width = v("hidden_size", 1408), patch = v("patch_size", 14), side = v("image_size", 336);
  const double patches = (side / patch) * (side / patch) + 1, out = v("vision_output_dim", 4096);
  const double shuffled = v("projector_input_dim", 4096), inner = v("intermediate_size", 5632);
  count(in, parameters(
                {.depth = v("num_hidden_layers", 34), .width = width, .inner = inner, .heads_width = width}) +
                3 * patch * patch * width + (patches + 1) * width + 4 * width + inner * shuffled +
                shuffled * out + out * in.m.hidden);
}

void count_qwen_vision(Import& in, const Reader& vision) {
  const Keys v(vision);
  const double width = v("hidden_size", 1152), patch = v("patch_size", 16),
               out = v("out_hidden_size", in.m.hidden);
  const double merged = width * v("spatial_merge_size", 2) * v("spatial_merge_size", 2);
  const double merger = linear(merged, merged) + linear(merged, out);
  const auto deep = static_cast<double>(v.layers("deepstack_visual_indexes", v("depth", 27)));
  count(in, parameters({.depth = v("depth", 27),
                        .width = width,
                        .inner = v("intermediate_size", 4304),
                        .heads_width = width}) +
                linear(v("in_channels", 3) * v("temporal_patch_size", 2) * patch * patch, width) +
                v("num_position_embeddings", 2304) * width + merger + 2 * width +
                deep * (merger + 2 * merged));
}

void count_moonvit(Import& in, const Reader& vision) {
  const Keys v(vision);
  const double width = v("vt_hidden_size", 1152), patch = v("patch_size", 14),
               heads = v("qkv_hidden_size", width);
  const double positions = v("init_pos_emb_height", 64) * v("init_pos_emb_width", 64), merged = 4 * width;
  const bool biases = v.flag("linear_bias", true);
  count(in, parameters({.depth = v("vt_num_hidden_layers", 27),
                        .width = width,
                        .inner = v("vt_intermediate_size", 4304),
                        .heads_width = heads,
                        .biases = biases,
                        .norms = biases ? 4.0 : 2.0}) +
                linear(3 * patch * patch, width, biases) + positions * width + 4 * width +
                linear(merged, merged, biases) + linear(merged, in.m.hidden, biases));
}

}  // namespace shardline::hf
