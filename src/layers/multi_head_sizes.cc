#include "layers/multi_head_sizes.h"

#include <span>
#include <utility>

#include "qkv/error.h"

namespace qkv::multi_head {
namespace {

int64_t HeadWidth(const MultiHeadConfig& config) {
  if (config.d_out % config.num_heads != 0) {
    Refuse("the output width cannot be divided among the heads", "d_out",
           "a multiple of num_heads = " + std::to_string(config.num_heads), std::to_string(config.d_out));
  }
  return config.d_out / config.num_heads;
}

void RequirePositive(int64_t value, const char* name) {
  if (value < 1) Refuse("bad size", name, "at least 1", std::to_string(value));
}

void CheckWeight(std::span<const float> weight, int64_t rows, int64_t columns, const char* name) {
  if (static_cast<int64_t>(weight.size()) == rows * columns) return;
  Refuse("wrong number of parameters", name,
         std::to_string(rows * columns) + " for the shape " + ToString(Shape{rows, columns}),
         std::to_string(weight.size()));
}

void CheckBias(std::span<const float> bias, int64_t size, bool wanted, const char* name) {
  if (bias.empty() || (wanted && static_cast<int64_t>(bias.size()) == size)) return;
  Refuse("wrong number of parameters", name,
         wanted ? std::to_string(size) + " or none" : "none, since the configuration has no such bias",
         std::to_string(bias.size()));
}

}  // namespace

void Refuse(std::string what, std::string where, std::string expected, std::string got) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(where), std::move(expected),
              std::move(got));
}

Sizes CheckedSizes(const MultiHeadConfig& config) {
  RequirePositive(config.d_in, "d_in");
  RequirePositive(config.d_out, "d_out");
  RequirePositive(config.num_heads, "num_heads");
  Sizes sizes{config.num_heads, config.kv_heads.value_or(config.num_heads), 0, 0};
  sizes.d_k = config.d_k ? *config.d_k : HeadWidth(config);
  sizes.d_v = config.d_v ? *config.d_v : HeadWidth(config);
  RequirePositive(sizes.kv_heads, "kv_heads");
  RequirePositive(sizes.d_k, "d_k");
  RequirePositive(sizes.d_v, "d_v");
  if (config.context_length) RequirePositive(*config.context_length, "context_length");
  if (config.d_context) RequirePositive(*config.d_context, "d_context");
  if (sizes.heads % sizes.kv_heads != 0) {
    Refuse("query heads cannot be shared out among the key/value heads", "num_heads",
           "a multiple of kv_heads = " + std::to_string(sizes.kv_heads), std::to_string(sizes.heads));
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    Refuse("bad dropout", "dropout", "0 or more and below 1", std::to_string(config.dropout));
  }
  if (config.dtype != DType::kF32 && config.dtype != DType::kBF16) {
    Refuse("layers do not run in this type", "dtype", "float32 or bfloat16", NameOf(config.dtype));
  }
  if (!config.output_projection && sizes.out_width() != config.d_out) {
    Refuse("without an output projection the heads' outputs are the output", "d_out",
           "num_heads * d_v = " + std::to_string(sizes.out_width()), std::to_string(config.d_out));
  }
  return sizes;
}

void CheckParameters(const MultiHeadConfig& config, const Sizes& sizes, const MultiHeadParameterViews& p) {
  const int64_t d_context = config.d_context.value_or(config.d_in);
  CheckWeight(p.w_q, sizes.q_width(), config.d_in, "w_q");
  CheckWeight(p.w_k, sizes.k_width(), d_context, "w_k");
  CheckWeight(p.w_v, sizes.v_width(), d_context, "w_v");
  CheckBias(p.b_q, sizes.q_width(), config.qkv_bias, "b_q");
  CheckBias(p.b_k, sizes.k_width(), config.qkv_bias, "b_k");
  CheckBias(p.b_v, sizes.v_width(), config.qkv_bias, "b_v");
  const bool projected = config.output_projection;
  CheckWeight(p.w_o, projected ? config.d_out : 0, projected ? sizes.out_width() : 0, "w_o");
  CheckBias(p.b_o, config.d_out, projected && config.output_bias, "b_o");
}

void CheckBatch(int64_t batch, int64_t length, const std::optional<int64_t>& context_length, const char* name) {
  if (batch < 0 || length < 0) {
    Refuse("bad size", std::string("(batch, ") + name + ")", "at least 0", ToString(Shape{batch, length}));
  }
  if (context_length && length > *context_length) {
    Refuse("the sequence is longer than the layer's context_length", name,
           "at most " + std::to_string(*context_length) + " tokens", std::to_string(length));
  }
}

}  // namespace qkv::multi_head
