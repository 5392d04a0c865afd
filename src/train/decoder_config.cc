#include "train/decoder_config.h"

#include <fmt/format.h>

#include <string>

#include "qkv/error.h"

namespace qkv::train {
namespace {

[[noreturn]] void Refuse(const char* what, const char* where, const std::string& expected,
                         const std::string& got) {
  throw Error(ErrorCode::kInvalidArgument, what, where, expected, got);
}

// Limits that keep every product of sizes within 63 bits.
constexpr int64_t kMostLayers = 4096, kMostWidth = int64_t{1} << 20, kMostRows = int64_t{1} << 31;

void RequireSize(int64_t value, int64_t most, const char* name) {
  if (value >= 1 && value <= most) return;
  Refuse("bad size", name, "1 to " + std::to_string(most), std::to_string(value));
}

}  // namespace

void CheckConfig(const DecoderConfig& config) {
  RequireSize(config.layers, kMostLayers, "layers");
  RequireSize(config.heads, kMostWidth, "heads");
  RequireSize(config.width, kMostWidth, "width");
  RequireSize(config.context, kMostRows, "context");
  RequireSize(config.vocab, kMostRows - 1, "vocab");  // ids are 32 bits
  if (config.width % config.heads != 0) {
    Refuse("the heads cannot share the width", "width", "a multiple of heads = " + std::to_string(config.heads),
           std::to_string(config.width));
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    Refuse("bad dropout", "dropout", "0 or more and below 1", fmt::format("{}", config.dropout));
  }
  if (!(config.norm_epsilon > 0 && config.norm_epsilon < 1)) {
    Refuse("bad epsilon of the norms", "norm_epsilon", "above 0 and below 1",
           fmt::format("{}", config.norm_epsilon));
  }
}

}  // namespace qkv::train
