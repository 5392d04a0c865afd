// What holds for any text's tokens, whatever the tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "fuzz.h"
#include "qkv/error.h"
#include "qkv/tokenizer.h"
#include "text/utf8.h"

namespace qkv::test {

inline bool StartsCharacter(std::string_view text, int64_t at) {
  const auto byte = static_cast<size_t>(at);
  return byte == text.size() || (static_cast<unsigned char>(text[byte]) & 0xC0) != 0x80;
}

inline bool IsUtf8(std::string_view text) {
  try {
    CheckUtf8(text, "label");
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline void CheckEncoding(const Tokenizer& tokenizer, std::string_view text, const Encoding& encoding) {
  const size_t count = encoding.ids.size();
  Check(encoding.tokens.size() == count && encoding.labels.size() == count &&
            encoding.continues.size() == count && encoding.special.size() == count &&
            encoding.span.size() == count,
        "all lists are as long as the ids");
  for (size_t i = 0; i < count; ++i) {
    const auto [first, last] = encoding.span[i];
    Check(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocab_size(), "ids are the vocabulary's");
    Check(first >= 0 && first <= last && last <= static_cast<int64_t>(text.size()), "spans lie in the text");
    Check(StartsCharacter(text, first) && StartsCharacter(text, last), "spans hold whole characters");
    Check(IsUtf8(encoding.labels[i]), "labels are text");
  }
  StreamingDecoder decoder(tokenizer);
  std::string streamed;
  for (const int64_t id : encoding.ids) {
    const std::string piece = decoder.Add(id);
    Check(IsUtf8(piece), "a stream shows whole characters");
    streamed += piece;
  }
  Check(streamed + decoder.Finish() == tokenizer.Decode(encoding.ids), "a stream is what decoding gives");
}

}  // namespace qkv::test
