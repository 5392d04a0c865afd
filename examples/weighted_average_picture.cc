// The first lesson's picture: the weights of the same six people from raw and from standardised attributes.
// usage: example_weighted_average_picture en|zh FILE
#include <fmt/format.h>

#include <string>

#include "picture.h"
#include "weighted_average.h"

using qkv::view::Align;
using qkv::view::Pen;
using qkv::view::Rgb;

namespace {

constexpr double kTop = 112, kRow = 44, kBar = 26, kNames = 40, kRaw = 330, kStandardised = 730, kFull = 250;
constexpr Rgb kInk = {27, 31, 39}, kQuiet = {96, 104, 118}, kTrack = {238, 241, 245};
constexpr Rgb kRawBar = qkv::view::kPaperMark, kStandardisedBar = qkv::view::kPaperRamp[3];

struct Words {
  std::string title, people, raw, standardised, newcomer;
};

const Words kEnglish = {"Who is like the newcomer? The weights of six people", "strength, intelligence",
                        "raw numbers: the biggest wins", "standardised: the similar ones share", "newcomer"};
const Words kChinese = {"新来的人像谁？六个人的权重", "力量、智力", "原始数值：数字最大的人独占",
                        "标准化之后：相近的人分享权重", "新来的人"};

struct Column {
  double left;
  Rgb color;
  std::string title;
  lesson::Vectors weights;
};

void DrawColumn(Pen& pen, const Column& column) {
  pen.Text(column.title, column.left, kTop - 36,
           {.size = 14, .color = column.color, .weight = qkv::view::Weight::kBold});
  for (int64_t i = 0; i < lesson::kNumPeople; ++i) {
    const double y = kTop + kRow * static_cast<double>(i), weight = column.weights.numbers[i];
    pen.Fill(column.left, y, kFull, kBar, kTrack);
    pen.Fill(column.left, y, kFull * weight, kBar, column.color);
    pen.Text(fmt::format("{:.3f}", weight), column.left + kFull + 12, y + 4, {.size = 14, .color = kInk});
  }
}

void DrawName(Pen& pen, const char* name, const std::array<float, 2>& attributes, double y) {
  pen.Text(name, kNames, y + 4, {.size = 15, .color = kInk, .weight = qkv::view::Weight::kBold});
  pen.Text(fmt::format("{:.0f}, {:.0f}", attributes[0], attributes[1]), kRaw - 40, y + 5,
           {.size = 14, .color = kQuiet, .align = Align::kRight});
}

double Draw(Pen& pen, const Words& words) {
  using lesson::FirstAttributes, lesson::Standardised, lesson::Weights;
  const lesson::Group raw = FirstAttributes(2), fair = Standardised(raw);
  pen.Text(words.title, kNames, 26, {.size = 18, .color = kInk, .weight = qkv::view::Weight::kBold});
  pen.Text(words.people, kRaw - 40, kTop - 35, {.size = 13, .color = kQuiet, .align = Align::kRight});
  double y = kTop;
  for (const lesson::Person& person : lesson::kPeople) {
    DrawName(pen, person.name, person.attributes, y);
    y += kRow;
  }
  pen.Line(kNames, y - 2, kRaw - 40, y - 2, {kQuiet, 1, 0.4});
  DrawName(pen, words.newcomer.c_str(), lesson::kNewcomer, y + 10);
  DrawColumn(pen, {kRaw, kRawBar, words.raw, Weights(raw.newcomers, raw.people, std::nullopt)});
  DrawColumn(pen, {kStandardised, kStandardisedBar, words.standardised,
                   Weights(fair.newcomers, fair.people, std::nullopt)});
  return y + 66;
}

}  // namespace

int main(int argc, char** argv) { return lesson::WritePicture(argc, argv, kEnglish, kChinese, Draw); }
