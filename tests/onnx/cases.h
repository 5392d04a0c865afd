// ONNX's own test cases, as tests/golden/onnx/make.py wrote them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::test {

// One case. Its tensors are contiguous views of memory that lives as long as the program.
class OnnxCase {
 public:
  explicit OnnxCase(const nlohmann::json& described) : described_(&described) {}

  std::string name() const { return described_->at("name"); }
  std::optional<ConstTensor> Input(const std::string& name) const { return Find("inputs", name); }
  std::optional<ConstTensor> Output(const std::string& name) const { return Find("outputs", name); }
  template <class T>
  T Attribute(const std::string& name, T otherwise) const {
    return described_->at("attributes").value(name, otherwise);
  }
  // ONNX's own, narrowed where its operator is tested more strictly here: support/tolerance.h.
  double RelativeTolerance(DType dtype) const;
  double AbsoluteTolerance() const { return described_->at("atol"); }

 private:
  std::optional<ConstTensor> Find(const char* side, const std::string& name) const;
  const nlohmann::json* described_;
};

std::vector<OnnxCase> OnnxCases(const std::string& operator_name);

// For INSTANTIATE_TEST_SUITE_P and for messages.
std::string NameOfCase(const testing::TestParamInfo<OnnxCase>& info);
void PrintTo(const OnnxCase& onnx_case, std::ostream* stream);

// ONNX's inputs of rank 3 hold the heads side by side, (B, T, H * D): the same memory as (B, H, T, D).
// Rank 4 stays as it is.
ConstTensor SplitHeads(const ConstTensor& tensor, int64_t heads);

// |got - expected| <= absolute + relative * |expected|, element by element; the same infinities.
void ExpectClose(const OnnxCase& onnx_case, const ConstTensor& got, const ConstTensor& expected);

}  // namespace qkv::test
