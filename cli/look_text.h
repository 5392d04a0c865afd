// What `qkv look` looks at: the text's tokens, and perhaps those that the model writes after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv::cli {

// What to say on standard error once all has gone well; a failure says its one line only.
using Notes = std::vector<std::string>;

struct LookText {
  std::string text;
  Encoding encoding;
  std::vector<int64_t> generated;  // token indexes
};

enum class TooLong { kRefuse, kTruncate, kAllow };

struct LookTextOptions {
  TooLong too_long = TooLong::kRefuse;
  std::optional<int64_t> generate;  // tokens to write after the text, always the likeliest
};

// Error{kInvalidArgument}: no tokens, too many, a model that cannot continue a text.
LookText MakeLookText(const Model& model, const std::string& text, const LookTextOptions& options, Notes& notes);

}  // namespace qkv::cli
