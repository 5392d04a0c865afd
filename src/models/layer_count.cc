#include "models/layer_count.h"

#include "qkv/error.h"

namespace qkv {

void RefuseMoreLayers(const std::function<bool(int64_t)>& has, int64_t layers, const std::string& where) {
  int64_t held = layers;
  while (has(held)) ++held;
  if (held == layers) return;
  throw Error(ErrorCode::kFile, "more layers than the configuration gives", where, std::to_string(layers),
              std::to_string(held));
}

}  // namespace qkv
