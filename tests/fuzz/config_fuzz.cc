// Any bytes as a config.json: refused with an Error, or read as what it says.
#include <string_view>

#include "formats/config.h"
#include "fuzz.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

void CheckBert(const BertConfig& bert) {
  for (const int64_t size :
       {bert.vocab_size, bert.hidden_size, bert.num_hidden_layers, bert.num_attention_heads,
        bert.intermediate_size, bert.max_position_embeddings, bert.type_vocab_size}) {
    Check(size >= 1 && size <= int64_t{1} << 31, "sizes are sane");
  }
  Check(bert.hidden_size % bert.num_attention_heads == 0, "heads divide the width");
  Check(bert.layer_norm_eps > 0 && bert.layer_norm_eps < 1, "epsilon is between 0 and 1");
}

void CheckError(const Error& error) {
  Check(error.code() == ErrorCode::kFile, "a bad file is a file error");
  Check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
}

// What our builder makes of a text must be what the library's own makes of it.
void TryJson(std::string_view text) {
  try {
    const nlohmann::json value = ParseJson(text, "fuzz");
    Check(value == nlohmann::json::parse(text), "both builders make the same value");
  } catch (const Error& error) {
    CheckError(error);
  }
}

void TryConfig(std::string_view text) {
  try {
    const JsonObject config = ParseConfig(text, "fuzz");
    Check(!ModelType(config).empty(), "a model type is not empty");
    CheckBert(ReadBertConfig(config));
  } catch (const Error& error) {
    CheckError(error);
  }
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  qkv::test::TryJson(text);
  qkv::test::TryConfig(text);
  return 0;
}
