// Explaining attention: every number of softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, equation 1) on a
// text, step by step, from the attention operator and the layers themselves.
#pragma once

#include <cstdint>
#include <string_view>

#include "qkv/explanation.h"
#include "qkv/export.h"
#include "qkv/model.h"

namespace qkv {

struct ExplainRequest {
  ExplainLevel level = ExplainLevel::kHead;
  int64_t head = 0;     // of ExplainLevel::kHead
  int64_t token = 0;    // whose row is marked
  float dropout_p = 0;  // above 0: training beside evaluation, at the levels with parameters
  uint64_t seed = 0;    // of dropout
};

// All steps of a layer for its input. Masks as layer.config.causal says.
// Error{kInvalidArgument}: a head or token that is not there, dropout outside [0, 1), sizes that contradict;
// kOutOfMemory, before any of it is taken, where the steps do not fit; kFile: numbers that are not finite, since the
// model is damaged.
QKV_API Explanation Explain(const OpenLayer& layer, const ExplainRequest& request);

// The words of a text, small letters, without a model: cut at spaces and signs; ids count distinct words. Spans
// are bytes of the text. Error{kFile} for invalid UTF-8.
QKV_API Encoding EncodeWords(std::string_view text);

struct RandomLayerSizes {
  int64_t d_in = 8, d_out = 8, heads = 2;
};

// A causal layer of random parameters, uniform with the variance 1 / d_in (of W_O: 1 / d_out), and for each
// distinct word a vector of random numbers of variance 1; the same for the same seed on any machine.
// Error{kInvalidArgument}: d_out not divisible by heads, sizes below 1; kOutOfMemory, before any of it is
// taken.
QKV_API OpenLayer RandomLayer(const Encoding& words, const RandomLayerSizes& sizes, uint64_t seed);

}  // namespace qkv
