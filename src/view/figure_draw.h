// A scene on paper.
#pragma once

#include "view/pen.h"
#include "view/scene.h"

namespace qkv::view {

// A Drawing (view/paper.h): returns the height used.
double DrawScene(Pen& pen, const Rows& rows, const Scene& scene);

}  // namespace qkv::view
