// Models in bfloat16 beside themselves in float32.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/golden.h"
#include "qkv/error.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

// A sentence's embedding, as sentence-transformers makes it: the mean of the last hidden states.
std::vector<double> Embedding(const Model& model, const std::string& text) {
  const std::vector<int64_t> ids = model.tokenizer().Encode(text).ids;
  const std::vector<float> hidden = model.Forward(ids, 1);
  const auto width = static_cast<size_t>(model.info().width);
  std::vector<double> mean(width);
  for (size_t i = 0; i < hidden.size(); ++i) mean[i % width] += hidden[i] / static_cast<double>(ids.size());
  return mean;
}

double Cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const auto dot = [](const auto& x, const auto& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

const Model& MiniLmBFloat16() {
  static const auto model = LoadModel("minilm", {DType::kBF16});
  return *model;
}

TEST(BFloat16, EmbeddingsOfMiniLmStayWhereFloat32HasThem) {
  std::string long_text;
  while (long_text.size() < 2000) long_text += "I walked along the pond, and noticed one of the trees along the bank. ";
  const std::vector<std::string> texts{
      "it",
      "The chicken didn't cross the road because it was too tired",
      "The keys to the cabinet are on the table.",
      "Numbers: 3.14159, -40, 1e10; emails like someone@example.org; C++ and x86-64.",
      "\u4f60\u597d, na\u00efve caf\u00e9!",
      long_text,
  };
  for (const std::string& text : texts) {
    EXPECT_GE(Cosine(Embedding(test::MiniLm(), text), Embedding(MiniLmBFloat16(), text)), test::kBFloat16Cosine)
        << text.substr(0, 60);
  }
}

TEST(BFloat16, LookingSeesTheSameHeads) {
  const Encoding text =
      MiniLmBFloat16().tokenizer().Encode("The chicken didn't cross the road because it was too tired");
  const ModelCapture narrow = MiniLmBFloat16().Look(text, {}), wide = test::MiniLm().Look(text, {});
  ASSERT_EQ(narrow.weights.size(), wide.weights.size());
  for (size_t i = 0; i < wide.weights.size(); ++i) {
    ASSERT_NEAR(narrow.weights[i], wide.weights[i], test::kBFloat16Weights) << i;
  }
}

TEST(BFloat16, OtherTypesAreRefused) {
  for (DType dtype : {DType::kF16, DType::kF64, DType::kI8}) {
    try {
      LoadModel("minilm", {dtype});
      FAIL() << "loaded as " << NameOf(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_STREQ(error.what(), (std::string("dtype: models do not run in this type, expected float32 or bfloat16, got ") +
                                  NameOf(dtype)).c_str());
    }
  }
}

}  // namespace
}  // namespace qkv
