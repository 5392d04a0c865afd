// SmolLM2's tokenizer, read from its GGUF file, against the reference. `make models` gets the file.
#include "models/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "support/model_folder.h"
#include "text/golden.h"

namespace qkv::test {
namespace {

std::filesystem::path File() {
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(ModelFolder("smollm2"), absent))
    if (entry.path().extension() == ".gguf") return entry.path();
  return {};
}

TEST(GgufTokenizer, SmolLm2EqualsTheReference) {
  const std::filesystem::path file = File();
  if (file.empty()) GTEST_SKIP() << "smollm2 is not installed: make models gets it";
  const Gguf gguf(file);
  const auto tokenizer = LoadGgufTokenizer(gguf.metadata(), file.string());
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_TRUE(tokenizer->IsSpecial(tokenizer->IdOf("<|im_end|>").value()));
  const auto golden = ReadGolden("smollm2.json");
  EXPECT_GE(golden.at("cases").size(), 60u);
  for (const auto& expected : golden.at("cases")) {
    const std::string text = expected.at("text");
    const Encoding encoding = tokenizer->Encode(text);
    EXPECT_EQ(encoding.ids, expected.at("ids").get<std::vector<int64_t>>()) << text;
    EXPECT_EQ(encoding.tokens, expected.at("tokens").get<std::vector<std::string>>()) << text;
    EXPECT_EQ(tokenizer->Decode(encoding.ids), expected.at("decoded").get<std::string>()) << text;
  }
  const auto texts = ReadGolden("bpe_texts.json");
  const std::string checksums = golden.at("checksums");
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    ASSERT_EQ(Checksum(tokenizer->Encode(text).ids), checksums.substr(17 * i, 16)) << text;
  }
}

}  // namespace
}  // namespace qkv::test
