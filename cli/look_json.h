// What `qkv look --json` prints.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/output.h"
#include "qkv/capture.h"

namespace qkv::cli {

// How many weights one answer may hold.
inline constexpr int64_t kMostJsonWeights = 16'000'000;

// {"model", "tokens", "ids", "layers", "heads", "layer_ids", "head_ids", "query_ids"} and, of the capture's
// layers and heads and of `queries` (all captured ones where it is empty), "weights"[layer][head][query][key],
// or where only the strongest keys were kept "top"[layer][head][query] = [[key, weight], ...]. Numbers read
// back as the same float32; what is not a number is null.
void WriteJson(const ModelCapture& capture, const std::vector<int64_t>& queries, StandardOutput& output);

}  // namespace qkv::cli
