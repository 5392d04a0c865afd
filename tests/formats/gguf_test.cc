#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_bytes.h"
#include "formats/support.h"

namespace qkv::test {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr JsonObject::IntRange kAnyInt{INT64_MIN, INT64_MAX};

GgufContent Parse(const std::string& bytes) { return ParseGguf(AsBytes(bytes), "x.gguf"); }

TEST(Gguf, ReadsEveryKindOfMetadataAsTheReferenceWritesIt) {
  const Gguf file(kGolden / "all.gguf");
  EXPECT_EQ(file.version(), 3u);
  const JsonObject settings = file.metadata().Settings();
  EXPECT_EQ(settings.String("general.architecture"), "llama");
  EXPECT_EQ(settings.Int("test.uint8", kAnyInt), 200);
  EXPECT_EQ(settings.Int("test.int8", kAnyInt), -100);
  EXPECT_EQ(settings.Int("test.uint16", kAnyInt), 60000);
  EXPECT_EQ(settings.Int("test.int16", kAnyInt), -30000);
  EXPECT_EQ(settings.Int("test.uint32", kAnyInt), 4000000000);
  EXPECT_EQ(settings.Int("test.int32", kAnyInt), -2000000000);
  EXPECT_EQ(settings.Int("test.int64", kAnyInt), -(int64_t{1} << 62));
  EXPECT_THAT(FileError([&] { settings.Int("test.uint64", kAnyInt); }), EndsWith("got 9223372036854775809"));
  EXPECT_EQ(settings.Real("test.float32", {0, 1}), 0.5);
  EXPECT_EQ(settings.Real("test.float64", {0, 1e301}), 1e300);
  EXPECT_TRUE(settings.BoolOr("test.bool", false));
  EXPECT_EQ(settings.String("test.string"), "two\nlines, é中");
  EXPECT_FALSE(settings.Has("test.strings"));
  EXPECT_FALSE(settings.Has("test.many"));
}

TEST(Gguf, ReadsArrays) {
  const Gguf file(kGolden / "all.gguf");
  const GgufMetadata& metadata = file.metadata();
  EXPECT_THAT(metadata.Strings("test.strings"), ElementsAre("", "one", "中"));
  EXPECT_THAT(metadata.Ints("test.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(metadata.Floats("test.floats"), ElementsAre(0.5f, -1.5f));
  EXPECT_EQ(metadata.Ints("test.many").size(), 5000u);
  EXPECT_EQ(metadata.Ints("test.many").back(), 4999);
  EXPECT_THAT(FileError([&] { metadata.Strings("none"); }), EndsWith("all.gguf: no none"));
  EXPECT_THAT(FileError([&] { metadata.Strings("test.ints"); }),
              EndsWith("unsupported test.ints, expected an array of strings, got an array of int32"));
  EXPECT_THAT(FileError([&] { metadata.Ints("test.bools"); }), HasSubstr("got an array of bool"));
  EXPECT_THAT(FileError([&] { metadata.Floats("test.string"); }), HasSubstr("expected an array, got string"));
}

TEST(Gguf, ReadsEveryTypeOfTensorAsTheReferenceWritesIt) {
  const Gguf file(kGolden / "all.gguf");
  EXPECT_EQ(file.entries().size(), 16u);
  for (const char* name : {"F32", "F16", "F64"}) {
    EXPECT_THAT(file.RequireFloats(name, std::vector<int64_t>{2, 3}).values,
                ElementsAre(-1.5f, 0.5f, 2, 96, 0, 1));
  }
  EXPECT_THAT(file.RequireFloats("BF16", std::vector<int64_t>{2}).values, ElementsAre(1.0f, -1.5f));
  for (const TensorEntry& entry : file.entries()) {
    EXPECT_EQ(entry.name, NameOf(entry.type));
    EXPECT_EQ(entry.bytes.size(), StoredBytes(entry.type, entry.elements));
    EXPECT_EQ(std::bit_cast<uintptr_t>(entry.bytes.data()) % 32, 0u);
    if (!IsQuantised(entry.type)) continue;
    EXPECT_THAT(entry.shape, ElementsAre(2, BlockOf(entry.type).elements));
    for (size_t i = 0; i < entry.bytes.size(); ++i) {
      ASSERT_EQ(std::to_integer<uint8_t>(entry.bytes[i]), static_cast<uint8_t>(i)) << entry.name;
    }
  }
}

TEST(Gguf, RequiredTensorsThatAreNotRight) {
  const Gguf file(kGolden / "all.gguf");
  const auto error = [&](const char* name, std::vector<int64_t> shape) {
    return FileError([&] { file.RequireFloats(name, shape); });
  };
  EXPECT_THAT(error("none", {1}), EndsWith("all.gguf: tensor none missing"));
  EXPECT_THAT(error("F32", {3, 2}), EndsWith("tensor F32 has the wrong shape, expected (3, 2), got (2, 3)"));
  EXPECT_THAT(error("Q8_0", {2, 32}), EndsWith("has the wrong type, expected F64, F32, F16 or BF16, got Q8_0"));
}

TEST(Gguf, SurvivesMoving) {
  Gguf file(kGolden / "all.gguf");
  const Gguf moved(std::move(file));
  EXPECT_EQ(moved.Find("F32")->elements, 6);
  EXPECT_EQ(moved.Find("none"), nullptr);
  EXPECT_THAT(moved.metadata().Ints("test.ints"), ElementsAre(1, -2, 3));
}

TEST(Gguf, Version2IsTheSame) {
  const GgufContent content =
      Parse(GgufBytes({.version = 2,
                       .tensors = 1,
                       .keys = 1,
                       .infos = Key("k", GgufKind::kU8, "\7") + TensorInfo("t", {2}, 0, 0),
                       .data = "12345678"}));
  EXPECT_EQ(content.version, 2u);
  EXPECT_EQ(AsInt(*content.metadata.Find("k")), 7);
  EXPECT_EQ(content.entries[0].bytes.size(), 8u);
}

TEST(Gguf, NestedArrays) {
  const std::string inner = Array(GgufKind::kString, 2, Counted("a") + Counted(""));
  const std::string bytes =
      GgufBytes({.keys = 1,
                 .infos = Key("k", GgufKind::kArray,
                              Array(GgufKind::kArray, 3, inner + Array(GgufKind::kU16, 1, "\1\2") + inner))});
  const GgufContent content = Parse(bytes);
  std::vector<GgufValue> elements;
  ForEachElement(*content.metadata.Find("k"), [&](const GgufValue& element) {
    elements.push_back(element);
    return elements.size() < 3;
  });
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[1].element_kind, GgufKind::kU16);
  EXPECT_EQ(elements[1].bytes.size(), 2u);
  std::vector<std::string_view> strings;
  ForEachElement(elements[2], [&](const GgufValue& element) {
    strings.push_back(*AsString(element));
    return true;
  });
  EXPECT_THAT(strings, ElementsAre("a", ""));
}

TEST(Gguf, AlignmentOfItsOwnAndScalars) {
  const GgufContent content =
      Parse(GgufBytes({.tensors = 2,
                       .keys = 1,
                       .infos = Key("general.alignment", GgufKind::kU32, Raw<uint32_t>(8)) +
                                TensorInfo("scalar", {}, kF32Number, 8) + TensorInfo("one", {1}, kF32Number, 0),
                       .data = "1234----5678",
                       .alignment = 8}));
  EXPECT_EQ(content.alignment, 8);
  EXPECT_EQ(content.entries[0].name, "one");  // as they lie
  EXPECT_THAT(content.entries[1].shape, IsEmpty());
  EXPECT_EQ(content.entries[1].elements, 1);
  EXPECT_EQ(content.entries[1].bytes[0], std::byte{'5'});
}

TEST(Gguf, ShapesComeOutermostFirst) {
  const GgufContent content = Parse(GgufBytes(
      {.tensors = 1, .infos = TensorInfo("t", {32, 3, 2}, kQ4_0Number, 0), .data = std::string(6 * 18, 'x')}));
  EXPECT_THAT(content.entries[0].shape, ElementsAre(2, 3, 32));
}

TEST(Gguf, AFileWithoutAnything) {
  const GgufContent content = Parse(GgufBytes({}));
  EXPECT_THAT(content.entries, IsEmpty());
  EXPECT_THAT(content.metadata.pairs(), IsEmpty());
}

// The number of tensors is where a safetensors header begins.
TEST(Gguf, Of123TensorsIsNoSafetensors) {
  std::string infos;
  for (uint64_t i = 0; i < 123; ++i) infos += TensorInfo(std::to_string(i), {1}, kF32Number, 32 * i);
  EXPECT_EQ(
      Parse(GgufBytes({.tensors = 123, .infos = infos, .data = std::string(123 * 32, '\0')})).entries.size(),
      123u);
}

}  // namespace
}  // namespace qkv::test
