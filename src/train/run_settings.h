// What a run does beside learning: none of it changes the bits that it learns, but for the part held out.
#pragma once

#include <cstdint>

#include "train/options.h"

namespace qkv::train {

struct RunSettings {
  double validation_share = 0.05;  // of every text, at its end, held out; in [0, 1)
  int64_t validate_every = 100;    // steps between validations
  int64_t sample_every = 200;      // steps between texts that the model writes; 0: none
  int64_t checkpoint_every = 100;  // steps between checkpoints
  int64_t keep = 3;                // checkpoints that stay
  Precision exported = Precision::kFloat32;  // what model.safetensors holds

  bool operator==(const RunSettings&) const = default;
};

}  // namespace qkv::train
