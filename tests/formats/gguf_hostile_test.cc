// GGUF files that lie. Each is refused with one line that says what is wrong, before memory is taken for its
// claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
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

std::string OneKey(const std::string& key) { return GgufBytes({.keys = 1, .infos = key}); }
std::string OneTensor(const std::string& info, const std::string& data = std::string(64, 'x')) {
  return GgufBytes({.tensors = 1, .infos = info, .data = data});
}
std::string Sizes(const std::vector<uint64_t>& sizes) {
  return OneTensor(TensorInfo("t", sizes, kF32Number, 0));
}
std::string Two(uint64_t first, uint64_t second) {
  return GgufBytes(
      {.tensors = 2,
       .infos = TensorInfo("one", {9}, kF32Number, first) + TensorInfo("two", {8}, kF32Number, second),
       .data = std::string(96, 'x')});
}
std::string Alignment(GgufKind kind, const std::string& value) {
  return OneKey(Key("general.alignment", kind, value));
}

std::vector<Hostile> BadHeaders() {
  return {
      {"empty file", "", "wrong kind of file, expected a GGUF file, got a file of unknown kind"},
      {"a text", "hello, world", "got a file of unknown kind"},
      {"safetensors", FileBytes("{}"), "expected a GGUF file, got a safetensors file"},
      {"PyTorch's zip", "PK\3\4\0\0\x08\x08\0\0\0\0"s, "got a zip archive (a PyTorch pickle"},
      {"the magic alone", "GGUF", "the header does not fit in the file, expected 4 bytes more, got 0"},
      {"version 1", GgufBytes({.version = 1}),
       "GGUF version is unsupported, expected 2 or 3, little-endian, got 1"},
      {"version 4", GgufBytes({.version = 4}), "got 4"},
      {"version 0", GgufBytes({.version = 0}), "got 0"},
      {"big-endian", GgufBytes({.version = 0x03000000}), "got 3, big-endian"},
      {"2^64 - 1 tensors", GgufBytes({.tensors = UINT64_MAX}),
       "the number of tensors is too large for the file, expected at most 0, got 18446744073709551615"},
      {"2^63 keys", GgufBytes({.keys = uint64_t{1} << 63}), "the number of keys is too large for the file"},
      {"a key that is not there", GgufBytes({.keys = 1}), "the number of keys is too large"},
      {"more keys than there are",
       GgufBytes({.keys = 2, .infos = Key("long.enough.for.two", GgufKind::kU64, Raw<uint64_t>(1))}),
       "key number 1 does not fit in the file, expected 8 bytes more, got 0"},
      {"a tensor that is not there", GgufBytes({.tensors = 1}), "the number of tensors is too large"},
  };
}

std::vector<Hostile> BadMetadata() {
  const std::string nested = [] {
    std::string bytes = Array(GgufKind::kU8, 0, "");
    for (int i = 0; i < 8; ++i) bytes = Array(GgufKind::kArray, 1, bytes);
    return bytes;
  }();
  const std::string pad(16, '\0');
  return {
      {"empty key", OneKey(Key("", GgufKind::kU64, pad)), "key number 0 has an empty name"},
      {"NUL in a key", OneKey(Key("a\0b"s, GgufKind::kU8, pad)), "has a NUL in its name, got a\\x00b"},
      {"key of 2^64 - 1 bytes", OneKey(Raw(UINT64_MAX) + pad),
       "key number 0 does not fit in the file, expected 18446744073709551615 bytes more, got 16"},
      {"key of 2^16 bytes", OneKey(Key(std::string(65536, 'k'), GgufKind::kU8, pad)),
       "key number 0 has too long a name, expected at most 65535 bytes, got 65536"},
      {"control characters in a key", OneKey(Key("k\n\x1b[2J", static_cast<GgufKind>(99), pad)),
       "key k\\n\\x1b[2J has an unknown kind of value, expected 0 to 12, got 99"},
      {"kind 2^32 - 1", OneKey(Key("k", static_cast<GgufKind>(UINT32_MAX), pad)), "got 4294967295"},
      {"a number cut off", OneKey(Key("a.longer.key", GgufKind::kU64, "123")),
       "key a.longer.key does not fit in the file, expected 8 bytes more, got 3"},
      {"a bool of 2", OneKey(Key("k", GgufKind::kBool, "\2")), "key k has a bad bool, expected 0 or 1, got 2"},
      {"a string of 1 GiB", OneKey(Key("k", GgufKind::kString, Raw(uint64_t{1} << 30) + "text")),
       "key k does not fit in the file, expected 1073741824 bytes more, got 4"},
      {"a string of 2^64 - 1", OneKey(Key("k", GgufKind::kString, Raw(UINT64_MAX))), "key k does not fit"},
      {"an array of 2^63 bytes",
       OneKey(Key("k", GgufKind::kArray, Array(GgufKind::kU8, uint64_t{1} << 63, "1"))),
       "key k has an array longer than the file, expected at most 1 elements, got 9223372036854775808"},
      {"an array that wraps",
       OneKey(Key("k", GgufKind::kArray, Array(GgufKind::kU64, uint64_t{1} << 61, "12345678"))),
       "key k has an array longer than the file, expected at most 1 elements"},
      {"an array of 2^62 strings",
       OneKey(Key("k", GgufKind::kArray,
                  Array(GgufKind::kString, uint64_t{1} << 62, Counted("a") + Counted("b")))),
       "has an array longer than the file, expected at most 2 elements"},
      {"an array of 2^40 arrays",
       OneKey(Key("k", GgufKind::kArray, Array(GgufKind::kArray, uint64_t{1} << 40, pad))),
       "has an array longer than the file, expected at most 1 elements"},
      {"an array of kind 13", OneKey(Key("k", GgufKind::kArray, Array(static_cast<GgufKind>(13), 0, ""))),
       "key k has an unknown kind of value"},
      {"a bool of 7 in an array", OneKey(Key("k", GgufKind::kArray, Array(GgufKind::kBool, 2, "\1\7"))),
       "key k has a bad bool, expected 0 or 1, got 7"},
      {"nine arrays within each other", OneKey(Key("k", GgufKind::kArray, nested)),
       "key k has arrays nested too deep, expected at most 8 levels"},
      {"the last string cut off",
       OneKey(Key("k", GgufKind::kArray, Array(GgufKind::kString, 2, Counted("ab") + Raw<uint64_t>(3) + "ab"))),
       "key k does not fit in the file, expected 3 bytes more, got 2"},
      {"duplicate key",
       GgufBytes({.keys = 2, .infos = Key("twice", GgufKind::kU8, "1") + Key("twice", GgufKind::kU8, "1")}),
       "key twice is there twice"},
      {"alignment 2^30", Alignment(GgufKind::kU32, Raw<uint32_t>(1 << 30)),
       "general.alignment is unsupported, expected a power of two from 8 to 1048576, got 1073741824"},
      {"alignment 0", Alignment(GgufKind::kU32, Raw<uint32_t>(0)), "general.alignment is unsupported"},
      {"alignment 48", Alignment(GgufKind::kU32, Raw<uint32_t>(48)), "got 48"},
      {"alignment -32", Alignment(GgufKind::kI32, Raw<int32_t>(-32)), "got -32"},
      {"alignment of text", Alignment(GgufKind::kString, Counted("32")), "got string"},
  };
}

std::vector<Hostile> BadTensors() {
  return {
      {"size 0", Sizes({0}), "tensor t has a bad size in its shape, expected 1 to 2^63 - 1, got 0"},
      {"size 0 further out", Sizes({2, 0}), "got 0"},
      {"size 2^63", Sizes({uint64_t{1} << 63}), "got 9223372036854775808"},
      {"size 2^42 + 1, squared", Sizes({(uint64_t{1} << 42) + 1, (uint64_t{1} << 42) + 1}),
       "tensor t has too many elements, expected fewer than 2^63, got (4398046511105, 4398046511105)"},
      {"elements that wrap to 0", Sizes({uint64_t{1} << 32, uint64_t{1} << 32}), "too many elements"},
      {"bytes that wrap", Sizes({uint64_t{1} << 62}), "tensor t has too many bytes, expected fewer than 2^64"},
      {"2^42 + 1 floats", Sizes({(uint64_t{1} << 42) + 1}),
       "tensor t lies outside the file's data, expected 17592186044420 bytes at offset 0, got 64 bytes of "
       "data"},
      {"9 axes", Sizes(std::vector<uint64_t>(9, 1)), "tensor t has too many axes, expected at most 4, got 9"},
      {"2^32 - 1 axes", OneTensor(Counted("t") + Raw(UINT32_MAX) + std::string(20, '\0')), "got 4294967295"},
      {"empty name", OneTensor(TensorInfo("", {1}, kF32Number, 0)), "tensor number 0 has an empty name"},
      {"NUL in a name", OneTensor(TensorInfo("a\0"s, {1}, kF32Number, 0)), "has a NUL in its name"},
      {"an unsupported type", OneTensor(TensorInfo("t", {256}, 23, 0)),
       "tensor t has an unsupported type, expected one of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, "
       "Q6_K, "
       "I8, I16, I32, I64, F64, BF16, got IQ4_XS"},
      {"a withdrawn type", OneTensor(TensorInfo("t", {32}, 4, 0)), "got Q4_2"},
      {"type 40", OneTensor(TensorInfo("t", {32}, 40, 0)), "has an unknown type"},
      {"type 2^32 - 1", OneTensor(TensorInfo("t", {32}, UINT32_MAX, 0)), "got type 4294967295"},
      {"a row of half a block", OneTensor(TensorInfo("t", {16, 2}, kQ4_0Number, 0)),
       "tensor t has rows that are no whole number of blocks, expected a multiple of 32, got (2, 16) Q4_0"},
      {"a quantised scalar", OneTensor(TensorInfo("t", {}, kQ4_KNumber, 0)),
       "expected a multiple of 256, got () Q4_K"},
      {"an odd offset", OneTensor(TensorInfo("t", {1}, kF32Number, 4)),
       "tensor t is misaligned, expected an offset that is a multiple of 32, got 4"},
      {"an offset past the data", OneTensor(TensorInfo("t", {1}, kF32Number, 96)),
       "lies outside the file's data"},
      {"an offset at 2^64 - 32", OneTensor(TensorInfo("t", {8}, kF32Number, UINT64_MAX - 31)),
       "lies outside the file's data, expected 32 bytes at offset 18446744073709551584"},
      {"a byte too few", OneTensor(TensorInfo("t", {16}, kF32Number, 0), std::string(63, 'x')),
       "expected 64 bytes at offset 0, got 63 bytes of data"},
      {"no data at all", OneTensor(TensorInfo("t", {1}, kF32Number, 0), ""), "got 0 bytes of data"},
      {"overlap", Two(0, 32), "tensor two overlaps tensor one, expected an offset of at least 36, got 32"},
      {"overlap, the other way", Two(32, 32), "tensor two overlaps tensor one"},
      {"duplicate name",
       GgufBytes({.tensors = 2,
                  .infos = TensorInfo("t", {8}, kF32Number, 0) + TensorInfo("t", {8}, kF32Number, 32),
                  .data = std::string(64, 'x')}),
       "tensor t is there twice"},
  };
}

void ExpectRefused(const Hostile& row) {
  // A block of its own size, so that AddressSanitizer sees one byte too many.
  const std::vector<char> block(row.bytes.begin(), row.bytes.end());
  const std::string message = FileError([&] { ParseGguf(std::as_bytes(std::span(block)), "bad.gguf"); });
  EXPECT_THAT(message, AllOf(StartsWith("bad.gguf: "), HasSubstr(row.message), Not(HasSubstr("\n")),
                             Not(HasSubstr("\x1b"))))
      << row.name;
  EXPECT_LT(message.size(), 600u) << row.name;
}

TEST(GgufHostile, Headers) {
  for (const Hostile& row : BadHeaders()) ExpectRefused(row);
}

TEST(GgufHostile, Metadata) {
  for (const Hostile& row : BadMetadata()) ExpectRefused(row);
}

TEST(GgufHostile, Tensors) {
  for (const Hostile& row : BadTensors()) ExpectRefused(row);
}

TEST(GgufHostile, EveryTruncationOfARightFile) {
  const std::string right = Two(0, 64);
  EXPECT_EQ(ParseGguf(AsBytes(right), "x").entries.size(), 2u);
  for (size_t size = 0; size < right.size(); ++size) {
    const std::vector<char> block(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(FileError([&] { ParseGguf(std::as_bytes(std::span(block)), "x"); }), "no error") << size;
  }
}

TEST(GgufHostile, FilesOnDiskAreNamed) {
  const TempFolder folder;
  EXPECT_EQ(FileError([&] { Gguf(folder.path() / "none.gguf"); }),
            (folder.path() / "none.gguf").string() + ": no such file");
  EXPECT_THAT(FileError([&] { Gguf{folder.path()}; }), HasSubstr("is a folder, not a file"));
  const auto path = folder.Write("bad.gguf", GgufBytes({.version = 1}));
  EXPECT_THAT(FileError([&] { Gguf{path}; }), StartsWith(path.string() + ": GGUF version is unsupported"));
}

}  // namespace
}  // namespace qkv::test
