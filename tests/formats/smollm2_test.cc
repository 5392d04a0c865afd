// SmolLM2's own file. `make models` installs it; without it these tests fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "formats/gguf.h"
#include "formats/inspect.h"
#include "formats/support.h"

namespace qkv::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path SmolLm2() { return InstalledModel("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"; }

TEST(SmolLm2, HoldsItsTensors) {
  const Gguf file(SmolLm2());
  EXPECT_EQ(file.entries().size(), 272u);
  const TensorEntry& embeddings = *file.Find("token_embd.weight");
  EXPECT_EQ(embeddings.type, StoredType::kQ8_0);
  EXPECT_THAT(embeddings.shape, ElementsAre(49152, 576));
  EXPECT_THAT(file.Find("blk.29.ffn_down.weight")->shape, ElementsAre(576, 1536));
  const Floats norm = file.RequireFloats("output_norm.weight", std::vector<int64_t>{576});
  EXPECT_EQ(norm.converted.size(), 0);  // read where it lies
  EXPECT_THAT(norm.values.first(4), ElementsAre(1.7578125f, 1.8203125f, 1.78125f, 1.6015625f));
}

TEST(SmolLm2, StatesItsSettingsAndItsVocabulary) {
  const Gguf file(SmolLm2());
  const JsonObject settings = file.metadata().Settings();
  EXPECT_EQ(settings.String("general.architecture"), "llama");
  EXPECT_EQ(settings.Int("llama.block_count", {1, 1000}), 30);
  EXPECT_EQ(settings.Real("llama.rope.freq_base", {0, 1e9}), 100000);
  EXPECT_THAT(settings.String("tokenizer.chat_template"), HasSubstr("<|im_start|>"));
  const std::vector<std::string_view> tokens = file.metadata().Strings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[1], "<|im_start|>");
  EXPECT_EQ(file.metadata().Strings("tokenizer.ggml.merges")[0], "Ġ t");
  EXPECT_EQ(file.metadata().Ints("tokenizer.ggml.token_type")[0], 3);
}

TEST(SmolLm2, Inspected) {
  const std::string text = InspectFile(SmolLm2().parent_path());
  EXPECT_THAT(
      text, HasSubstr("GGUF version 3, 272 tensors (61 F32, 210 Q4_1, 1 Q8_0), 134,515,008 elements, 92.1 MiB, "
                      "5.74 bits an element\n"));
  EXPECT_THAT(text, HasSubstr("token_embd.weight          Q8_0  (49152, 576)   28.7 MiB\n"));
}

}  // namespace
}  // namespace qkv::test
