// Captures to draw: read from the golden files, or made up.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qkv/capture.h"

namespace qkv::test {

// NAME.json and NAME.f32 as make_captures.py writes them; fails the program where they cannot be read.
ModelCapture ReadCapture(const std::filesystem::path& folder, const std::string& name);

// The text that it was made of.
std::string ReadText(const std::filesystem::path& folder, const std::string& name);

// One layer and head over the labels; weights are those of each query in turn.
ModelCapture MakeCapture(const std::vector<std::string>& labels, const std::vector<float>& weights);

// The same with only the k strongest keys of each row.
ModelCapture KeepTop(const ModelCapture& capture, int64_t k);

}  // namespace qkv::test
