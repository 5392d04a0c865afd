#include "onnx/cases.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "kernels/load.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

using nlohmann::json;

const json& Index() {
  static const json index = json::parse(std::ifstream(QKV_GOLDEN "/onnx/cases.json"));
  return index;
}

const std::vector<char>& Numbers() {
  static const std::vector<char> numbers = [] {
    std::ifstream file(QKV_GOLDEN "/onnx/cases.bin", std::ios::binary);
    return std::vector<char>(std::istreambuf_iterator<char>(file), {});
  }();
  return numbers;
}

DType TypeNamed(const std::string& name) {
  static const std::map<std::string, DType> types = {{"float32", DType::kF32},
                                                     {"float16", DType::kF16},
                                                     {"bfloat16", DType::kBF16},
                                                     {"int64", DType::kI64},
                                                     {"bool", DType::kBool}};
  return types.at(name);
}

Shape ShapeOf(const json& sizes) {
  Shape shape;
  for (const json& size : sizes) shape.size.at(static_cast<size_t>(shape.rank++)) = size;
  return shape;
}

int64_t OffsetOf(const ConstTensor& tensor, int64_t index) {  // of element number `index` in row-major order
  int64_t offset = 0;
  for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
    offset += index % tensor.size(axis) * tensor.stride[static_cast<size_t>(axis)];
    index /= tensor.size(axis);
  }
  return offset;
}

}  // namespace

double OnnxCase::RelativeTolerance(DType dtype) const {
  const double own = described_->at("rtol");
  if (dtype == DType::kF32) return std::min(own, kOnnxFloat32);
  return dtype == DType::kBF16 ? std::max(own, kOnnxBFloat16) : own;
}

std::optional<ConstTensor> OnnxCase::Find(const char* side, const std::string& name) const {
  const json& tensors = described_->at(side);
  if (!tensors.contains(name)) return {};
  const json& tensor = tensors.at(name);
  const ConstTensor view(Numbers().data() + tensor.at("at").get<size_t>(), TypeNamed(tensor.at("type")),
                         ShapeOf(tensor.at("shape")));
  const size_t bytes = static_cast<size_t>(view.shape.elements()) * SizeOf(view.dtype);
  if (tensor.at("at").get<size_t>() + bytes > Numbers().size())
    throw std::runtime_error("cases.bin is too short");
  return view;
}

std::vector<OnnxCase> OnnxCases(const std::string& operator_name) {
  std::vector<OnnxCase> cases;
  for (const json& described : Index().at("cases")) {
    if (described.at("operator") == operator_name) cases.emplace_back(described);
  }
  return cases;
}

std::string NameOfCase(const testing::TestParamInfo<OnnxCase>& info) { return info.param.name(); }

void PrintTo(const OnnxCase& onnx_case, std::ostream* stream) { *stream << onnx_case.name(); }

ConstTensor SplitHeads(const ConstTensor& tensor, int64_t heads) {
  if (tensor.rank() == 4) return tensor;
  const int64_t length = tensor.size(1), width = tensor.size(2), d = width / heads;
  return {tensor.data, tensor.dtype, {tensor.size(0), heads, length, d}, {length * width, d, width, 1}};
}

void ExpectClose(const OnnxCase& onnx_case, const ConstTensor& got, const ConstTensor& expected) {
  ASSERT_EQ(ToString(got.shape), ToString(expected.shape));
  ASSERT_EQ(got.dtype, expected.dtype);
  const double relative = onnx_case.RelativeTolerance(got.dtype), absolute = onnx_case.AbsoluteTolerance();
  for (int64_t i = 0; i < expected.shape.elements(); ++i) {
    const double want = LoadDouble(expected.data, expected.dtype, OffsetOf(expected, i));
    const double have = LoadDouble(got.data, got.dtype, OffsetOf(got, i));
    if (have == want) continue;  // infinities too
    EXPECT_LE(std::abs(have - want), absolute + relative * std::abs(want))
        << "element " << i << ": " << have << " instead of " << want;
  }
}

}  // namespace qkv::test
