// A scene on paper.
#pragma once

#include "view/pen.h"
#include "view/scene.h"

namespace qkv::view {

inline constexpr double kFigureWidth = 1080;  // points

// Draws from the top and returns the height used, so that a first drawing on no paper measures it.
double DrawScene(Pen& pen, const Rows& rows, const Scene& scene);

}  // namespace qkv::view
