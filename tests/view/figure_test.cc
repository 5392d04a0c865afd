#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "qkv/error.h"
#include "qkv/view.h"
#include "sample.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

class FigureTest : public ::testing::Test {
 protected:
  FigureTest() { fs::create_directories(folder_); }
  ~FigureTest() override { fs::remove_all(folder_); }

  static std::string Read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string Drawn(const ModelCapture& capture, const ViewOptions& options, const std::string& name) const {
    WriteFigure(capture, options, folder_ / name);
    return Read(folder_ / name);
  }
  static ErrorCode CodeOf(const ModelCapture& capture, const fs::path& file) {
    try {
      WriteFigure(capture, {}, file);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file.filename().string()), std::string::npos) << error.what();
      return error.code();
    }
    ADD_FAILURE() << "written: " << file;
    return ErrorCode::kInternal;
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) /
      (std::string("qkv-figure-") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const ModelCapture chicken_ = test::ReadCapture(QKV_GOLDEN "/view", "chicken");
};

ViewOptions FocusOn(std::vector<int64_t> focus) {
  ViewOptions options;
  options.text = "The chicken didn't cross the road because it was too tired";
  options.focus = std::move(focus);
  return options;
}

struct Size {
  uint32_t width = 0, height = 0;
};

// From a PNG's IHDR chunk.
Size SizeOf(const std::string& png) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(png.at(i));
    return value;
  };
  return {number(16), number(20)};
}

ModelCapture Evenly(int64_t tokens) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < tokens; ++i) labels.push_back("w" + std::to_string(i));
  return test::MakeCapture(labels, std::vector<float>(tokens * tokens, 1.0f / static_cast<float>(tokens)));
}

TEST_F(FigureTest, WritesThreeFormats) {
  EXPECT_TRUE(Drawn(chicken_, FocusOn({10}), "a.png").starts_with("\x89PNG\r\n\x1a\n"));
  const std::string svg = Drawn(chicken_, FocusOn({10}), "a.svg");
  EXPECT_TRUE(svg.starts_with("<?xml"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  const std::string pdf = Drawn(chicken_, FocusOn({10}), "a.PDF");
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  EXPECT_TRUE(pdf.ends_with("%%EOF\n"));
}

TEST_F(FigureTest, GivesTheSameBytesForTheSameCapture) {
  const ModelCapture emoji =
      test::MakeCapture({"😀", "你好", "👩‍👩‍👧", "x"}, std::vector<float>(16, 0.25f));
  for (const ModelCapture* capture : {&chicken_, &emoji})
    for (const char* ending : {".png", ".svg", ".pdf"}) {
      const std::string first = Drawn(*capture, FocusOn({1}), std::string("a") + ending);
      EXPECT_EQ(first, Drawn(*capture, FocusOn({1}), std::string("b") + ending)) << ending;
    }
}

TEST_F(FigureTest, DrawsTheSameFromTheStrongestKeysWhenTheyAreAll) {
  EXPECT_EQ(Drawn(chicken_, FocusOn({10}), "a.svg"),
            Drawn(test::KeepTop(chicken_, 15), FocusOn({10}), "b.svg"));
}

TEST_F(FigureTest, ShowsAnotherFocusAndNone) {
  const std::string it = Drawn(chicken_, FocusOn({10}), "a.svg");
  EXPECT_NE(it, Drawn(chicken_, FocusOn({13}), "b.svg"));
  EXPECT_NE(it, Drawn(chicken_, FocusOn({}), "c.svg"));
}

TEST_F(FigureTest, StaysBoundedForLongTextsAndManyPlaces) {
  std::vector<int64_t> everywhere;
  for (int64_t i = 0; i < 512; ++i) everywhere.push_back(i);
  const Size one = SizeOf(Drawn(Evenly(512), FocusOn({100}), "a.png"));
  const Size many = SizeOf(Drawn(Evenly(512), FocusOn(everywhere), "b.png"));
  EXPECT_EQ(one.width, 2160u);
  EXPECT_LT(one.height, 4000u);
  EXPECT_LT(many.height, 16000u);
}

TEST_F(FigureTest, DrawsASingleTokenAndHostileText) {
  const auto one = test::MakeCapture({"x"}, {1.0f});
  EXPECT_FALSE(Drawn(one, FocusOn({0}), "a.png").empty());
  auto hostile =
      test::MakeCapture({"</script>", "\x1b[31m", "\xff\U0010FFFF", "<b>&amp;", std::string(5000, 'w')},
                        std::vector<float>(25, 0.2f));
  ViewOptions options = FocusOn({0});
  options.text = std::string("a\n\x1b<b>") + std::string(20000, 'x');
  const Size size = SizeOf(Drawn(hostile, options, "b.png"));
  EXPECT_LT(size.height, 4000u);
}

TEST_F(FigureTest, WarnsOfCharactersWithoutAFont) {
  auto capture = test::MakeCapture({"a", "\U000F1234"}, std::vector<float>(4, 0.5f));  // a private character
  EXPECT_NE(WriteFigure(capture, {}, folder_ / "a.png").find("a.png"), std::string::npos);
  EXPECT_EQ(WriteFigure(chicken_, {}, folder_ / "b.png"), "");
}

TEST_F(FigureTest, RefusesUnknownEndings) {
  for (const char* name : {"a.jpg", "a", "png"})
    EXPECT_EQ(CodeOf(chicken_, folder_ / name), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FigureTest, NamesAFileThatCannotBeWrittenAndLeavesNothing) {
  EXPECT_EQ(CodeOf(chicken_, folder_ / "missing" / "a.png"), ErrorCode::kIo);
  fs::create_directory(folder_ / "folder.png");
  EXPECT_EQ(CodeOf(chicken_, folder_ / "folder.png"), ErrorCode::kIo);
  fs::create_symlink("/dev/full", folder_ / "full.png");
  EXPECT_EQ(CodeOf(chicken_, folder_ / "full.png"), ErrorCode::kIo);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(FigureTest, KeepsTheModeAndTheLinkOfAFileThatIsThere) {
  std::ofstream(folder_ / "a.svg") << "old";
  fs::permissions(folder_ / "a.svg", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a.svg", folder_ / "link.svg");
  WriteFigure(chicken_, {}, folder_ / "link.svg");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.svg"));
  EXPECT_TRUE(Read(folder_ / "a.svg").starts_with("<?xml"));
  EXPECT_EQ(fs::status(folder_ / "a.svg").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace
}  // namespace qkv
