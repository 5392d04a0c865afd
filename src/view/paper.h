// Drawings as files: PNG, SVG and PDF, by the file's ending.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "view/pen.h"

namespace qkv::view {

inline constexpr double kPaperWidth = 1080;  // points

// Draws from the top, the same every time, and returns the height used: a first drawing on no paper measures it.
using Drawing = std::function<double(Pen&)>;

// The same drawing gives the same bytes. Returns a warning where no installed font has some character, else nothing.
// Error{kInvalidArgument}: another ending; kIo naming the file; kOutOfMemory.
std::string WritePaper(const Drawing& drawing, const std::filesystem::path& file);

void CheckPaper(const std::filesystem::path& file);  // the first of these errors alone

}  // namespace qkv::view
