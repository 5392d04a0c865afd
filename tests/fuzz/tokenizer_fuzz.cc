// Bytes up to the first NUL as tokenizer.json, the rest as a text for it; and the two as vocab.txt and
// tokenizer_config.json with a fixed text. Refused with an Error, or the tokens are sane.
#include <algorithm>
#include <string_view>

#include "fuzz.h"
#include "qkv/error.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "text/vocab_txt.h"

namespace qkv::test {
namespace {

constexpr std::string_view kText = "Ab\u00e9\u0301 \u4e2d[MASK] 's ##a.\u0130 abcabc";

bool StartsCharacter(std::string_view text, int64_t at) {
  const auto byte = static_cast<size_t>(at);
  return byte == text.size() || (static_cast<unsigned char>(text[byte]) & 0xC0) != 0x80;
}

bool IsUtf8(std::string_view text) {
  try {
    CheckUtf8(text, "label");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void CheckEncoding(const Tokenizer& tokenizer, std::string_view text, const Encoding& encoding) {
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

template <class Load>
void Try(Load load, std::string_view text) {
  try {
    const auto tokenizer = load();
    CheckEncoding(*tokenizer, text, tokenizer->Encode(text));
  } catch (const Error& error) {
    Check(error.code() == ErrorCode::kFile, "a bad file or text is a file error");
    Check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view first = input.substr(0, end), second = input.substr(std::min(end + 1, size));
  test::Try([&] { return TokenizerFromJson(first, "fuzz"); }, second);
  test::Try([&] { return TokenizerFromJson(first, "fuzz"); }, test::kText);
  test::Try([&] { return TokenizerFromVocabulary({first, "vocab"}, {second, "config"}); }, test::kText);
  return 0;
}
