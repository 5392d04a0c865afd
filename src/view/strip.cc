#include "view/strip.h"

#include <fmt/format.h>

#include "view/width.h"

namespace qkv::view {
namespace {

Cell::Kind KindOf(const ModelCapture& capture, int64_t token, int64_t focus) {
  if (token == focus) return Cell::Kind::kFocus;
  return capture.special[token] ? Cell::Kind::kSpecial : Cell::Kind::kWord;
}

Cell GapOf(int64_t tokens) {
  std::string text = fmt::format("\u2026 {} tokens \u2026", tokens);
  const int width = DisplayWidth(text);
  return {Cell::Kind::kGap, std::move(text), width, 0, false};
}

}  // namespace

Line StripCells(const ModelCapture& capture, const std::vector<TokenText>& texts,
                const std::vector<float>& weight, int64_t focus, FocusMark mark) {
  Line cells;
  int64_t next = 0;
  const auto fill = [&](int64_t token) {
    if (token > next) cells.push_back(GapOf(token - next));
    next = token + 1;
  };
  for (const int64_t token : TokensToShow(weight, focus, kStripTokens)) {
    fill(token);
    Cell cell{KindOf(capture, token, focus), texts[token].label, 0, weight[token], texts[token].joined};
    if (cell.kind == Cell::Kind::kFocus && mark == FocusMark::kStars) cell.text = "*" + cell.text + "*";
    cell.width = DisplayWidth(cell.text);
    cells.push_back(std::move(cell));
  }
  fill(static_cast<int64_t>(weight.size()));
  return cells;
}

int WidthOf(const Line& line) {
  int width = 0;
  for (size_t i = 0; i < line.size(); ++i) width += line[i].width + (i > 0 && !line[i].joined ? 1 : 0);
  return width;
}

std::vector<Line> Wrap(const Line& cells, int width) {
  std::vector<Line> lines;
  Line line;
  int used = 0;
  for (size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
    for (end = begin + 1; end < cells.size() && cells[end].joined;) ++end;
    const int word = WidthOf(Line(cells.begin() + begin, cells.begin() + end));
    if (!line.empty() && used + 1 + word > width) lines.push_back(std::exchange(line, {})), used = 0;
    for (size_t i = begin; i < end; ++i) {
      Cell cell = cells[i];
      if (cell.width > width) cell.text = FitWidth(cell.text, width), cell.width = DisplayWidth(cell.text);
      const int space = line.empty() || cell.joined ? 0 : 1;
      if (used + space + cell.width > width) lines.push_back(std::exchange(line, {})), used = 0;
      used += cell.width + (line.empty() ? 0 : space);
      line.push_back(std::move(cell));
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace qkv::view
