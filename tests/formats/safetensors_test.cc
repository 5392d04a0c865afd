#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "formats/support.h"

namespace qkv::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<float> FloatsOf(const TensorEntry& entry) {
  std::vector<float> floats(static_cast<size_t>(entry.elements));
  CopyFloats(entry, floats, "x.safetensors");
  return floats;
}

template <class T>
std::vector<T> ValuesOf(const Safetensors& file, const char* name) {
  const TensorEntry* entry = file.Find(name);
  std::vector<T> values(static_cast<size_t>(entry->elements));
  EXPECT_EQ(values.size() * sizeof(T), entry->bytes.size());
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  return values;
}

TEST(Safetensors, ReadsEveryTypeAsTheReferenceWritesIt) {
  const Safetensors file(kGolden / "types.safetensors");
  EXPECT_EQ(file.entries().size(), 15u);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt"), Pair("note", "every type")));
  for (const char* name : {"f64", "f32", "f16", "bf16"}) {
    EXPECT_THAT(FloatsOf(*file.Find(name)), ElementsAre(-1.5f, 0.5f, 2.0f, 96.0f)) << name;
  }
  EXPECT_THAT(ValuesOf<int64_t>(file, "i64"), ElementsAre(-1, 1, 2, 100));
  EXPECT_THAT(ValuesOf<int32_t>(file, "i32"), ElementsAre(-1, 1, 2, 100));
  EXPECT_THAT(ValuesOf<int16_t>(file, "i16"), ElementsAre(-1, 1, 2, 100));
  EXPECT_THAT(ValuesOf<int8_t>(file, "i8"), ElementsAre(-1, 1, 2, 100));
  EXPECT_THAT(ValuesOf<uint64_t>(file, "u64"), ElementsAre(0u, 1u, 2u, 100u));
  EXPECT_THAT(ValuesOf<uint32_t>(file, "u32"), ElementsAre(0u, 1u, 2u, 100u));
  EXPECT_THAT(ValuesOf<uint16_t>(file, "u16"), ElementsAre(0u, 1u, 2u, 100u));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "u8"), ElementsAre(0u, 1u, 2u, 100u));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "bool"), ElementsAre(0u, 1u, 1u, 0u));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "f8_e4m3"), ElementsAre(0xbc, 0x30, 0x40, 0x6c));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "f8_e5m2"), ElementsAre(0xbe, 0x38, 0x40, 0x56));
  for (const TensorEntry& entry : file.entries()) EXPECT_THAT(entry.shape, ElementsAre(2, 2)) << entry.name;
}

TEST(Safetensors, ReadsScalarsEmptyTensorsManyAxesAndAnyName) {
  const Safetensors file(kGolden / "shapes.safetensors");
  EXPECT_THAT(file.metadata(), IsEmpty());
  EXPECT_THAT(file.Find("scalar")->shape, IsEmpty());
  EXPECT_THAT(FloatsOf(*file.Find("scalar")), ElementsAre(2.5f));
  EXPECT_THAT(file.Find("empty")->shape, ElementsAre(0, 3));
  EXPECT_TRUE(file.Find("empty")->bytes.empty());
  EXPECT_THAT(file.Find("rank5")->shape, ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(FloatsOf(*file.Find("rank5")), ElementsAre(0, 1, 2, 3));
  EXPECT_NE(file.Find("名前 é"), nullptr);
  EXPECT_EQ(file.Find("other"), nullptr);
  EXPECT_THAT(Safetensors(kGolden / "nothing.safetensors").entries(), IsEmpty());
}

TEST(Safetensors, LegalOddities) {
  // Spaces after the header, a field that we do not know, a size that only a zero beside it keeps in range.
  const std::string bytes =
      FileBytes(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3],"future":[{}]},)"
                R"("a":{"shape":[],"data_offsets":[0,1],"dtype":"U8"},)"
                R"("":{"dtype":"F32","shape":[0,9223372036854775807,9],"data_offsets":[3,3]}}      )",
                "xyz");
  const SafetensorsContent content = ParseSafetensors(AsBytes(bytes), "x");
  ASSERT_EQ(content.entries.size(), 3u);
  EXPECT_EQ(content.entries[0].name, "a");  // as they lie in the file
  EXPECT_EQ(content.entries[1].name, "b");
  EXPECT_EQ(static_cast<char>(content.entries[1].bytes[1]), 'z');
  EXPECT_EQ(content.entries[2].elements, 0);
}

TEST(Safetensors, AHeaderLengthThatSpellsAnotherMagic) {
  // 0x04034b50 is the zip magic; such a header is legal, if large.
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x04034b50, ' ');
  const std::string bytes = FileBytes(header, "x");
  ASSERT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ(ParseSafetensors(AsBytes(bytes), "x").entries.size(), 1u);
}

TEST(Safetensors, MisalignedDataIsCopiedNotViewed) {
  const float values[] = {1.5f, -2.0f};
  std::string data(1 + sizeof values, '\x7f');
  std::memcpy(data.data() + 1, values, sizeof values);
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  for (size_t padding = 0; padding < 4; ++padding) {
    const std::string bytes = FileBytes(header + std::string(padding, ' '), data);
    const SafetensorsContent content = ParseSafetensors(AsBytes(bytes), "x");
    const TensorEntry& entry = content.entries[1];
    const bool aligned = reinterpret_cast<uintptr_t>(entry.bytes.data()) % alignof(float) == 0;
    EXPECT_EQ(DirectView(entry).has_value(), aligned);
    EXPECT_THAT(FloatsOf(entry), ElementsAre(1.5f, -2.0f));
  }
}

TEST(Safetensors, ViewsPointIntoTheFile) {
  const Safetensors file(kGolden / "types.safetensors");
  const TensorEntry& entry = *file.Find("f32");
  const std::optional<ConstTensor> view = DirectView(entry);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->data, entry.bytes.data());
  EXPECT_EQ(view->dtype, DType::kF32);
  EXPECT_EQ(view->shape, (Shape{2, 2}));
  EXPECT_EQ(view->stride[0], 2);
  EXPECT_EQ(DirectView(*file.Find("bool"))->dtype, DType::kU8);
  EXPECT_EQ(DirectView(*file.Find("bf16"))->dtype, DType::kBF16);
  EXPECT_FALSE(DirectView(*file.Find("f8_e4m3")).has_value());
  EXPECT_FALSE(DirectView(*file.Find("u16")).has_value());
  EXPECT_FALSE(DirectView(*Safetensors(kGolden / "shapes.safetensors").Find("rank5")).has_value());
}

TEST(Safetensors, ConversionErrors) {
  const Safetensors file(kGolden / "types.safetensors");
  EXPECT_EQ(FileError([&] { FloatsOf(*file.Find("i64")); }),
            "x.safetensors: tensor i64 has the wrong type, expected F64, F32, F16 or BF16, got I64");
  std::vector<float> room(3);
  EXPECT_THROW(CopyFloats(*file.Find("f32"), room, "x"), Error);
}

TEST(Safetensors, EntriesSurviveAMove) {
  Safetensors file(kGolden / "types.safetensors");
  const TensorEntry* entry = file.Find("f32");
  const Safetensors moved = std::move(file);
  EXPECT_EQ(moved.Find("f32"), entry);
  EXPECT_THAT(FloatsOf(*entry), ElementsAre(-1.5f, 0.5f, 2.0f, 96.0f));
}

}  // namespace
}  // namespace qkv::test
