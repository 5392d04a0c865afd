// Batches cut out of one long sequence of tokens.
#pragma once

#include <cstdint>
#include <span>

#include "train/batch.h"

namespace qkv::train {

// Every epoch cuts the tokens into windows of the batch's length, from an offset of its own, and shuffles them. Offset
// and order are functions of the seed and of the epoch's number alone, in no memory: the order is a Feistel network on
// the windows' numbers (Luby & Rackoff 1988), walked until it lands on one that exists.
class ShuffledWindows : public BatchSource {
 public:
  // The tokens stay the caller's. Error{kInvalidArgument} for fewer than length + 1 of them.
  ShuffledWindows(std::span<const int32_t> tokens, int64_t length, uint64_t seed);
  void Fill(int64_t index, const Batch& batch) const override;

 private:
  std::span<const int32_t> tokens_;
  uint64_t seed_;
  int64_t windows_, offsets_;
};

// The windows one after the other, from the first token on; past the last one it begins again.
class SequentialWindows : public BatchSource {
 public:
  SequentialWindows(std::span<const int32_t> tokens, int64_t length);  // Error as above
  void Fill(int64_t index, const Batch& batch) const override;
  int64_t windows() const { return windows_; }

 private:
  std::span<const int32_t> tokens_;
  int64_t windows_;
};

}  // namespace qkv::train
