#include "view/figure_draw.h"
#include "view/paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

namespace qkv::view {
namespace {

constexpr double kMargin = 32, kGutter = 40;
constexpr double kColumn = (kPaperWidth - 2 * kMargin - kGutter) / 2;
constexpr double kRight = kMargin + kColumn + kGutter;  // where the right column begins
constexpr double kLabel = 112;                          // room for a token's label
constexpr double kAxis = 60;                            // room for "layer" and a number of three digits
constexpr double kPitch = 25;                           // from one token to the next beside the lines
constexpr float kLeastNumber = 0.015f;                  // smaller weights get no number
constexpr float kLeastLine = 0.002f;                    // and much smaller ones no line
constexpr size_t kListed = 10;
constexpr Rgb kInk = {27, 31, 39}, kQuiet = {89, 97, 111}, kFaint = {213, 218, 226}, kWhite = {255, 255, 255};

Rgb PaperOf(float weight) { return ColorAt(kPaperRamp, Shade(weight)); }
Rgb InkOn(Rgb paper) { return IsDark(paper) ? kWhite : kInk; }

class SectionDrawing {
 public:
  SectionDrawing(Pen& pen, const Rows& rows, const Scene& scene, const Section& section)
      : pen_(pen), rows_(rows), scene_(scene), section_(section) {}

  double Draw(double top) {
    pen_.Text(section_.heading, kMargin, top,
              {.size = 17, .weight = Weight::kBold, .max_width = kPaperWidth - 2 * kMargin});
    top += 26;
    if (!section_.notice.empty()) {
      pen_.Text(section_.notice, kMargin, top,
                {.size = 12, .color = kPaperMark, .max_width = kPaperWidth - 2 * kMargin});
      top += 20;
    }
    top += 8;
    const double left = DrawList(DrawLines(top)), right = DrawMap(DrawOverview(top));
    return std::max(left, right);
  }

 private:
  bool IsSpecial(int64_t token) const { return rows_.capture().special[token]; }

  TextStyle LabelStyle(int64_t token, double size) const {
    TextStyle style{.size = size, .max_width = kLabel - 8};
    if (IsSpecial(token)) style.color = kQuiet, style.slant = Slant::kItalic;
    if (token == section_.token) style.color = kPaperMark, style.weight = Weight::kBold;
    return style;
  }

  void Caption(const std::string& text, double x, double y) {
    pen_.Text(text, x, y, {.size = 13, .weight = Weight::kBold, .max_width = kColumn});
  }

  // A dashed rule where tokens are left out between two that are shown.
  void DrawGaps(double x0, double x1, double top, double pitch) {
    for (size_t i = 1; i < section_.shown.size(); ++i) {
      if (section_.shown[i] == section_.shown[i - 1] + 1) continue;
      const double y = top + static_cast<double>(i) * pitch;
      for (double x = x0; x < x1; x += 8) pen_.Line(x, y, std::min(x + 4, x1), y, {kQuiet, 1, 0.7});
    }
  }

  // Queries on the left, keys on the right; the focus's lines in colour over the others' in grey.
  double DrawLines(double top) {
    Caption("Who attends to whom", kMargin, top);
    top += 26;
    const double x0 = kMargin + kLabel, x1 = kMargin + kColumn - kLabel - 46;
    const auto middle = [&](size_t i) { return top + (static_cast<double>(i) + 0.5) * kPitch; };
    for (size_t i = 0; i < section_.shown.size(); ++i)
      if (section_.shown[i] != section_.token) DrawOtherLines(i, x0, x1, middle);
    for (size_t i = 0; i < section_.shown.size(); ++i)
      if (section_.shown[i] == section_.token) DrawFocusLines(i, x0, x1, middle);
    for (size_t i = 0; i < section_.shown.size(); ++i) DrawTokenPair(section_.shown[i], x0, x1, middle(i));
    DrawGaps(kMargin, kMargin + kLabel - 8, top, kPitch);
    DrawGaps(x1 + 8, kMargin + kColumn, top, kPitch);
    return middle(section_.shown.size()) + 12;
  }

  template <class Middle>
  void DrawOtherLines(size_t query, double x0, double x1, const Middle& middle) {
    const int64_t slot = rows_.QuerySlot(section_.shown[query]);
    if (slot < 0) return;
    const std::vector<float> row = rows_.Read({section_.place.layer, section_.place.head, slot});
    for (size_t key = 0; key < section_.shown.size(); ++key)
      if (const float weight = row[section_.shown[key]]; weight >= 0.05f)
        pen_.Ribbon(x0, middle(query), x1, middle(key), {kQuiet, 1 + weight, 0.3 * weight});
  }

  // The heaviest last, over the others.
  template <class Middle>
  void DrawFocusLines(size_t query, double x0, double x1, const Middle& middle) {
    std::vector<size_t> keys(section_.shown.size());
    std::iota(keys.begin(), keys.end(), 0);
    const auto weight = [&](size_t key) { return section_.row[section_.shown[key]]; };
    std::stable_sort(keys.begin(), keys.end(), [&](size_t a, size_t b) { return weight(a) < weight(b); });
    for (const size_t key : keys)
      if (weight(key) > kLeastLine)
        pen_.Ribbon(x0, middle(query), x1, middle(key),
                    {PaperOf(std::max(weight(key), 0.04f)), 1 + 7.0 * weight(key), 1});
  }

  void DrawTokenPair(int64_t token, double x0, double x1, double y) {
    const std::string& label = scene_.texts[token].label;
    TextStyle style = LabelStyle(token, 14);
    style.align = Align::kRight;
    if (token == section_.token) pen_.Frame(x0 - kLabel + 2, y - 11, kLabel - 4, 22, {kPaperMark, 1.5});
    pen_.Text(label, x0 - 6, y - 8.5, style);
    const float weight = section_.row[token];
    const Rgb paper = PaperOf(weight);
    pen_.Fill(x1 + 2, y - 11, kLabel - 4, 22, paper);
    style.align = Align::kLeft;
    if (weight >= 0.1f) style.color = InkOn(paper);
    pen_.Text(label, x1 + 8, y - 8.5, style);
    if (weight < kLeastNumber) return;
    pen_.Text(
        fmt::format("{:.2f}", weight), kMargin + kColumn, y - 8.5,
        {.size = 14, .align = Align::kRight, .weight = weight >= 0.25f ? Weight::kBold : Weight::kNormal});
  }

  // Every head as one square, as dark as what it gives from the focus to its strongest word.
  double DrawOverview(double top) {
    Caption(fmt::format("Each head\u2019s strongest word for {}", scene_.texts[section_.token].name), kRight,
            top);
    top += 44;
    const auto layers = static_cast<double>(rows_.layers()), heads = static_cast<double>(rows_.heads());
    const double left = kRight + kAxis;
    const double size = std::clamp((kColumn - kAxis) / std::max(heads, layers * 0.6), 3.0, 34.0);
    DrawAxis(rows_.capture().head_ids, size, [&](const std::string& text, double at, TextStyle style) {
      style.align = Align::kCenter;
      pen_.Text(text, left + at, top - 17, style);
    });
    pen_.Text("head", left - 8, top - 17, {.size = 11, .color = kQuiet, .align = Align::kRight});
    DrawAxis(rows_.capture().layer_ids, size, [&](const std::string& text, double at, TextStyle style) {
      style.align = Align::kRight;
      pen_.Text(text, left - 8, top + at - 7, style);
    });
    pen_.Text("layer", kRight, top + size / 2 - 7, {.size = 11, .color = kQuiet});
    for (const Peak& peak : section_.peaks) DrawOverviewCell(peak, left, top, size);
    pen_.Frame(left + static_cast<double>(section_.place.head) * size - 1,
               top + static_cast<double>(section_.place.layer) * size - 1, size + 1, size + 1,
               {kPaperMark, 2.5});
    return DrawLegend(left, top + layers * size + 14);
  }

  // As many numbers as have room.
  template <class Put>
  void DrawAxis(const std::vector<int64_t>& ids, double size, const Put& put) {
    const auto every = static_cast<size_t>(std::max(1.0, std::ceil(14 / size)));
    for (size_t i = 0; i < ids.size(); i += every)
      put(std::to_string(ids[i]), (static_cast<double>(i) + 0.5) * size, {.size = 11, .color = kQuiet});
  }

  void DrawOverviewCell(const Peak& peak, double left, double top, double size) {
    const double x = left + static_cast<double>(peak.place.head) * size;
    const double y = top + static_cast<double>(peak.place.layer) * size;
    const Rgb paper = PaperOf(peak.weight);
    pen_.Fill(x, y, size - 1, size - 1, paper);
    pen_.Frame(x, y, size - 1, size - 1, {kFaint, 0.5});
    // A positional head is crossed out: it would give as much to any word.
    if (IsPositional(peak)) pen_.Line(x + 2, y + size - 3, x + size - 3, y + 2, {InkOn(paper), 1});
  }

  double DrawLegend(double x, double y) {
    const std::array<float, 6> steps = {0, 0.05f, 0.1f, 0.25f, 0.5f, 1};
    for (const float step : steps) {
      const Rgb paper = PaperOf(step);
      pen_.Fill(x, y, 34, 18, paper);
      pen_.Frame(x, y, 34, 18, {kFaint, 0.5});
      pen_.Text(fmt::format("{}", step), x + 17, y + 2,
                {.size = 11, .color = InkOn(paper), .align = Align::kCenter});
      x += 34;
    }
    const bool crossed = std::any_of(section_.peaks.begin(), section_.peaks.end(), IsPositional);
    pen_.Text(crossed ? "weight;  \u2571 fixed distance" : "weight", x + 8, y + 2,
              {.size = 11, .color = kQuiet});
    return y + 40;
  }

  double DrawList(double top) {
    Caption("Strongest heads", kMargin, top);
    top += 24;
    size_t listed = 0;
    for (const Peak& peak : section_.peaks) {
      if (peak.key < 0 || IsPositional(peak) || listed == kListed) break;
      ++listed;
      const Rgb paper = PaperOf(peak.weight);
      pen_.Text(HeadName(rows_.capture(), peak.place) + ":", kMargin + 124, top,
                {.size = 13, .color = kQuiet, .align = Align::kRight});
      const std::string text = fmt::format("{} {:.2f}", scene_.texts[peak.key].name, peak.weight);
      const TextStyle style{.size = 13, .color = InkOn(paper), .max_width = kColumn - 144};
      pen_.Fill(kMargin + 132, top - 1, pen_.Measure(text, style).width + 12, 19, paper);
      pen_.Text(text, kMargin + 138, top, style);
      top += 22;
    }
    return top + 8;
  }

  // Queries x keys of the drawn head.
  double DrawMap(double top) {
    std::vector<int64_t> queries;
    for (const int64_t token : section_.shown)
      if (rows_.QuerySlot(token) >= 0) queries.push_back(token);
    Caption("Heat map: rows attend to columns", kRight, top);
    const auto count = static_cast<double>(section_.shown.size());
    const double size = std::clamp((kColumn - kLabel - 40) / count, 6.0, 23.0),
                 font = std::min(13.0, size * 0.85);
    const double left = kRight + kLabel, first = top + 104;
    DrawColumnLabels(left, first - 5, size, font);
    for (size_t i = 0; i < queries.size(); ++i) {
      const double y = first + static_cast<double>(i) * size;
      TextStyle style = LabelStyle(queries[i], font);
      style.align = Align::kRight;
      pen_.Text(scene_.texts[queries[i]].label, left - 6, y + (size - font * 1.18) / 2, style);
      DrawMapRow(queries[i], left, y, size);
    }
    const double high = static_cast<double>(queries.size()) * size;
    pen_.Frame(left, first, count * size, high, {kFaint, 1});
    const auto focus = std::find(queries.begin(), queries.end(), section_.token) - queries.begin();
    pen_.Frame(left - 1, first + static_cast<double>(focus) * size - 1, count * size + 2, size + 2,
               {kPaperMark, 2});
    return first + high + 12;
  }

  void DrawColumnLabels(double left, double bottom, double size, double font) {
    for (size_t i = 0; i < section_.shown.size(); ++i) {
      TextStyle style = LabelStyle(section_.shown[i], font);
      style.angle = -std::numbers::pi / 3;
      style.max_width = 84;
      pen_.Text(scene_.texts[section_.shown[i]].label, left + (static_cast<double>(i) + 0.5) * size, bottom,
                style);
    }
  }

  void DrawMapRow(int64_t query, double left, double y, double size) {
    const std::vector<float> row =
        rows_.Read({section_.place.layer, section_.place.head, rows_.QuerySlot(query)});
    for (size_t i = 0; i < section_.shown.size(); ++i)
      pen_.Fill(left + static_cast<double>(i) * size, y, size, size, PaperOf(row[section_.shown[i]]));
  }

  Pen& pen_;
  const Rows& rows_;
  const Scene& scene_;
  const Section& section_;
};

}  // namespace

double DrawScene(Pen& pen, const Rows& rows, const Scene& scene) {
  const double room = kPaperWidth - 2 * kMargin;
  double top = kMargin - 6;
  top += pen.Text(scene.title, kMargin, top,
                  {.size = 24, .weight = Weight::kBold, .max_width = room, .max_lines = 2})
             .height;
  top +=
      4 + pen.Text(scene.subtitle, kMargin, top + 2, {.size = 13, .color = kQuiet, .max_width = room}).height;
  if (!scene.notice.empty())
    top +=
        4 +
        pen.Text(scene.notice, kMargin, top + 2, {.size = 13, .color = kPaperMark, .max_width = room}).height;
  for (const Section& section : scene.sections) {
    top += 14;
    pen.Line(kMargin, top, kPaperWidth - kMargin, top, {kFaint, 1});
    top = SectionDrawing(pen, rows, scene, section).Draw(top + 14);
  }
  return top + kMargin / 2;
}

}  // namespace qkv::view
