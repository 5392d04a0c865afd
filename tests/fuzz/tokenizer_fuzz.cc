// Bytes up to the first NUL as tokenizer.json, the rest as a text for it; and the two as vocab.txt and
// tokenizer_config.json with a fixed text. Refused with an Error, or the tokens are sane.
#include <algorithm>
#include <string_view>

#include "fuzz.h"
#include "sane_encoding.h"
#include "qkv/error.h"
#include "text/tokenizer_json.h"
#include "text/vocab_txt.h"

namespace qkv::test {
namespace {

constexpr std::string_view kText = "Ab\u00e9\u0301 \u4e2d[MASK] 's ##a.\u0130 abcabc";

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
