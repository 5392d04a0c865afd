// Cutting a text's tokens to what a model can take.
#pragma once

#include <cstddef>

#include "qkv/tokenizer.h"

namespace qkv {

// As transformers truncates: the text loses its end, the special tokens that close it stay.
void Truncate(Encoding& encoding, size_t limit);

}  // namespace qkv
