#include "qkv/error.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace qkv {
namespace {

TEST(Error, MessageHoldsAllPartsOnOneLine) {
  const Error error(ErrorCode::kInvalidArgument, "wrong shape", "v", "(1, 2, 3, 4)", "(1, 2, 4, 4)");
  EXPECT_STREQ(error.what(), "v: wrong shape, expected (1, 2, 3, 4), got (1, 2, 4, 4)");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.where(), "v");
  EXPECT_EQ(error.reason(), "wrong shape");
  EXPECT_EQ(error.expected(), "(1, 2, 3, 4)");
  EXPECT_EQ(error.got(), "(1, 2, 4, 4)");
}

TEST(Error, EmptyPartsLeaveNoTrace) {
  EXPECT_STREQ(Error(ErrorCode::kCancelled, "cancelled").what(), "cancelled");
  EXPECT_STREQ(Error(ErrorCode::kFile, "no such file", "a.json").what(), "a.json: no such file");
  EXPECT_STREQ(Error(ErrorCode::kFile, "bad", "", "4 bytes").what(), "bad, expected 4 bytes");
  EXPECT_STREQ(Error(ErrorCode::kFile, "bad", "", "", "3").what(), "bad, got 3");
}

TEST(Error, IsCaughtAsAStandardException) {
  try {
    throw Error(ErrorCode::kInternal, "broken", "dnnl");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "dnnl: broken");
  }
}

}  // namespace
}  // namespace qkv
