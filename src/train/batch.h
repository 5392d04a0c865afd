// Where training's tokens come from.
#pragma once

#include <cstdint>
#include <span>

namespace qkv::train {

// `sequences` of `length` tokens each, and for each of them the token that follows it.
struct Batch {
  int64_t sequences = 0, length = 0;
  std::span<int32_t> inputs, targets;  // (sequences, length), row-major
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Fills the batch of number `index` (0, 1, ...). A function of the source's seed and of the index alone,
  // whatever was asked for before, so that a resumed run sees what an unbroken one would have seen.
  virtual void Fill(int64_t index, const Batch& batch) const = 0;
};

}  // namespace qkv::train
