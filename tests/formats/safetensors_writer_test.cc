#include "formats/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "formats/safetensors.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

namespace fs = std::filesystem;

class SafetensorsWriter : public testing::Test {
 protected:
  fs::path file_ = fs::path(testing::TempDir()) / "safetensors_writer_test.safetensors";
  void TearDown() override { fs::remove(file_); }
};

TEST_F(SafetensorsWriter, WhatIsWrittenIsReadBack) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> b = {7, 8, 9};
  const std::vector<int64_t> c = {-1};
  const TensorToWrite tensors[] = {{"a \"quoted\"", DType::kF32, {2, 3}, std::as_bytes(std::span(a))},
                                   {"b", DType::kU8, {3}, std::as_bytes(std::span(b))},
                                   {"none", DType::kBF16, {0, 4}, {}},
                                   {"c", DType::kI64, {}, std::as_bytes(std::span(c))}};
  WriteSafetensors(file_, tensors, {{"step", "12"}, {"text", "line\n\"\\é"}});
  const Safetensors read(file_);
  EXPECT_EQ(read.metadata().at("step"), "12");
  EXPECT_EQ(read.metadata().at("text"), "line\n\"\\é");
  ASSERT_EQ(read.entries().size(), 4u);
  for (const TensorToWrite& tensor : tensors) {
    const TensorEntry* entry = read.Find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->shape, tensor.shape);
    ASSERT_EQ(entry->bytes.size(), tensor.data.size());
    EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(), entry->bytes.begin()));
  }
}

TEST_F(SafetensorsWriter, RefusesWhatDoesNotFitTogetherAndLeavesNoFile) {
  const std::vector<float> a(6);
  const auto data = std::as_bytes(std::span(a));
  const TensorToWrite twice[] = {{"a", DType::kF32, {6}, data}, {"a", DType::kF32, {6}, data}};
  const TensorToWrite short_of[] = {{"a", DType::kF32, {7}, data}};
  const TensorToWrite negative[] = {{"a", DType::kF32, {-1}, data}};
  EXPECT_THROW(WriteSafetensors(file_, twice), Error);
  EXPECT_THROW(WriteSafetensors(file_, short_of), Error);
  EXPECT_THROW(WriteSafetensors(file_, negative), Error);
  EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace qkv::test
