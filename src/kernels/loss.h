// The loss of language models.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Cross-entropy of one row of logits with the right answer `target`: -log softmax(logits)[target], in nats.
// logits: `count` floats, overwritten. dlogits = scale (softmax(logits) - onehot(target)); T is float or
// BFloat16, and dlogits may be logits. NaN where a logit is NaN or +inf.
template <class T>
double CrossEntropyRow(float* logits, int64_t count, int64_t target, float scale, T* dlogits) noexcept;

// The loss alone.
double CrossEntropyOf(const float* logits, int64_t count, int64_t target) noexcept;

}  // namespace qkv
