// The model that ships: the export of a training run, against transformers on the same folder
// (tests/golden/models/make_tiny.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "qkv/generate.h"

namespace qkv {
namespace {

constexpr float kLogits = 1e-4f;  // what an export promises, element by element

const Model& Tiny() {
  static const auto model = LoadModel("tiny");
  return *model;
}

TEST(Tiny, IsAsSmallAsItsDescriptionSays) {
  const ModelInfo& info = Tiny().info();
  EXPECT_EQ(info.architecture, "gpt2");
  EXPECT_GE(info.parameters, 1'000'000);
  EXPECT_LE(info.parameters, 3'000'000);
}

TEST(Tiny, TokensAndLogitsAreTransformers) {
  const Safetensors golden(std::string(QKV_GOLDEN) + "/models/tiny_logits.safetensors");
  const TensorEntry &ids_entry = *golden.Find("ids"), &logits_entry = *golden.Find("logits");
  const auto* first = reinterpret_cast<const int64_t*>(ids_entry.bytes.data());
  const std::vector<int64_t> ids(first, first + ids_entry.elements);
  EXPECT_EQ(Tiny().tokenizer().Encode(golden.metadata().at("text")).ids, ids);
  std::vector<float> wanted(static_cast<size_t>(logits_entry.elements));
  CopyFloats(logits_entry, wanted, "golden");
  const std::vector<float> logits = StartSession(Tiny())->ReadAll(ids);
  ASSERT_EQ(logits.size(), wanted.size());
  float worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) worst = std::max(worst, std::abs(logits[i] - wanted[i]));
  EXPECT_LE(worst, kLogits);
}

TEST(Tiny, WritesAsItsTextDoes) {
  const std::vector<int64_t> prompt = Tiny().tokenizer().Encode("And God said, Let there be").ids;
  GenerateOptions options;
  options.max_tokens = 40;
  const std::string text = Generate(Tiny(), prompt, options).text;
  EXPECT_NE(text.find(" the "), std::string::npos) << text;
}

}  // namespace
}  // namespace qkv
