// The picture of a training run: its losses against its steps.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qkv::view {

struct Curve {
  std::string name;
  std::vector<double> x, y;  // x ascending; points with an infinite or NaN y are left out
};

struct LossPicture {
  std::string title;
  std::string unit;     // of the losses, at the axis: "nats per token"
  Curve train, validation;  // train: drawn as it is, faintly, and smoothed; validation: points
};

// .png, .svg or .pdf. Errors and warning as WritePaper's (view/paper.h).
std::string WriteLossPicture(const LossPicture& picture, const std::filesystem::path& file);

}  // namespace qkv::view
