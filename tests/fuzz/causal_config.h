// What holds for the settings of any causal model that was not refused.
#pragma once

#include <cmath>
#include <string_view>

#include "fuzz.h"
#include "models/causal_config.h"
#include "qkv/error.h"

namespace qkv::test {

inline void CheckSettings(const CausalConfig& config) {
  for (const int64_t size : {config.vocab, config.width, config.layers, config.heads, config.kv_heads,
                             config.head_width, config.inner_width, config.max_tokens}) {
    Check(size >= 1 && size <= int64_t{1} << 31, "sizes are sane");
  }
  Check(config.heads % config.kv_heads == 0, "key heads divide the query heads");
  Check(config.epsilon > 0 && config.epsilon < 1, "epsilon is between 0 and 1");
  const auto layers = static_cast<size_t>(config.layers);
  Check(config.windows.size() == layers && config.scales.size() == layers, "each layer has its rules");
  for (const auto& window : config.windows) Check(!window || *window >= 1, "a window holds a token");
  for (const float scale : config.scales) Check(std::isfinite(scale) && scale > 0, "scales are numbers");
  if (!config.rope) return;
  Check(config.rope->rotary_dim >= 2 && config.rope->rotary_dim % 2 == 0 &&
            config.rope->rotary_dim <= config.head_width,
        "what turns are pairs of a head's channels");
  Check(std::isfinite(config.rope->base) && config.rope->base > 0, "the base is a number");
}

inline void CheckFileError(const Error& error) {
  Check(error.code() == ErrorCode::kFile, "a bad file is a file error");
  Check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
}

}  // namespace qkv::test
