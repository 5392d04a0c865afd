// Files that lie. Each is refused with one line that says what is wrong, before memory is taken for its claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "formats/support.h"

namespace qkv::test {
namespace {

using std::string_literals::operator""s;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Hostile {
  const char* name;
  std::string bytes;
  const char* message;  // part of it
};

std::string Tensor(const std::string& fields, const std::string& data = {}) {
  return FileBytes("{\"t\":{" + fields + "}}", data);
}

std::string Offsets(const std::string& offsets) {
  return Tensor(R"("dtype":"U8","shape":[4],"data_offsets":)" + offsets, "1234");
}

std::string Sizes(const std::string& shape) {
  return Tensor(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + shape, "1234");
}

// Two U8 tensors with these offsets, over ten bytes.
std::string Two(const std::string& first, int first_size, const std::string& second, int second_size) {
  const auto field = [](const std::string& offsets, int size) {
    return R"({"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":)" + offsets + "}";
  };
  return FileBytes("{\"one\":" + field(first, first_size) + ",\"two\":" + field(second, second_size) + "}",
                   "0123456789");
}

std::string Length(const std::string& eight_bytes) { return eight_bytes + "{}"; }

std::vector<Hostile> BadHeaders() {
  return {
      {"empty file", "", "too short for a safetensors file, expected at least 8 bytes, got 0"},
      {"seven bytes", "\1\0\0\0\0\0\0"s, "too short for a safetensors file"},
      {"length 2^64-1", Length("\xff\xff\xff\xff\xff\xff\xff\xff"),
       "header too long, expected at most 100000000 bytes, got 18446744073709551615"},
      {"length 2^64-8", Length("\xf8\xff\xff\xff\xff\xff\xff\xff"), "header too long"},
      {"length 2^63", Length("\0\0\0\0\0\0\0\x80"s), "header too long"},
      {"length over the cap", Length("\x01\xe1\xf5\x05\0\0\0\0"s), "header too long"},
      {"length at the cap", Length("\x00\xe1\xf5\x05\0\0\0\0"s),
       "header longer than the file, expected at most 2 bytes, got 100000000"},
      {"length one too many", Length("\3\0\0\0\0\0\0\0"s), "header longer than the file"},
      {"length zero", "\0\0\0\0\0\0\0\0"s, "header does not begin with '{'"},
      {"length zero, data", Length("\0\0\0\0\0\0\0\0"s), "header does not begin with '{'"},
      {"length cuts the header", Length("\1\0\0\0\0\0\0\0"s), "not valid JSON"},
      {"an array", FileBytes("[]"), "header does not begin with '{'"},
      {"a space first", FileBytes(" {}"), "header does not begin with '{'"},
      {"not JSON", FileBytes("{nonsense}"), "header: not valid JSON"},
      {"text after the object", FileBytes("{} {}"), "not valid JSON"},
      {"NUL padding", FileBytes("{}\0\0"s), "not valid JSON (NUL at byte 2)"},
      {"not UTF-8", FileBytes("{\"\xff\":{}}"), "not valid JSON"},
      {"overlong UTF-8", FileBytes("{\"\xc0\xaf\":{}}"), "not valid JSON"},
      {"deep nesting", FileBytes("{\"a\":" + std::string(1'000'000, '[')), "JSON nested too deep"},
      {"duplicate name", FileBytes(R"({"t":{},"t":{}})"), "header: duplicate key 't'"},
      {"duplicate by escape", FileBytes(R"({"t":{},"\u0074":{}})"), "duplicate key 't'"},
      {"duplicate field", Tensor(R"("dtype":"U8","dtype":"F32")"), "duplicate key 'dtype'"},
      {"metadata is a number", FileBytes(R"({"__metadata__":1})"),
       "bad __metadata__, expected an object of strings"},
      {"metadata holds a number", FileBytes(R"({"__metadata__":{"a":1}})"), "bad __metadata__ 'a'"},
      {"data without tensors", FileBytes("{}", "x"),
       "bytes after the last tensor, expected 0 bytes of data, got 1"},
      {"GGUF", "GGUF\3\0\0\0\0\0\0\0", "expected a safetensors file, got a GGUF file"},
      {"PyTorch's zip", "PK\3\4\0\0\x08\x08\0\0\0\0"s, "got a zip archive (a PyTorch pickle"},
      {"pickle", "\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P"s, "got a Python pickle"},
  };
}

std::vector<Hostile> BadTensors() {
  const std::string whole = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  return {
      {"a number for a tensor", FileBytes(R"({"t":7})"), "tensor t has no fields, expected an object, got 7"},
      {"no fields", Tensor(""), "tensor t has no dtype"},
      {"no shape", Tensor(R"("dtype":"U8","data_offsets":[0,0])"), "tensor t has no shape"},
      {"no offsets", Tensor(R"("dtype":"U8","shape":[0])"), "tensor t has no data_offsets"},
      {"NUL in a name", FileBytes("{\"a\\u0000b\":{" + whole + "}}", "x"),
       "tensor a\\x00b has a NUL in its name"},
      {"unknown type", Tensor(R"("dtype":"Q4_0","shape":[1],"data_offsets":[0,1])", "x"),
       "tensor t has an unknown type, expected one of F64, F32,"},
      {"type in lower case", Tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])", "1234"), "got 'f32'"},
      {"type is a number", Tensor(R"("dtype":3,"shape":[1],"data_offsets":[0,1])", "x"), "unknown type"},
      {"empty type", Tensor(R"("dtype":"","shape":[1],"data_offsets":[0,1])", "x"), "got ''"},
      {"shape is a number", Sizes("1"), "tensor t has a bad shape, expected an array of sizes, got 1"},
      {"shape is null", Sizes("null"), "bad shape"},
      {"negative size", Sizes("[-1]"),
       "bad size in its shape, expected a whole number from 0 to 2^63 - 1, got -1"},
      {"fraction", Sizes("[1.0]"), "got 1.0"},
      {"exponent", Sizes("[1e0]"), "bad size"},
      {"text as size", Sizes(R"(["1"])"), "got '1'"},
      {"size 2^63", Sizes("[9223372036854775808]"), "bad size"},
      {"size 2^64", Sizes("[18446744073709551616]"), "bad size"},
      {"elements past 2^63", Sizes("[4294967296,4294967296]"), "too many elements"},
      {"elements that wrap to 1", Sizes("[9223372036854775807,9223372036854775807]"), "too many elements"},
      {"bytes that wrap to 0", Tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
       "wrong number of bytes for its shape"},
      {"65 axes",
       Sizes("[1" +
             [] {
               std::string s;
               for (int i = 0; i < 64; ++i) s += ",1";
               return s;
             }() +
             "]"),
       "too many axes, expected at most 64, got 65"},
      {"4 bytes for a million floats", Sizes("[1000,1000]"),
       "tensor t has the wrong number of bytes for its shape, expected 1000000 x 4 bytes for (1000, 1000) F32, "
       "got 4"},
      {"bytes for an empty tensor", Sizes("[0]"), "expected 0 x 4 bytes"},
      {"too few bytes for a scalar", Tensor(R"("dtype":"F64","shape":[],"data_offsets":[0,4])", "1234"),
       "expected 1 x 8 bytes for () F64, got 4"},
      {"no offset", Offsets("[]"), "bad data_offsets, expected two whole numbers"},
      {"one offset", Offsets("[4]"), "bad data_offsets, expected two whole numbers, begin and end, got [4]"},
      {"three offsets", Offsets("[0,4,4]"), "got [0,4,4]"},
      {"negative offset", Offsets("[-4,0]"), "got [-4,0]"},
      {"offsets in fractions", Offsets("[0.0,4.0]"), "bad data_offsets"},
      {"offsets as text", Offsets(R"(["0","4"])"), "bad data_offsets"},
      {"offsets as an object", Offsets(R"({"0":0,"1":4})"), "got an object"},
      {"reversed", Offsets("[4,0]"), "end before they begin, expected begin <= end, got [4,0]"},
      {"end past the data", Offsets("[0,5]"),
       "lies outside the file's data, expected an end of at most 4, got 5"},
      {"end at 2^64-1", Offsets("[18446744073709551611,18446744073709551615]"), "lies outside the file's data"},
      {"overlap", Two("[0,6]", 6, "[5,10]", 5), "tensor two overlaps tensor one, expected 6, got 5"},
      {"same bytes twice", Two("[0,10]", 10, "[0,10]", 10), "tensor two overlaps tensor one"},
      {"one within another", Two("[0,10]", 10, "[2,4]", 2), "tensor two overlaps tensor one"},
      {"empty within another", Two("[0,10]", 10, "[5,5]", 0), "tensor two overlaps tensor one"},
      {"hole", Two("[0,4]", 4, "[5,10]", 5), "unused bytes before tensor two, expected its data at 4, got 5"},
      {"hole at the start", Two("[1,4]", 3, "[4,10]", 6), "unused bytes before tensor one"},
      {"trailing bytes", Two("[0,4]", 4, "[4,9]", 5),
       "bytes after the last tensor, expected 9 bytes of data, got 10"},
      {"control characters in a name", FileBytes("{\"a\\n\\u001b[2J\":{}}"),
       "tensor a\\n\\x1b[2J has no dtype"},
  };
}

void ExpectRefused(const Hostile& row) {
  // A block of its own size, so that AddressSanitizer sees one byte too many.
  const std::vector<char> block(row.bytes.begin(), row.bytes.end());
  const std::string message =
      FileError([&] { ParseSafetensors(std::as_bytes(std::span(block)), "bad.safetensors"); });
  EXPECT_THAT(message, AllOf(StartsWith("bad.safetensors: "), HasSubstr(row.message), Not(HasSubstr("\n")),
                             Not(HasSubstr("\x1b"))))
      << row.name;
  EXPECT_LT(message.size(), 600u) << row.name;
}

TEST(Hostile, Headers) {
  for (const Hostile& row : BadHeaders()) ExpectRefused(row);
}

TEST(Hostile, Tensors) {
  for (const Hostile& row : BadTensors()) ExpectRefused(row);
}

TEST(Hostile, EveryTruncationOfARightFile) {
  const std::string right = Two("[0,4]", 4, "[4,10]", 6);
  EXPECT_EQ(ParseSafetensors(AsBytes(right), "x").entries.size(), 2u);
  for (size_t size = 0; size < right.size(); ++size) {
    const std::vector<char> block(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(FileError([&] { ParseSafetensors(std::as_bytes(std::span(block)), "x"); }), "no error") << size;
  }
}

TEST(Hostile, ManyValuesAreRefusedWhileReading) {
  std::string header = "{\"t\":[0";
  header.reserve(9'000'100);
  for (int i = 0; i < 4'500'000; ++i) header += ",0";
  EXPECT_THAT(FileError([&] { ParseSafetensors(AsBytes(FileBytes(header + "]}")), "x"); }),
              HasSubstr("too many values in JSON"));
}

TEST(Hostile, FilesOnDiskAreNamed) {
  const TempFolder folder;
  EXPECT_EQ(FileError([&] { Safetensors(folder.path() / "none.safetensors"); }),
            (folder.path() / "none.safetensors").string() + ": no such file");
  EXPECT_THAT(FileError([&] { Safetensors{folder.path()}; }), HasSubstr("is a folder, not a file"));
  const auto path = folder.Write("pytorch_model.bin", "PK\3\4\0\0\x08\x08\0\0\0\0"s);
  EXPECT_THAT(FileError([&] { Safetensors{path}; }), StartsWith(path.string() + ": wrong kind of file"));
}

}  // namespace
}  // namespace qkv::test
