// The textbook's layers: from parameter-free attention to multi-head attention, and embeddings.
// Inputs and outputs are contiguous float32, (B, T, C). Parameters are packed for the multiply at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "qkv/attention.h"
#include "qkv/export.h"

namespace qkv {

// Simplified attention, no parameters: alpha_ij = softmax over j of x_i . x_j, a_i = sum_j alpha_ij x_j,
// unscaled; causal: over j <= i. x, out: (B, T, C); weights, where given: (B, T, T).
QKV_API void SimplifiedAttention(const float* x, int64_t batch, int64_t length, int64_t width, bool causal, float* out,
                         float* weights = nullptr);

// One multi-head attention layer (Vaswani et al. 2017, section 3.2.2). Special cases are named below.
struct MultiHeadConfig {
  int64_t d_in = 0;                         // width of the input
  int64_t d_out = 0;                        // width of the output
  int64_t num_heads = 1;                    // query heads
  std::optional<int64_t> kv_heads;          // default num_heads
  std::optional<int64_t> d_k, d_v;          // per head; default d_out / num_heads, an error where not whole
  std::optional<int64_t> context_length;    // a longer sequence is an error; empty: any length
  std::optional<int64_t> d_context;         // makes it a cross-attention layer: width of the second sequence
  Causal causal = Causal::kNone;
  float dropout = 0;                        // on the weights, in training mode only
  bool qkv_bias = false;
  bool output_projection = true;            // W_O; without it num_heads * d_v must equal d_out
  bool output_bias = true;                  // of W_O
  // What parameters are kept and multiplied in, kF32 or kBF16; inputs, outputs and biases are float32 in both.
  DType dtype = DType::kF32;
};

// Row-major (out, in), as PyTorch's nn.Linear holds them: y = x W^T + b. Rows of head h are
// [h * d_k, (h + 1) * d_k). Empty biases mean zero.
struct MultiHeadParameters {
  std::vector<float> w_q, w_k, w_v, w_o;
  std::vector<float> b_q, b_k, b_v, b_o;
};

// The same, in memory of the caller's, such as a mapped file: read by the constructor, and not needed afterwards.
struct MultiHeadParameterViews {
  std::span<const float> w_q, w_k, w_v, w_o;
  std::span<const float> b_q, b_k, b_v, b_o;

  MultiHeadParameterViews() = default;
  MultiHeadParameterViews(const MultiHeadParameters& p)
      : w_q(p.w_q), w_k(p.w_k), w_v(p.w_v), w_o(p.w_o), b_q(p.b_q), b_k(p.b_k), b_v(p.b_v), b_o(p.b_o) {}
};

struct Dropout {
  uint64_t seed = 0;  // training mode: the same seed gives the same mask
};

class QKV_API MultiHeadAttention {
 public:
  // Packs the parameters: besides them it takes the memory of one copy, or of half a one in bfloat16.
  // Error{kInvalidArgument}: sizes that contradict, parameters of another size, dropout outside [0, 1), another dtype.
  MultiHeadAttention(const MultiHeadConfig& config, const MultiHeadParameterViews& parameters);
  ~MultiHeadAttention();
  MultiHeadAttention(MultiHeadAttention&&) noexcept;
  MultiHeadAttention& operator=(MultiHeadAttention&&) noexcept;

  // One head: W_Q, W_K (d_k x d_in), W_V (d_v x d_in), W_O (d_out x d_v), scaled by sqrt(d_k).
  static MultiHeadConfig OneHead(int64_t d_in, int64_t d_k, int64_t d_v, int64_t d_out);
  // Causal attention, one head of width d_out, no W_O.
  static MultiHeadConfig CausalHead(int64_t d_in, int64_t d_out, int64_t context_length, float dropout,
                                    bool qkv_bias);
  // Fused causal multi-head attention, heads of width d_out / num_heads.
  static MultiHeadConfig CausalMultiHead(int64_t d_in, int64_t d_out, int64_t context_length, int64_t num_heads,
                                         float dropout, bool qkv_bias, bool output_projection = true);

  const MultiHeadConfig& config() const;

  // Self-attention: x (B, T, d_in) -> out (B, T, d_out). training: dropout with this seed; without it none
  // (evaluation). weights, where given: (B, num_heads, T, T), before dropout.
  // Error{kInvalidArgument}: T above context_length; a cross-attention layer whose d_context is not d_in.
  void Forward(const float* x, int64_t batch, int64_t length, float* out,
               std::optional<Dropout> training = {}, float* weights = nullptr) const;

  // Cross-attention, as between a decoder and its encoder: queries from x (B, Tq, d_in), keys and values from
  // context (B, Tk, d_context); out (B, Tq, d_out), weights (B, num_heads, Tq, Tk).
  // Error{kInvalidArgument}: Tq or Tk above context_length; a layer without d_context.
  void Cross(const float* x, const float* context, int64_t batch, int64_t q_length, int64_t kv_length, float* out,
             std::optional<Dropout> training = {}, float* weights = nullptr) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// n single heads side by side, their outputs concatenated: (B, T, d_in) -> (B, T, n * d_out).
class QKV_API MultiHeadStack {
 public:
  MultiHeadStack(const MultiHeadConfig& head, const std::vector<MultiHeadParameters>& heads);
  void Forward(const float* x, int64_t batch, int64_t length, float* out,
               std::optional<Dropout> training = {}) const;
  int64_t width() const;  // n * d_out

 private:
  std::vector<MultiHeadAttention> heads_;
};

// ---- Gradients: of a loss, by everything that a layer's output depends on ----

// dx (B, T, C): the gradient by x, where dout (B, T, C) is that by SimplifiedAttention's out.
QKV_API void SimplifiedAttentionBackward(const float* x, const float* dout, int64_t batch, int64_t length,
                                         int64_t width, bool causal, float* dx);

// What a multi-head layer was run on.
struct MultiHeadInput {
  const float* x = nullptr;        // (B, Tq, d_in)
  const float* context = nullptr;  // (B, Tk, d_context); null: self-attention, and Tk = Tq
  int64_t batch = 0, q_length = 0, kv_length = 0;
  std::optional<Dropout> training;
};

struct MultiHeadGradients {
  MultiHeadParameters parameters;  // of the parameters' own sizes; of biases as the configuration has them
  std::vector<float> x;            // (B, Tq, d_in)
  std::vector<float> context;      // (B, Tk, d_context); empty for self-attention
};

// dout (B, Tq, d_out): the gradient by the layer's output. The forward is computed again, so nothing of it need
// be kept. Errors as the layer's own.
QKV_API MultiHeadGradients MultiHeadBackward(const MultiHeadConfig& config,
                                             const MultiHeadParameters& parameters, const MultiHeadInput& input,
                                             const float* dout);

// Of a MultiHeadStack: dout (B, T, n * d_out). Result h has head h's parameters; the first one's x is the whole
// stack's.
QKV_API std::vector<MultiHeadGradients> MultiHeadStackBackward(const MultiHeadConfig& head,
                                                               const std::vector<MultiHeadParameters>& heads,
                                                               const MultiHeadInput& input, const float* dout);

// Fixed sinusoidal positions (T, C), C even: sin and cos of pos / 10000^(2i / C) (Vaswani et al. 2017, 3.5).
QKV_API std::vector<float> SinusoidalPositions(int64_t length, int64_t width);

// out (B, T, C) = table[ids] + positions[0 ... T); table (V, C), positions (at least T, C) or null.
// Error{kInvalidArgument}: an id outside [0, V).
QKV_API void Embed(std::span<const int64_t> ids, int64_t batch, int64_t length, const float* table, int64_t vocab,
           int64_t width, const float* positions, float* out);

}  // namespace qkv
