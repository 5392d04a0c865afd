#include "runtime/write_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "qkv/error.h"

namespace qkv::test {
namespace {

namespace fs = std::filesystem;

class WriteFile : public testing::Test {
 protected:
  fs::path folder_ = fs::path(testing::TempDir()) / "write_file_test";
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Content(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int64_t Files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }
};

TEST_F(WriteFile, TheOldFileStaysUntilCommit) {
  const fs::path file = folder_ / "a";
  WriteWholeFile(file, "old");
  {
    FileWriter writer(file);
    writer.Write("new");
    EXPECT_EQ(Content(file), "old");
  }
  EXPECT_EQ(Content(file), "old");
  EXPECT_EQ(Files(), 1);
  FileWriter writer(file);
  writer.Write("ne");
  writer.Write("w");
  writer.Commit();
  EXPECT_EQ(Content(file), "new");
  EXPECT_EQ(Files(), 1);
}

TEST_F(WriteFile, FollowsLinksAndKeepsTheMode) {
  const fs::path file = folder_ / "a", link = folder_ / "link";
  WriteWholeFile(file, "old");
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  fs::create_symlink("a", link);
  WriteWholeFile(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(Content(file), "new");
  EXPECT_EQ(static_cast<int>(fs::status(file).permissions()), 0640);
}

TEST_F(WriteFile, AFullDiskIsAnErrorThatNamesTheFile) {
  try {
    WriteWholeFile("/dev/full", "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.where(), "/dev/full");
  }
}

TEST_F(WriteFile, FoldersAndMissingFoldersAreErrors) {
  EXPECT_THROW(WriteWholeFile(folder_, "text"), Error);
  EXPECT_THROW(WriteWholeFile(folder_ / "none" / "a", "text"), Error);
  EXPECT_EQ(Files(), 0);
}

}  // namespace
}  // namespace qkv::test
