// A decoder's parameters: one flat array of float32 for all of them, and a table that says what lies where.
// Optimizer moments and gradients are arrays of the same layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkv/tensor.h"
#include "runtime/aligned.h"
#include "train/decoder_config.h"

namespace qkv::train {

enum class Decay { kNone, kWeight };  // decay shrinks matrices; biases and gains are left alone

struct ParameterEntry {
  std::string
      name;     // as Hugging Face's GPT-2 names it: "wte.weight", "h.0.attn.c_attn.weight", "lm_head.weight"
  Shape shape;  // matrices of blocks are (in, out), as its Conv1D holds them; embeddings (rows, C)
  int64_t offset = 0;  // of the first element; a multiple of 16, so that every parameter begins a cache line
  Decay decay = Decay::kNone;

  int64_t size() const { return shape.elements(); }
};

class ParameterTable {
 public:
  explicit ParameterTable(const DecoderConfig& config);  // Error{kInvalidArgument}, as CheckConfig

  std::span<const ParameterEntry> entries() const { return entries_; }
  const ParameterEntry& Find(const std::string& name) const;  // Error{kInvalidArgument} where there is none
  int64_t total() const { return total_; }                    // floats of the flat array, padding included
  int64_t count() const { return count_; }                    // parameters, without the padding

 private:
  std::vector<ParameterEntry> entries_;
  int64_t total_ = 0, count_ = 0;
};

// Zeros where nothing is said; the padding between parameters stays zero.
AlignedBuffer<float> ZeroParameters(const ParameterTable& table);

// GPT-2's: normal with deviation 0.02, projections back into the residual stream 0.02 / sqrt(2 layers), biases
// 0, gains 1. A function of the seed alone.
AlignedBuffer<float> InitialParameters(const DecoderConfig& config, uint64_t seed);

}  // namespace qkv::train
