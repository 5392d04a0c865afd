// What tests/golden/models/make.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qkv/model.h"

namespace qkv::test {

inline nlohmann::json GoldenCases(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(QKV_GOLDEN "/models/" + file)).at("cases");
}

inline std::string TinyFolder(const std::string& name) { return QKV_GOLDEN "/models/" + name; }

// The installed default model. Without it these tests fail: nothing takes its place.
inline const Model& MiniLm() {
  static const std::unique_ptr<const Model> model = LoadModel("minilm");
  return *model;
}

// Compares picked elements of an array of the given sizes, outermost first.
inline void ExpectPicks(const std::vector<float>& got, const std::vector<int64_t>& sizes,
                        const nlohmann::json& pick, double tolerance) {
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  ASSERT_EQ(static_cast<int64_t>(got.size()), elements);
  ASSERT_GE(pick["at"].size(), 200u);
  for (size_t i = 0; i < pick["at"].size(); ++i) {
    const auto place = pick["at"][i].get<std::vector<int64_t>>();
    int64_t index = 0;
    for (size_t axis = 0; axis < sizes.size(); ++axis) index = index * sizes[axis] + place[axis];
    EXPECT_NEAR(got[static_cast<size_t>(index)], pick["values"][i].get<double>(), tolerance) << pick["at"][i];
  }
}

}  // namespace qkv::test
