// ONNX's operator RotaryEmbedding said in this library's words: `interleaved` is RopePairing::kAdjacent, and
// the caches hold a row for each position, or for each token where there are no position_ids.
#include "onnx/cases.h"
#include "qkv/rope.h"

namespace qkv::test {
namespace {

class OnnxRotaryEmbedding : public testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxRotaryEmbedding, GivesItsOutput) {
  const OnnxCase& test = GetParam();
  const int64_t heads = test.Attribute<int64_t>("num_heads", 1);
  const ConstTensor expected = *test.Output("output");
  RopeOptions options;
  if (test.Attribute<int64_t>("interleaved", 0) != 0) options.pairing = RopePairing::kAdjacent;
  options.positions = test.Input("position_ids");

  std::vector<float> values(static_cast<size_t>(expected.shape.elements()));
  const ConstTensor out = SplitHeads(ConstTensor(values.data(), expected.shape), heads);
  RotaryEmbed(SplitHeads(*test.Input("input"), heads), *test.Input("cos_cache"), *test.Input("sin_cache"),
              options, Tensor(values.data(), out.dtype, out.shape, out.stride));
  ExpectClose(test, ConstTensor(values.data(), expected.shape), expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, OnnxRotaryEmbedding, testing::ValuesIn(OnnxCases("RotaryEmbedding")),
                         NameOfCase);

TEST(OnnxCases, RotaryEmbeddingsAreAllThere) { EXPECT_EQ(OnnxCases("RotaryEmbedding").size(), 8u); }

}  // namespace
}  // namespace qkv::test
