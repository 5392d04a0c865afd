// A decoder's parameters as its layers use them: pointers into the flat arrays.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/tensor.h"
#include "train/parameters.h"

namespace qkv::train {

// Matrix is what multiplies read: float or BFloat16. Vector is float: norms and biases. Both const, or
// gradients.
template <class Matrix, class Vector>
struct BlockWeights {
  Vector *norm1_gain, *norm1_shift;
  Matrix* qkv;
  Vector* qkv_bias;
  Matrix* heads_out;
  Vector* heads_out_bias;
  Vector *norm2_gain, *norm2_shift;
  Matrix* inner;
  Vector* inner_bias;
  Matrix* inner_out;
  Vector* inner_out_bias;
};

// `matrices` and `vectors`: flat arrays of the table's layout, which may be the same one.
template <class Matrix, class Vector>
BlockWeights<Matrix, Vector> BlockAt(const ParameterTable& table, int64_t layer, Matrix* matrices,
                                     Vector* vectors) {
  const std::string block = "h." + std::to_string(layer) + ".";
  const auto matrix = [&](const char* name) { return matrices + table.Find(block + name).offset; };
  const auto vector = [&](const char* name) { return vectors + table.Find(block + name).offset; };
  return {vector("ln_1.weight"),      vector("ln_1.bias"),          matrix("attn.c_attn.weight"),
          vector("attn.c_attn.bias"), matrix("attn.c_proj.weight"), vector("attn.c_proj.bias"),
          vector("ln_2.weight"),      vector("ln_2.bias"),          matrix("mlp.c_fc.weight"),
          vector("mlp.c_fc.bias"),    matrix("mlp.c_proj.weight"),  vector("mlp.c_proj.bias")};
}

}  // namespace qkv::train
