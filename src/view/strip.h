// A sentence laid out in lines of a terminal, one cell a token.
#pragma once

#include <string>
#include <vector>

#include "view/rows.h"

namespace qkv::view {

struct Cell {
  enum class Kind { kWord, kSpecial, kFocus, kGap };  // a gap stands for tokens left out
  Kind kind = Kind::kWord;
  std::string text;
  int width = 0;
  float weight = 0;
  bool joined = false;  // no space before it
};

using Line = std::vector<Cell>;

// The most tokens that a strip shows: more are cut around the focus and the heaviest.
inline constexpr int64_t kStripTokens = 400;

// What stands before and after the focus, where it must be told without colour.
enum class FocusMark { kNone, kStars };

Line StripCells(const ModelCapture& capture, const std::vector<TokenText>& texts,
                const std::vector<float>& weight, int64_t focus, FocusMark mark);

// Breaks between words; a word wider than the line breaks between its pieces, a wider piece is cut.
std::vector<Line> Wrap(const Line& cells, int width);

int WidthOf(const Line& line);  // spaces between words included

}  // namespace qkv::view
