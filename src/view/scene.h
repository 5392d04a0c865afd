// What a figure shows, chosen before anything is drawn.
#pragma once

#include <string>
#include <vector>

#include "view/rows.h"

namespace qkv::view {

inline constexpr int64_t kFigureTokens = 40;  // the most tokens of a section; more are cut around the focus
inline constexpr size_t kFigureSections = 4;  // the most tokens in focus

// One token in focus, and the head that shows most about it.
struct Section {
  int64_t token = 0, slot = 0;
  std::string heading;
  std::vector<Peak> peaks;     // every head's, the strongest first
  Place place;                 // the head that is drawn
  std::vector<int64_t> shown;  // tokens, ascending
  std::vector<float> row;      // the focus's weights in the drawn head
  std::string notice;          // what was left out, or empty
};

struct Scene {
  std::string title, subtitle, notice;
  std::vector<TokenText> texts;
  std::vector<Section> sections;
};

Scene SceneOf(const Rows& rows, const ViewOptions& options);

}  // namespace qkv::view
