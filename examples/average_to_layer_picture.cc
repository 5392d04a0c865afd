// The second lesson's picture: what every head of a layer gives to `it`, in two sentences.
// usage: example_average_to_layer_picture en|zh FILE
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "average_to_layer.h"
#include "picture.h"

using qkv::view::Align;
using qkv::view::Pen;
using qkv::view::Rgb;

namespace {

constexpr double kMargin = 40, kTop = 126, kCell = 33, kNames = 84, kPanel = 510;
constexpr Rgb kInk = {27, 31, 39}, kQuiet = {96, 104, 118}, kEdge = {222, 227, 234};

struct Words {
  std::string title, tired, wide, heads, note;
};

const Words kEnglish = {"What “it” looks at: the twelve heads of one layer", "… because it was too tired",
                        "… because it was too wide", "head",
                        "MiniLM, layer 5. Each column is one head’s weights: they add up to 1."};
const Words kChinese = {"it 在看什么：同一层的十二个头", "… because it was too tired（累）",
                        "… because it was too wide（宽）", "头",
                        "MiniLM 第 5 层。每一列是一个头的权重，加起来等于 1。"};

// As it is labelled, so that no last bit of a sum shows.
float Rounded(float weight) { return std::round(weight * 100) / 100; }

void DrawCell(Pen& pen, double x, double y, float weight) {
  const Rgb color = qkv::view::ColorAt(qkv::view::kPaperRamp, qkv::view::Shade(weight));
  pen.Fill(x, y, kCell, kCell, color);
  pen.Frame(x, y, kCell, kCell, {kEdge, 1});
  if (weight < 0.1f) return;
  const Rgb ink = qkv::view::IsDark(color) ? Rgb{255, 255, 255} : kInk;
  pen.Text(fmt::format("{:.2f}", weight).substr(1), x + kCell / 2, y + 9,
           {.size = 11, .color = ink, .align = Align::kCenter});
}

void DrawPanel(Pen& pen, double left, const std::string& title, const std::string& heads,
               const std::string& text) {
  const qkv::Explanation e = lesson::Explain(lesson::Open(text), qkv::ExplainLevel::kMultiHead, "it");
  const double cells = left + kNames;
  pen.Text(title, cells, kTop - 54, {.size = 14, .color = kInk, .weight = qkv::view::Weight::kBold});
  pen.Text(heads, cells - 12, kTop - 22, {.size = 12, .color = kQuiet, .align = Align::kRight});
  for (int64_t head = 0; head < e.heads; ++head) {
    const double x = cells + kCell * static_cast<double>(head);
    pen.Text(fmt::format("{}", head), x + kCell / 2, kTop - 22,
             {.size = 12, .color = kQuiet, .align = Align::kCenter});
    const float* row = lesson::Row(e, qkv::StepKind::kSoftmax, "A", head);
    for (size_t j = 0; j < e.tokens.size(); ++j)
      DrawCell(pen, x, kTop + kCell * static_cast<double>(j), Rounded(row[j]));
  }
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    const bool own = static_cast<int64_t>(j) == e.token;
    pen.Text(e.tokens[j], cells - 12, kTop + kCell * static_cast<double>(j) + 7,
             {.size = 13,
              .color = own ? qkv::view::kPaperMark : kInk,
              .align = Align::kRight,
              .weight = own ? qkv::view::Weight::kBold : qkv::view::Weight::kNormal});
  }
}

double Draw(Pen& pen, const Words& words) {
  pen.Text(words.title, kMargin, 24, {.size = 18, .color = kInk, .weight = qkv::view::Weight::kBold});
  DrawPanel(pen, kMargin, words.tired, words.heads, lesson::Chicken("tired"));
  DrawPanel(pen, kMargin + kPanel, words.wide, words.heads, lesson::Chicken("wide"));
  const double end = kTop + 15 * kCell;
  pen.Text(words.note, kMargin + kNames, end + 14, {.size = 12, .color = kQuiet});
  return end + 48;
}

}  // namespace

int main(int argc, char** argv) { return lesson::WritePicture(argc, argv, kEnglish, kChinese, Draw); }
