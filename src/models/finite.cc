#include "models/finite.h"

#include <algorithm>
#include <limits>

#include "qkv/error.h"

namespace qkv {

void CheckFinite(std::span<const float> values, const std::string& model) {
  // One comparison that a NaN fails as well.
  const auto sound = [](float value) { return value < std::numeric_limits<float>::infinity(); };
  if (!std::all_of(values.begin(), values.end(), sound)) FailNotFinite(model);
}

void FailNotFinite(const std::string& model) {
  throw Error(ErrorCode::kFile, "the model's numbers are not finite: its parameters are damaged", model);
}

}  // namespace qkv
