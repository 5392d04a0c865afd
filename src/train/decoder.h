// A GPT-2 decoder in training: its forward, its loss and all gradients. Everything that a pass needs is
// allocated once.
#pragma once

#include <cstdint>
#include <memory>

#include "train/batch.h"
#include "train/decoder_block.h"
#include "train/options.h"
#include "train/parameters.h"

namespace qkv::train {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Parameters changed: `parameters`, a flat array that stays where it is, is used from now on.
  virtual void Use(const float* parameters) = 0;
  // The sum over the batch's tokens of the cross-entropy in nats, without dropout.
  // Error{kInvalidArgument} for an id outside the vocabulary.
  virtual double Loss(const Batch& batch) = 0;
  // The same with dropout, and `gradients` (flat) += those of `scale` times the sum.
  virtual double Learn(const Batch& batch, const PassSeeds& seeds, float scale, float* gradients) = 0;
};

// For batches of this shape. Error{kOutOfMemory}; kInvalidArgument where length is above the config's context.
std::unique_ptr<Decoder> MakeDecoder(const DecoderConfig& config, PassShape shape, Precision precision);

}  // namespace qkv::train
