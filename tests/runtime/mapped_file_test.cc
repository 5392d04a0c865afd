#include "runtime/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = (fs::temp_directory_path() / "qkv-mapped-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~MappedFileTest() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  void ExpectFailure(const fs::path& path, const std::string& reason) const {
    try {
      const MappedFile file(path);
      ADD_FAILURE() << path << " was mapped";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFile);
      EXPECT_EQ(error.where(), path.string());
      EXPECT_EQ(error.reason(), reason);
    }
  }

  fs::path folder_;
};

std::string TextOf(const MappedFile& file) {
  return std::string(file.text());
}

TEST_F(MappedFileTest, ShowsTheBytes) {
  const std::string text("a\0b\n", 4);
  EXPECT_EQ(TextOf(MappedFile(Write("file", text))), text);
}

TEST_F(MappedFileTest, OutlivesTheName) {
  const fs::path path = Write("file", "still here");
  const MappedFile file(path);
  fs::remove(path);
  EXPECT_EQ(TextOf(file), "still here");
}

TEST_F(MappedFileTest, EmptyFileIsAnEmptySpan) { EXPECT_TRUE(MappedFile(Write("file", "")).bytes().empty()); }

TEST_F(MappedFileTest, MovesWithoutCopying) {
  MappedFile first(Write("first", "first")), second(Write("second", "second"));
  const std::byte* memory = first.bytes().data();
  MappedFile third = std::move(first);
  EXPECT_EQ(third.bytes().data(), memory);
  second = std::move(third);
  EXPECT_EQ(TextOf(second), "first");
}

TEST_F(MappedFileTest, WhatCannotBeMappedIsNamed) {
  ExpectFailure(folder_ / "absent", "no such file");
  ExpectFailure(folder_, "is a folder, not a file");
  ExpectFailure(Write("file", "x") / "below", "Not a directory");
  ExpectFailure("", "no such file");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectFailure(pipe, "is not a regular file");
}

TEST_F(MappedFileTest, UnreadableFileIsNamed) {
  const fs::path path = Write("file", "secret");
  fs::permissions(path, fs::perms::none);
  fs::permissions(folder_, fs::perms::all);
  if (geteuid() != 0) return ExpectFailure(path, "Permission denied");
  // Nothing is unreadable to root, so look as somebody else for a moment.
  ASSERT_EQ(seteuid(65534), 0);
  ExpectFailure(path, "Permission denied");
  ASSERT_EQ(seteuid(0), 0);
}

}  // namespace
}  // namespace qkv
