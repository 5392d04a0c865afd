#include <algorithm>
#include <cmath>
#include <string>

#include "qkv/error.h"
#include "qkv/layers.h"

namespace qkv {

std::vector<float> SinusoidalPositions(int64_t length, int64_t width) {
  if (length < 0 || width < 2 || width % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, "bad size of sinusoidal positions", "(length, width)",
                "length at least 0, width even and at least 2", ToString(Shape{length, width}));
  }
  std::vector<float> positions(static_cast<size_t>(length * width));
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t c = 0; c < width; c += 2) {
      const double angle =
          static_cast<double>(t) / std::pow(10000.0, static_cast<double>(c) / static_cast<double>(width));
      float* pair = positions.data() + t * width + c;
      pair[0] = static_cast<float>(std::sin(angle));
      pair[1] = static_cast<float>(std::cos(angle));
    }
  }
  return positions;
}

void Embed(std::span<const int64_t> ids, int64_t batch, int64_t length, const float* table, int64_t vocab,
           int64_t width, const float* positions, float* out) {
  if (batch < 0 || length < 0 || static_cast<int64_t>(ids.size()) != batch * length) {
    throw Error(ErrorCode::kInvalidArgument, "wrong number of ids", "ids",
                "batch * length of " + ToString(Shape{batch, length}), std::to_string(ids.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab) continue;
    throw Error(ErrorCode::kInvalidArgument, "token id outside the vocabulary",
                "ids[" + std::to_string(i) + "]", "0 to " + std::to_string(vocab - 1), std::to_string(ids[i]));
  }
  for (size_t i = 0; i < ids.size(); ++i, out += width) {
    const float* token = table + ids[i] * width;
    const float* position =
        positions == nullptr ? nullptr : positions + static_cast<int64_t>(i) % length * width;
    if (position == nullptr) std::copy_n(token, width, out);
    if (position != nullptr) std::transform(token, token + width, position, out, std::plus<>());
  }
}

}  // namespace qkv
