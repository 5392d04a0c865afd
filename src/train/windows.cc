#include "train/windows.h"

#include <algorithm>
#include <bit>
#include <string>

#include "qkv/error.h"
#include "runtime/random.h"

namespace qkv::train {
namespace {

constexpr int kRounds = 4;  // enough that no order of the windows is told from a random one

void CheckEnough(std::span<const int32_t> tokens, int64_t length) {
  if (static_cast<int64_t>(tokens.size()) > length) return;
  throw Error(ErrorCode::kInvalidArgument, "the text is shorter than the context", "text",
              "more than " + std::to_string(length) + " tokens", std::to_string(tokens.size()));
}

// One word of the stream that belongs to a seed and an epoch.
uint32_t Word(uint64_t seed, uint64_t epoch, uint32_t stream, uint64_t counter) {
  return Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                     static_cast<uint32_t>(epoch), stream},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0];
}

// Where number `index` of [0, count) stands in the epoch's order.
uint64_t Shuffled(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch) {
  const int half = (static_cast<int>(std::bit_width(count)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (Word(seed, epoch, 1 + round, right) & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

void CopyWindow(std::span<const int32_t> tokens, int64_t first, int64_t sequence, const Batch& batch) {
  const int32_t* from = tokens.data() + first;
  std::copy_n(from, batch.length, batch.inputs.data() + sequence * batch.length);
  std::copy_n(from + 1, batch.length, batch.targets.data() + sequence * batch.length);
}

}  // namespace

ShuffledWindows::ShuffledWindows(std::span<const int32_t> tokens, int64_t length, uint64_t seed)
    : tokens_(tokens), seed_(seed) {
  CheckEnough(tokens, length);
  const int64_t steps = static_cast<int64_t>(tokens.size()) - 1;  // every window needs one token after it
  windows_ = std::max<int64_t>(steps / length - 1, 1);
  offsets_ = steps - windows_ * length + 1;
}

void ShuffledWindows::Fill(int64_t index, const Batch& batch) const {
  for (int64_t s = 0; s < batch.sequences; ++s) {
    const int64_t number = index * batch.sequences + s;
    const uint64_t epoch = static_cast<uint64_t>(number / windows_);
    const int64_t window = static_cast<int64_t>(
        Shuffled(static_cast<uint64_t>(number % windows_), static_cast<uint64_t>(windows_), seed_, epoch));
    const int64_t offset = Word(seed_, epoch, 0, 0) % offsets_;
    CopyWindow(tokens_, offset + window * batch.length, s, batch);
  }
}

SequentialWindows::SequentialWindows(std::span<const int32_t> tokens, int64_t length) : tokens_(tokens) {
  CheckEnough(tokens, length);
  windows_ = (static_cast<int64_t>(tokens.size()) - 1) / length;
}

void SequentialWindows::Fill(int64_t index, const Batch& batch) const {
  for (int64_t s = 0; s < batch.sequences; ++s) {
    CopyWindow(tokens_, (index * batch.sequences + s) % windows_ * batch.length, s, batch);
  }
}

}  // namespace qkv::train
