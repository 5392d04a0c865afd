#include "layers/embedding.h"

#include <algorithm>
#include <functional>
#include <string>

#include "layers/row_tasks.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// Channels of one task of the backward: four cache lines, so that the tasks' writes stay apart.
constexpr int64_t kChannels = 64;

}  // namespace

void EmbedForward(const Embedding& shape, std::span<const int32_t> ids, const float* tokens,
                  const float* positions, float* out) {
  const auto outside =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= shape.vocab; });
  if (outside != ids.end()) {
    throw Error(ErrorCode::kInvalidArgument, "token id outside the vocabulary", "ids",
                "0 to " + std::to_string(shape.vocab - 1), std::to_string(*outside));
  }
  const int64_t width = shape.width;
  ForRows(static_cast<int64_t>(ids.size()), width, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const float* token = tokens + ids[static_cast<size_t>(i)] * width;
      std::transform(token, token + width, positions + i % shape.length * width, out + i * width,
                     std::plus<>());
    }
  });
}

void EmbedBackward(const Embedding& shape, std::span<const int32_t> ids, const float* dout, float* dtokens,
                   float* dpositions) {
  const int64_t width = shape.width, count = static_cast<int64_t>(ids.size());
  ParallelFor((width + kChannels - 1) / kChannels, [&](int64_t task, int) {
    const int64_t first = task * kChannels, last = std::min(width, first + kChannels);
    for (int64_t i = 0; i < count; ++i) {
      const float* from = dout + i * width;
      float* token = dtokens + ids[static_cast<size_t>(i)] * width;
      float* position = dpositions + i % shape.length * width;
      for (int64_t c = first; c < last; ++c) token[c] += from[c];
      for (int64_t c = first; c < last; ++c) position[c] += from[c];
    }
  });
}

}  // namespace qkv
