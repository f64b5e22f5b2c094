// Keys of a config.json that mean the same in every family: nothing, or what no family has.
#include <algorithm>
#include <array>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

// Keys that change neither a shape nor a count.
constexpr std::array kNeutral = {
    "_name_or_path",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "ep_size",
    "hidden_act",
    "hidden_dropout",
    "initializer_range",
    "layer_norm_epsilon",
    "norm_topk_prob",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "seq_aux",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
};

// What older versions of the Transformers library wrote into every file, whatever the model: of generation,
// of tasks and of outputs. add_cross_attention and is_decoder would change a model, and are refused where
// set.
constexpr std::array kBoilerplate = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
};

// Refused when set to anything but null and the nothing of its type, unless the family reads it.
constexpr std::array kRefused = {
    Refusal{"attention_chunk_size", Nothing::number, "this model_type has no chunked attention"},
    Refusal{"add_cross_attention", Nothing::flag, "cross attention is not modelled"},
    Refusal{"audio_config", Nothing::map, "only text models are modelled"},
    Refusal{"cross_attention_layers", Nothing::list, "cross attention is not modelled"},
    Refusal{"compress_ratios", Nothing::list, "this model_type has no compressed attention"},
    Refusal{"full_attention_interval", Nothing::number, "this model_type has no linear attention"},
    Refusal{"hybrid_override_pattern", Nothing::text,
            "this model_type has attention and a network in every layer"},
    Refusal{"index_topk", Nothing::number, "this model_type has no sparse attention"},
    Refusal{"is_encoder_decoder", Nothing::flag, "only decoders are modelled"},
    Refusal{"linear_attn_config", Nothing::map, "this model_type has no linear attention"},
    Refusal{"moe_latent_size", Nothing::number, "this model_type has no experts on latents"},
    Refusal{"num_kv_shared_layers", Nothing::number, "layers that share a KV cache are not modelled"},
    Refusal{"routed_expert_hidden_size", Nothing::number, "this model_type has no experts on latents"},
    Refusal{"sparse_attention_config", Nothing::map, "this model_type has no sparse attention"},
    Refusal{"text_config", Nothing::map,
            "only text models are modelled; give the inner configuration as a file of its own"},
    Refusal{"thinker_config", Nothing::map, "only text models are modelled"},
    Refusal{"vision_config", Nothing::map, "only text models are modelled"},
};

// Of a part of the model, of its checkpoint or of positions.
constexpr std::array<std::string_view, 7> kObjects = {
    "audio_config", "compression_config", "quantization_config", "rope_parameters",
    "rope_scaling", "text_config",        "vision_config",
};

// Keys of a wrapper that are of images and sound alone, or read elsewhere.
constexpr std::array kOfMedia = {
    "text_config",
    "vision_config",
    "audio_config",
    "model_type",
    "architectures",
    "quantization_config",
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "eoa_token_index",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "video_token_id",
    "audio_token_id",
    "boa_token_id",
    "eoa_token_id",
    "mm_tokens_per_image",
    "vision_soft_tokens_per_image",
    "ignore_index",
    "image_placeholder",
    "media_placeholder_token_id",
    "video_placeholder",
    "use_unified_vision_chunk",
    "vision_start_token_id",
    "vision_end_token_id",
    "language_model_only",
    "tie_word_embeddings",
};

template <class Keys>
bool within(const Keys& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

}  // namespace

bool neutral(std::string_view key) { return within(kNeutral, key) || within(kBoilerplate, key); }

bool of_media(std::string_view key) { return within(kOfMedia, key); }

std::span<const std::string_view> objects() { return kObjects; }

std::span<const Refusal> refusals() { return kRefused; }

}  // namespace shardline::hf
