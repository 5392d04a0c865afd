#include "formats/tensor_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/support.h"

namespace qkv::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file with one F32 scalar of this name.
std::string OneTensor(const std::string& name) {
  return FileBytes("{\"" + name + R"(":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "abcd");
}

std::string OpenError(const std::filesystem::path& path) {
  return FileError([&] { TensorFiles{path}; });
}

TEST(TensorFiles, FindsTensorsOverShards) {
  const TensorFiles model(kGolden / "sharded");
  ASSERT_EQ(model.files().size(), 2u);
  EXPECT_THAT(model.RequireFloats("a.weight", {2, 3}).values, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(model.RequireFloats("a.bias", {2}).values, ElementsAre(0.5f, -0.5f));
  EXPECT_THAT(model.RequireFloats("b.weight", {2, 2}).values, ElementsAre(0, 1, 2, 3));  // bfloat16 in the file
  EXPECT_NE(model.Find("b.weight"), nullptr);
  EXPECT_EQ(model.Find("c.weight"), nullptr);
}

TEST(TensorFiles, OpensAFileToo) {
  const TensorFiles file(kGolden / "types.safetensors");
  EXPECT_THAT(file.RequireFloats("f64", {2, 2}).values, ElementsAre(-1.5f, 0.5f, 2.0f, 96.0f));
}

TEST(TensorFiles, FloatsAreNotCopiedWhereTheFileWillDo) {
  const TensorFiles model(kGolden / "sharded");
  const Floats direct = model.RequireFloats("a.weight", {2, 3});
  EXPECT_EQ(static_cast<const void*>(direct.values.data()), model.Find("a.weight")->bytes.data());
  EXPECT_EQ(direct.converted.size(), 0);
  EXPECT_EQ(model.RequireFloats("b.weight", {2, 2}).converted.size(), 4);
}

TEST(TensorFiles, FloatsThatAreMisalignedOrEmpty) {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                       R"("none":{"dtype":"F32","shape":[0,3],"data_offsets":[5,5]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const TensorFiles file(folder.Write("m.safetensors", FileBytes(header, std::string("x\0\0\xc0\x3f", 5))));
  EXPECT_THAT(file.RequireFloats("f", {1}).values, ElementsAre(1.5f));
  EXPECT_TRUE(file.RequireFloats("none", {0, 3}).values.empty());
}

TEST(TensorFiles, RequiredTensorsThatAreNotRight) {
  const TensorFiles model(kGolden / "sharded");
  const auto error = [&](const char* name, const std::vector<int64_t>& shape) {
    return FileError([&] { model.RequireFloats(name, shape); });
  };
  EXPECT_THAT(error("c.weight", {2}), EndsWith("sharded: tensor c.weight missing"));
  EXPECT_THAT(error("a.weight", {3, 2}),
              EndsWith("model-00001-of-00002.safetensors: tensor a.weight has the wrong shape, "
                       "expected (3, 2), got (2, 3)"));
  EXPECT_THAT(error("a.weight", {6}), HasSubstr("expected (6), got (2, 3)"));
  const TensorFiles types(kGolden / "types.safetensors");
  EXPECT_THAT(FileError([&] {
                types.RequireFloats("bool", {2, 2});
              }),
              HasSubstr("types.safetensors: tensor bool has the wrong type"));
}

TEST(TensorFiles, FoldersWithoutParameters) {
  const TempFolder folder;
  EXPECT_THAT(OpenError(folder.path() / "none"), EndsWith("none: no such file"));
  EXPECT_THAT(
      OpenError(folder.path()),
      EndsWith("no parameters here, expected model.safetensors or model.safetensors.index.json, got neither"));
  folder.Write("pytorch_model.bin", "PK");
  EXPECT_THAT(OpenError(folder.path()), EndsWith("got pytorch_model.bin, a pickle, which is not read"));
}

TEST(TensorFiles, ASingleFileWinsOverAnIndex) {
  const TempFolder folder;
  folder.Write("model.safetensors", OneTensor("x"));
  folder.Write(kIndex, "not read");
  EXPECT_NE(TensorFiles(folder.path()).Find("x"), nullptr);
}

TEST(TensorFiles, IndexesThatLie) {
  const TempFolder folder;
  folder.Write("one.safetensors", OneTensor("x"));
  folder.Write("two.safetensors", OneTensor("y"));
  folder.Write("twin.safetensors", OneTensor("x"));
  const std::string nul = R"({"weight_map":{"x":"one.safetensors\u0000"}})";
  const struct {
    std::string index;
    const char* message;
  } rows[] = {
      {"[]", "no weight_map, expected a JSON object, got an array"},
      {"{", "not valid JSON"},
      {"{}", "no weight_map"},
      {R"({"weight_map":[]})", "no weight_map"},
      {R"({"weight_map":{"x":1}})", "tensor x has no shard, expected a file name"},
      {R"({"weight_map":{"x":"../one.safetensors"}})", "bad shard name, expected a plain file name"},
      {R"({"weight_map":{"x":"/etc/passwd"}})", "bad shard name"},
      {R"({"weight_map":{"x":"a\\b"}})", "bad shard name"},
      {R"({"weight_map":{"x":".."}})", "bad shard name"},
      {R"({"weight_map":{"x":"."}})", "bad shard name"},
      {R"({"weight_map":{"x":""}})", "bad shard name"},
      {nul, "got 'one.safetensors\\x00'"},
      {R"({"weight_map":{"x":"none.safetensors"}})", "a shard is missing, expected none.safetensors"},
      {R"({"weight_map":{"x":"two.safetensors"}})", "tensor x missing, expected it in two.safetensors"},
      {R"({"weight_map":{"x":"one.safetensors","y":"one.safetensors"}})",
       "tensor y missing, expected it in one.safetensors"},
      {R"({"weight_map":{"x":"two.safetensors","y":"one.safetensors"}})",
       "tensor x missing, expected it in two.safetensors"},
      {R"({"weight_map":{"x":"one.safetensors","x":"two.safetensors"}})", "duplicate key 'x'"},
      {R"({"weight_map":{"x":"one.safetensors","z":"twin.safetensors"}})", "tensor x is in two files"},
      {R"({"weight_map":{"x":"model.safetensors.index.json"}})", "header"},
  };
  for (const auto& row : rows) {
    folder.Write(kIndex, row.index);
    EXPECT_THAT(OpenError(folder.path()), AllOf(HasSubstr(folder.path().string()), HasSubstr(row.message)))
        << row.index;
  }
}

}  // namespace
}  // namespace qkv::test
