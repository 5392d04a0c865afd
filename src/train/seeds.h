// Seeds of the dropouts of one pass, each a function of the run's seed, the batch's number and the place alone.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/dropout.h"
#include "runtime/random.h"

namespace qkv::train {

class PassSeeds {
 public:
  // batch: the number of the batch in the run. p: of all dropouts; 0 for none.
  PassSeeds(uint64_t run_seed, int64_t batch, float p) : run_seed_(run_seed), batch_(batch), p_(p) {}

  // place: 0 for the embeddings, then three for each block.
  uint64_t At(int64_t place) const {
    const auto batch = static_cast<uint64_t>(batch_);
    const PhiloxCounter words = Philox4x32(
        {static_cast<uint32_t>(place), static_cast<uint32_t>(batch), static_cast<uint32_t>(batch >> 32), 1},
        {static_cast<uint32_t>(run_seed_), static_cast<uint32_t>(run_seed_ >> 32)});
    return words[0] | uint64_t{words[1]} << 32;
  }
  std::optional<DropoutRows> Rows(int64_t place) const {
    if (p_ == 0) return std::nullopt;
    return DropoutRows{DropoutBits(At(place), p_), 1.0f / (1.0f - p_)};
  }
  float p() const { return p_; }

 private:
  uint64_t run_seed_;
  int64_t batch_;
  float p_;
};

}  // namespace qkv::train
