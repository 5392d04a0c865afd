// Metadata values as a reader sees them: `qkv inspect FILE`.
#pragma once

#include <string>

#include "formats/gguf_metadata.h"

namespace qkv {

// 30, 1e-05, true, a text, [1, 2, 3], [<s>, </s>, … 49,152 in all]: on one line, long texts and arrays cut,
// control characters escaped.
std::string ValueText(const GgufValue& value);

std::string Grouped(uint64_t number);  // "1,234,567"

}  // namespace qkv
