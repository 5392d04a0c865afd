// The attention operator: softmax(scale * Q K^T + bias, masked) V, exact, in O(T) memory.
// Vaswani et al. 2017, equation 1; computed tile by tile with an online softmax (Milakov & Gimelshein 2018,
// Dao et al. 2022). The meaning of every option is in docs/semantics.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "qkv/capture.h"
#include "qkv/export.h"
#include "qkv/progress.h"
#include "qkv/tensor.h"

namespace qkv {

// Which keys a query sees, by position. Query i of a sequence stands at p = i + offset and sees keys j <= p:
//
//   q_len = 2, kv_len = 5     kTopLeft      kBottomRight
//                             1 0 0 0 0     1 1 1 1 0
//                             1 1 0 0 0     1 1 1 1 1
enum class Causal { kNone, kTopLeft, kBottomRight };

// Keys p - left ... p + right are visible; an empty side is open. W keys with the query's own: left = W - 1.
struct Window {
  std::optional<int64_t> left, right;
};

struct AttentionOptions {
  Causal causal = Causal::kNone;
  Window window;
  std::optional<float> scale;                  // default 1 / sqrt(D)
  std::optional<float> softcap;                // s = cap * tanh(s / cap), before bias and masks
  std::optional<ConstTensor> mask;             // bool, true = may attend; broadcasts to (B, Hq, Tq, Tk)
  std::optional<ConstTensor> bias;             // float32 or q's type, added; broadcasts to (B, Hq, Tq, Tk)
  std::optional<ConstTensor> alibi_slopes;     // float32 (Hq) or (B, Hq): adds -slope * |p - j|
  std::optional<ConstTensor> sink;             // float32 (Hq): a logit that joins the denominator only
  std::optional<std::vector<int64_t>> q_lengths, kv_lengths;  // B each: rows and keys past them do not exist
  std::optional<std::vector<int64_t>> cu_q, cu_kv;            // packed batches: B + 1 offsets each
  std::optional<std::vector<int64_t>> offset;                 // one, or one per sequence
  float dropout_p = 0;                         // on the weights, for training; needs a seed when > 0
  std::optional<uint64_t> seed;
  // The rows are some of a longer call's, or follow those of a cache: their bits are what one call over all would give,
  // with lse and capture or without. Otherwise the fastest way for just these rows may differ from that in the last
  // bits (docs/semantics.md).
  bool chunked = false;
  Progress progress;
};

// out (B, Hq, Tq, Dv) = attention of q (B, Hq, Tq, D), k (B, Hkv, Tk, D), v (B, Hkv, Tk, Dv).
// With cu_q and cu_kv: q (total_q, Hq, D), k (total_k, Hkv, D), v (total_k, Hkv, Dv), out (total_q, Hq, Dv).
// Types: q, k, v, out all float32, bfloat16, float16 or float64 (float64 runs on the reference, slowly);
// or q and out float32 with k and v both bfloat16 or both float16.
// Any strides, aligned elements; a contiguous last axis is the fast path. out may not overlap an input.
// lse, where given: float32 (B, Hq, Tq), or (Hq, total_q) when packed: the natural log-sum-exp of each row's
// scores, sink included, before dropout; -inf for a row that sees nothing.
// Errors: kInvalidArgument or kWrongType naming the argument, before anything is written; kOutOfMemory;
// kCancelled.
QKV_API void Attention(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
               const AttentionOptions& options, const Tensor& out, const Tensor* lse = nullptr);

// The same, and what the capture asks for (its sizes and order: qkv/capture.h).
QKV_API Capture AttentionWithCapture(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                             const AttentionOptions& options, const CaptureRequest& request,
                             const Tensor& out, const Tensor* lse = nullptr);

// ALiBi's slopes for n heads, interleaved from the next power of two as the paper's code does
// (Press et al. 2022, https://arxiv.org/abs/2108.12409). Error{kInvalidArgument} when n < 0.
QKV_API std::vector<float> AlibiSlopes(int64_t n);

}  // namespace qkv
