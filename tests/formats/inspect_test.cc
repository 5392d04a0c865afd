#include "formats/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/gguf_bytes.h"
#include "formats/support.h"

namespace qkv::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(Inspect, ShowsAFile) {
  const TempFolder folder;
  const std::string header = R"({"__metadata__":{"format":"pt","a\tb":"two\nlines"},)"
                             R"("wide":{"dtype":"F32","shape":[40,64],"data_offsets":[3,10243]},)"
                             R"("s\u001b[2J":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},)"
                             R"("none":{"dtype":"BF16","shape":[0,3],"data_offsets":[1,1]},)"
                             R"("bytes":{"dtype":"I8","shape":[2,1],"data_offsets":[1,3]}})";
  const auto path = folder.Write("m.safetensors", FileBytes(header, std::string(10243, '\0')));
  EXPECT_EQ(InspectFile(path),
            path.string() +
                ": safetensors, 4 tensors (1 BF16, 1 BOOL, 1 F32, 1 I8), 2,563 elements, 10.0 KiB\n"
                "\n"
                "metadata\n"
                "  a\\tb    two\\nlines\n"
                "  format  pt\n"
                "\n"
                "name      type  shape         size\n"
                "s\\x1b[2J  BOOL  ()             1 B\n"
                "none      BF16  (0, 3)         0 B\n"
                "bytes     I8    (2, 1)         2 B\n"
                "wide      F32   (40, 64)  10.0 KiB\n");
}

TEST(Inspect, ShowsAllShardsOfAFolder) {
  const std::string text = InspectFile(kGolden / "sharded");
  EXPECT_THAT(text,
              HasSubstr("model-00001-of-00002.safetensors: safetensors, 2 tensors (2 F32), 8 elements, 32 B"));
  EXPECT_THAT(text, HasSubstr("b.weight  BF16  (2, 2)   8 B\n"));
  EXPECT_THAT(text, EndsWith("\nin all: 2 files, 3 tensors (1 BF16, 2 F32), 12 elements, 40 B\n"));
  EXPECT_EQ(text, InspectFile(kGolden / "sharded"));
}

TEST(Inspect, AFileWithoutTensorsHasNoTable) {
  EXPECT_THAT(InspectFile(kGolden / "nothing.safetensors"),
              EndsWith(": safetensors, 0 tensors, 0 elements, 0 B\n"));
}

TEST(Inspect, ShowsAGgufFile) {
  const TempFolder folder;
  const std::string many = [] {
    std::string tokens;
    for (int i = 0; i < 1234; ++i) tokens += Counted("t" + std::to_string(i));
    return tokens;
  }();
  const auto path = folder.Write(
      "m.gguf",
      GgufBytes({.tensors = 2,
                 .keys = 7,
                 .infos = Key("name", GgufKind::kString, Counted("two\nlines")) +
                          Key("epsilon", GgufKind::kF32, Raw(1e-5f)) + Key("yes", GgufKind::kBool, "\1") +
                          Key("most", GgufKind::kU64, Raw(UINT64_MAX)) +
                          Key("long.text", GgufKind::kString, Counted(std::string(5000, 'x'))) +
                          Key("some", GgufKind::kArray,
                              Array(GgufKind::kArray, 2,
                                    Array(GgufKind::kU8, 2, "\1\2") + Array(GgufKind::kI8, 0, ""))) +
                          Key("tokens", GgufKind::kArray, Array(GgufKind::kString, 1234, many)) +
                          TensorInfo("norm", {64}, kF32Number, 0) + TensorInfo("w", {64, 2}, kQ4_0Number, 256),
                 .data = std::string(256 + 72, 'x')}));
  EXPECT_EQ(InspectFile(path),
            path.string() +
                ": GGUF version 3, 2 tensors (1 F32, 1 Q4_0), 192 elements, 328 B, 13.67 bits an element\n"
                "\n"
                "metadata\n"
                "  name       two\\nlines\n"
                "  epsilon    1e-05\n"
                "  yes        true\n"
                "  most       18446744073709551615\n"
                "  long.text  " +
                std::string(100, 'x') +
                "…\n"
                "  some       [[1, 2], []]\n"
                "  tokens     [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15, … 1,234 "
                "in all]\n"
                "\n"
                "name  type  shape     size\n"
                "norm  F32   (64)     256 B\n"
                "w     Q4_0  (2, 64)   72 B\n");
  EXPECT_EQ(InspectFile(folder.path()), InspectFile(path));
}

TEST(Inspect, LongNamesAreCut) {
  const TempFolder folder;
  const std::string header =
      "{\"" + std::string(50'000, 'x') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  EXPECT_LT(InspectFile(folder.Write("m.safetensors", FileBytes(header))).size(), 1000u);
}

TEST(Inspect, RefusesOtherKindsByName) {
  const TempFolder folder;
  const auto error = [&](const char* name, const std::string& bytes) {
    return FileError([&] { InspectFile(folder.Write(name, bytes)); });
  };
  EXPECT_THAT(error("a", "PK\x03\x04...."),
              HasSubstr("expected a safetensors file or a GGUF file, got a zip archive"));
  EXPECT_THAT(error("c", "\x80\x04...."), HasSubstr("got a Python pickle"));
  EXPECT_THAT(error("d", "text"), HasSubstr("got a file of unknown kind"));
  EXPECT_THAT(error("e", ""), HasSubstr("got a file of unknown kind"));
  // What calls itself by a kind is told what is wrong with it.
  EXPECT_THAT(error("f.safetensors", "text"), HasSubstr("too short for a safetensors file"));
  EXPECT_THAT(error("g.safetensors", "GGUF...."), HasSubstr("got a GGUF file"));
  EXPECT_THAT(error("h.gguf", "text"), HasSubstr("wrong kind of file, expected a GGUF file"));
  EXPECT_THAT(error("i", "GGUF...."), HasSubstr("GGUF version is unsupported"));
  EXPECT_THAT(FileError([&] { InspectFile(folder.path() / "none"); }), HasSubstr("no such file"));
}

}  // namespace
}  // namespace qkv::test
