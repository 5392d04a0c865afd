// Any bytes as a .gguf file of a causal model: its settings and its vocabulary are refused with an Error, or sane.
#include <algorithm>
#include <string_view>

#include "causal_config.h"
#include "formats/gguf.h"
#include "fuzz.h"
#include "models/gguf_config.h"
#include "models/gguf_tokenizer.h"
#include "qkv/error.h"
#include "sane_encoding.h"

namespace qkv::test {
namespace {

constexpr std::string_view kText = "Ab\u00e9\u0301 \u4e2d<s> 's  a12345.\n\u2581\U0001F999 abcabc";

template <class Read>
void Try(Read read) {
  try {
    read();
  } catch (const Error& error) {
    CheckFileError(error);
  }
}

void TrySettings(const GgufContent& content) {
  const auto find = [&](std::string_view name) -> const TensorEntry* {
    const auto entry = std::find_if(content.entries.begin(), content.entries.end(),
                                    [&](const TensorEntry& tensor) { return tensor.name == name; });
    return entry == content.entries.end() ? nullptr : &*entry;
  };
  const JsonObject all = content.metadata.Settings();
  CheckSettings(ReadGgufConfig(all, GgufTensors(all, find, "fuzz")));
}

void TryVocabulary(const GgufContent& content) {
  const auto tokenizer = LoadGgufTokenizer(content.metadata, "fuzz");
  CheckEncoding(*tokenizer, kText, tokenizer->Encode(std::string(kText)));
  for (int64_t id = 0; id < std::min<int64_t>(tokenizer->vocab_size(), 64); ++id) {
    Check(IsUtf8(tokenizer->Decode({id})), "a token's text is text");
  }
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  test::Try([&] {
    const GgufContent content = ParseGguf(std::as_bytes(std::span(bytes, size)), "fuzz");
    test::Try([&] { test::TrySettings(content); });
    test::Try([&] { test::TryVocabulary(content); });
  });
  return 0;
}
