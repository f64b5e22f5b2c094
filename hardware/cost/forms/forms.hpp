// One form per file; the table of all is in forms.cpp.
#pragma once

#include "hardware/cost/forms/form.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

extern const Form kGemmForm;
extern const Form kAttentionDecodeForm;
extern const Form kMlaDecodeForm;
extern const Form kMlaBmmForm;
extern const Form kAttentionPrefillForm;
extern const Form kMlaPrefillForm;
extern const Form kNcclForm;
extern const Form kAllreduceForm;
extern const Form kAlltoallForm;
extern const Form kMoeForm;
extern const Form kQuantizeForm;
extern const Form kSparseKernelForm;
extern const Form kLinearAttentionForm;
extern const Form kMambaForm;
extern const Form kHyperConnectionForm;
extern const Form kSparseDecodeForm;
extern const Form kSparsePrefillForm;

/// [H43] Makes a context of kAlltoallForm, which is that of its tables, one of tokens whose experts are any.
void deal_at_random(FormContext& context);

/// Bytes of an element of a data type as measurements name it ("bf16", "fp8", "fp8_static", "fp8_block",
/// "nvfp4"), as fits count it: as it is stored, but for the scales of fp8_block, which a fitted share of the
/// HBM peak holds (0.02 %).
double fit_bytes(std::string_view type);

/// Of the HBM data sheet's rate, the most that a decode kernel reads: no row beyond 2 GB of A100, H100, H200
/// and GB200, of any engine, is above .954 (.85, .946, .952 and .954).
inline constexpr double kDecodeMemoryShare = 0.955;

/// Of kAttentionDecodeForm's parameters: t0_mha, the launch where each query head has a key/value head of its
/// own.
inline constexpr std::size_t kDecodeOfOneHead = 7;

/// Rates of a system for arithmetic in `math`; elements of two bytes.
FormContext form_context(const System& system, Dtype math);

}  // namespace shardline
