// The third lesson's picture: the layer's matrices to one scale, as one head and as 96 heads, and MiniLM's beside.
// usage: example_real_size_picture en|zh FILE
#include <string>

#include "picture.h"

using qkv::view::Align;
using qkv::view::Pen;
using qkv::view::Rgb;

namespace {

constexpr double kWidth = 12288, kTokens = 50, kHeads = 96, kMiniLm = 384;
constexpr double kMargin = 40, kTop = 92, kSide = 196, kGap = 56, kScale = kSide / kWidth;
constexpr Rgb kInk = {27, 31, 39}, kQuiet = {96, 104, 118}, kPaper = {255, 255, 255};
constexpr Rgb kMatrix = qkv::view::kPaperRamp[2], kMark = qkv::view::kPaperMark;

struct Words {
  std::string title, tokens, one, many, head, small, scale;
};

const Words kEnglish = {"One attention layer of GPT-3, drawn to scale",
                        "X: 50 tokens of 12,288 numbers",
                        "one head: four matrices of 12,288 × 12,288",
                        "96 heads: the same numbers, cut into strips of 128",
                        "one head’s strip",
                        "one of MiniLM’s matrices: 384 × 384",
                        "Every matrix holds 150,994,944 numbers; the four together 603,979,776, either way."};
const Words kChinese = {"GPT-3 的一个注意力层，按比例画出",
                        "X：50 个词元，每个 12,288 个数",
                        "一个头：四个 12,288 × 12,288 的矩阵",
                        "96 个头：同样的数，切成宽 128 的长条",
                        "一个头的那一条",
                        "MiniLM 的一个矩阵：384 × 384",
                        "每个矩阵有 150,994,944 个数；四个共 603,979,776 个，怎么切都一样。"};

double Left(int matrix) { return kMargin + matrix * (kSide + kGap); }

void Heading(Pen& pen, const std::string& text, double y) {
  pen.Text(text, kMargin, y, {.size = 14, .color = kInk, .weight = qkv::view::Weight::kBold});
}

void DrawMatrix(Pen& pen, int matrix, double y) {
  static const char* const kIndexes[] = {"Q", "K", "V", "O"};
  pen.Fill(Left(matrix), y, kSide, kSide, kMatrix);
  const qkv::view::Extent name = pen.Text("W", Left(matrix) + kSide / 2 - 9, y + kSide + 8, {.size = 14, .color = kInk});
  pen.Text(kIndexes[matrix], Left(matrix) + kSide / 2 - 9 + name.width, y + kSide + 15, {.size = 10, .color = kInk});
}

// W_Q, W_K and W_V are cut into columns, W_O into rows; the first head's part is marked.
void DrawStrips(Pen& pen, int matrix, double y) {
  const double strip = kSide / kHeads;
  const bool rows = matrix == 3;
  for (int cut = 1; cut < static_cast<int>(kHeads); ++cut) {
    const double at = strip * cut;
    if (rows) {
      pen.Line(Left(matrix), y + at, Left(matrix) + kSide, y + at, {kPaper, 0.5, 0.8});
    } else {
      pen.Line(Left(matrix) + at, y, Left(matrix) + at, y + kSide, {kPaper, 0.5, 0.8});
    }
  }
  pen.Fill(Left(matrix), y, rows ? kSide : strip, rows ? strip : kSide, kMark);
}

double Draw(Pen& pen, const Words& words) {
  pen.Text(words.title, kMargin, 24, {.size = 18, .color = kInk, .weight = qkv::view::Weight::kBold});
  double y = kTop;
  pen.Fill(kMargin, y, kSide, kTokens * kScale, kMark);
  pen.Text(words.tokens, kMargin + kSide + 16, y - 8, {.size = 13, .color = kInk});
  pen.Fill(Left(3), y - 3, kMiniLm * kScale, kMiniLm * kScale, kMatrix);
  pen.Text(words.small, Left(3) - 12, y - 8, {.size = 13, .color = kInk, .align = Align::kRight});
  y += 38;
  Heading(pen, words.one, y);
  y += 30;
  for (int matrix = 0; matrix < 4; ++matrix) DrawMatrix(pen, matrix, y);
  y += kSide + 58;
  Heading(pen, words.many, y);
  pen.Fill(kMargin + 480, y + 5, 22, 8, kMark);
  pen.Text(words.head, kMargin + 510, y + 1, {.size = 13, .color = kInk});
  y += 30;
  for (int matrix = 0; matrix < 4; ++matrix) DrawMatrix(pen, matrix, y), DrawStrips(pen, matrix, y);
  y += kSide + 46;
  pen.Text(words.scale, kMargin, y, {.size = 13, .color = kQuiet});
  return y + 40;
}

}  // namespace

int main(int argc, char** argv) { return lesson::WritePicture(argc, argv, kEnglish, kChinese, Draw); }
