#include "formats/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
                "  a\\tb: two\\nlines\n"
                "  format: pt\n"
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
  EXPECT_THAT(error("a", "GGUF...."), EndsWith("expected a safetensors file, got a GGUF file"));
  EXPECT_THAT(error("b", "PK\x03\x04...."), HasSubstr("got a zip archive"));
  EXPECT_THAT(error("c", "\x80\x04...."), HasSubstr("got a Python pickle"));
  EXPECT_THAT(error("d", "text"), HasSubstr("got a file of unknown kind"));
  EXPECT_THAT(error("e", ""), HasSubstr("got a file of unknown kind"));
  // What calls itself safetensors is told what is wrong with it.
  EXPECT_THAT(error("f.safetensors", "text"), HasSubstr("too short for a safetensors file"));
  EXPECT_THAT(error("g.safetensors", "GGUF...."), HasSubstr("got a GGUF file"));
  EXPECT_THAT(FileError([&] { InspectFile(folder.path() / "none"); }), HasSubstr("no such file"));
}

}  // namespace
}  // namespace qkv::test
