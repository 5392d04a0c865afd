// What multi-head attention's forward and backward share: the sizes of a layer, checks, and heads inside rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layers/rows.h"
#include "qkv/layers.h"
#include "qkv/tensor.h"

namespace qkv::multi_head {

// The configuration with its defaults filled in.
struct Sizes {
  int64_t heads = 0, kv_heads = 0, d_k = 0, d_v = 0;

  int64_t q_width() const { return heads * d_k; }
  int64_t k_width() const { return kv_heads * d_k; }
  int64_t v_width() const { return kv_heads * d_v; }
  int64_t out_width() const { return heads * d_v; }
};

// All of them throw Error{kInvalidArgument} naming what is wrong.
[[noreturn]] void Refuse(std::string what, std::string where, std::string expected, std::string got);
Sizes CheckedSizes(const MultiHeadConfig& config);
void CheckParameters(const MultiHeadConfig& config, const Sizes& sizes, const MultiHeadParameterViews& parameters);
void CheckBatch(int64_t batch, int64_t length, const std::optional<int64_t>& context_length, const char* name);

// Heads inside rows of `row` elements, first at `data`, as the operator sees them: (B, H, T, D).
struct HeadGrid {
  int64_t batch, heads, length, width, row;

  Tensor In(Rows rows) const {
    return {rows.data, rows.dtype, Shape{batch, heads, length, width}, {length * row, width, row, 1}};
  }
  ConstTensor In(ConstRows rows) const {
    return {rows.data, rows.dtype, Shape{batch, heads, length, width}, {length * row, width, row, 1}};
  }
};

}  // namespace qkv::multi_head
