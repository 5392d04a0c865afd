#include "bench/case.h"

#include <gmock/gmock.h>

#include <set>

namespace qkv::bench {
namespace {

Case Attention(int64_t q_heads, int64_t kv_heads, int64_t queries, int64_t keys,
               Causal causal = Causal::kNone) {
  Case one;
  one.q_heads = q_heads, one.kv_heads = kv_heads, one.queries = queries, one.keys = keys, one.causal = causal;
  return one;
}

Case Named(const std::string& name) {
  for (const Case& one : NamedCases()) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

TEST(CaseTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const Case& one : NamedCases()) EXPECT_TRUE(names.insert(one.name).second) << one.name;
}

TEST(CaseTest, SizesMakeSense) {
  for (const Case& one : NamedCases()) {
    EXPECT_GE(one.batch, 1) << one.name;
    EXPECT_GE(one.keys, one.queries) << one.name;
    if (one.kind == Kind::kModel) continue;
    EXPECT_EQ(one.q_heads % one.kv_heads, 0) << one.name;
    EXPECT_GT(AttentionOperations(one), 0) << one.name;
  }
}

TEST(CaseTest, CountsWhatIsVisible) {
  EXPECT_EQ(AttentionOperations(Attention(1, 1, 4, 4)), 4.0 * 64 * 16);
  EXPECT_EQ(AttentionOperations(Attention(1, 1, 4, 4, Causal::kBottomRight)), 4.0 * 64 * (1 + 2 + 3 + 4));
  EXPECT_EQ(AttentionOperations(Attention(2, 1, 2, 4, Causal::kBottomRight)), 2 * 4.0 * 64 * (3 + 4));
}

TEST(CaseTest, CountsTheLayersMultiplies) {
  Case layer = Attention(2, 2, 3, 3);
  layer.kind = Kind::kLayer;
  EXPECT_EQ(LayerOperations(layer), AttentionOperations(layer) + 4 * 2.0 * 3 * 128 * 128);
}

TEST(CaseTest, DecodingIsLimitedByMemory) {
  EXPECT_EQ(LimitOf(Named("f32-decode-grouped")), Limit::kMemory);
  EXPECT_EQ(LimitOf(Named("bf16-decode-batch")), Limit::kMemory);
  EXPECT_EQ(LimitOf(Named("f32-causal-1k")), Limit::kF32);
  EXPECT_EQ(LimitOf(Named("bf16-full-1k")), Limit::kBF16);
  EXPECT_EQ(LimitOf(Named("f16-full-1k")), Limit::kF32);
  EXPECT_EQ(BytesRead(Named("f32-decode-grouped")), 2.0 * 8 * 4096 * 128 * 4);
}

TEST(CaseTest, ShapesAreWritten) {
  EXPECT_EQ(ShapeText(Named("f32-causal-grouped")), "(1, 32, 8, 2048, 128)");
  EXPECT_EQ(ShapeText(Named("minilm-f32-8x262")), "(8, 262)");
}

}  // namespace
}  // namespace qkv::bench
