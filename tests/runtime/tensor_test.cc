#include "qkv/tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr DType kAllTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                               DType::kI32, DType::kI8,  DType::kU8,   DType::kBool};

TEST(DType, SizesFollowTheElements) {
  EXPECT_EQ(SizeOf(DTypeOf<double>::value), sizeof(double));
  EXPECT_EQ(SizeOf(DTypeOf<float>::value), sizeof(float));
  EXPECT_EQ(SizeOf(DTypeOf<BFloat16>::value), sizeof(BFloat16));
  EXPECT_EQ(SizeOf(DTypeOf<Float16>::value), sizeof(Float16));
  EXPECT_EQ(SizeOf(DTypeOf<int64_t>::value), sizeof(int64_t));
  EXPECT_EQ(SizeOf(DTypeOf<int32_t>::value), sizeof(int32_t));
  EXPECT_EQ(SizeOf(DTypeOf<int8_t>::value), 1u);
  EXPECT_EQ(SizeOf(DTypeOf<uint8_t>::value), 1u);
  EXPECT_EQ(SizeOf(DTypeOf<bool>::value), 1u);
}

TEST(DType, NamesAreApart) {
  std::set<std::string> names;
  for (DType dtype : kAllTypes) names.insert(NameOf(dtype));
  EXPECT_EQ(names.size(), std::size(kAllTypes));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(NameOf(DType::kBF16), "bfloat16");
}

TEST(Shape, PrintsLikePython) {
  EXPECT_EQ(ToString(Shape{}), "()");
  EXPECT_EQ(ToString(Shape{1, 12, 15, 64}), "(1, 12, 15, 64)");
}

TEST(Shape, EqualityHoldsRankAndSizes) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(Shape, MoreThanFourAxesAreRefused) { EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error); }

TEST(Shape, ElementsAreTheProduct) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).elements(), 0);
}

TEST(Shape, ElementsThatDoNotFitAreAnError) {
  constexpr int64_t kHalf = int64_t{1} << 32;
  EXPECT_EQ((Shape{kHalf, kHalf / 4, 1}).elements(), int64_t{1} << 62);
  EXPECT_THROW((Shape{kHalf, kHalf}).elements(), Error);
  // An empty tensor is empty however large its other axes.
  EXPECT_EQ((Shape{kHalf, kHalf, kHalf, 0}).elements(), 0);
}

TEST(Tensor, ContiguousStridesCountElements) {
  const float data[24] = {};
  const ConstTensor tensor(data, {2, 3, 4});
  EXPECT_EQ(tensor.dtype, DType::kF32);
  EXPECT_EQ(tensor.rank(), 3);
  EXPECT_EQ(tensor.size(1), 3);
  EXPECT_EQ(tensor.stride, (std::array<int64_t, kMaxRank>{12, 4, 1, 0}));
}

TEST(Tensor, KeepsGivenStrides) {
  float data[4] = {1, 2, 3, 4};
  const Tensor backwards(data + 3, DType::kF32, {4}, {-1});
  EXPECT_EQ(backwards.stride[0], -1);
  EXPECT_EQ(static_cast<float*>(backwards.mutable_data()) - 3, data);
}

TEST(Tensor, AWrappedShapeCanBeDescribed) {
  // Validation turns it down later; making the view must not be undefined behaviour.
  constexpr int64_t kHuge = int64_t{1} << 62;
  const ConstTensor tensor(nullptr, DType::kF32, {kHuge, kHuge, kHuge, kHuge});
  EXPECT_THROW(tensor.shape.elements(), Error);
}

}  // namespace
}  // namespace qkv
