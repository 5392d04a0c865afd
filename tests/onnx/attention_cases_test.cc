// ONNX's operator Attention (opsets 23 to 25) said in this library's words. The differences, all of them here:
//  - heads side by side in rank 3 are a matter of strides;
//  - the past and the new keys are one tensor, which the caller holds (ONNX's `present`);
//  - queries stand behind what was cached: offset = past length, or nonpad_kv_seqlen - Tq, or 0;
//  - a mask that is shorter than the keys blocks the rest;
//  - a bool mask is `mask`, a float mask is `bias`; a window of -1 is an open side; softcap 0 is none.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "kernels/load.h"
#include "onnx/cases.h"
#include "qkv/attention.h"

namespace qkv::test {
namespace {

// A contiguous tensor that owns its elements, zero at first.
struct OwnedTensor {
  OwnedTensor(DType type, Shape sizes) : dtype(type), shape(sizes), bytes(ByteCount()) {}
  size_t ByteCount() const { return static_cast<size_t>(shape.elements()) * SizeOf(dtype); }
  Tensor view() { return {bytes.data(), dtype, shape}; }

  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

// Copies a (B, H, T, D) tensor of any strides to keys [first, first + T) of a contiguous one.
void CopyKeys(const ConstTensor& from, int64_t first, OwnedTensor& to) {
  const size_t size = SizeOf(from.dtype);
  const auto* data = static_cast<const std::byte*>(from.data);
  for (int64_t b = 0; b < from.size(0); ++b) {
    for (int64_t h = 0; h < from.size(1); ++h) {
      for (int64_t t = 0; t < from.size(2); ++t) {
        const int64_t source = b * from.stride[0] + h * from.stride[1] + t * from.stride[2];
        const int64_t target = (b * to.shape[1] + h) * to.shape[2] + first + t;
        std::memcpy(&to.bytes[static_cast<size_t>(target * to.shape[3]) * size],
                    data + source * static_cast<int64_t>(size), static_cast<size_t>(from.size(3)) * size);
      }
    }
  }
}

OwnedTensor Concatenate(const ConstTensor& past, const ConstTensor& now) {
  OwnedTensor all(now.dtype, {now.size(0), now.size(1), past.size(2) + now.size(2), now.size(3)});
  CopyKeys(past, 0, all);
  CopyKeys(now, past.size(2), all);
  return all;
}

// The bits of -infinity in a type of floats; false for bool.
void AppendBlocked(DType dtype, std::vector<std::byte>& bytes) {
  const auto append = [&](auto value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  };
  switch (dtype) {
    case DType::kBool: return append(false);
    case DType::kF16: return append(Float16{0xfc00});
    case DType::kBF16: return append(BFloat16{0xff80});
    default: return append(-HUGE_VALF);
  }
}

OwnedTensor PadMask(const ConstTensor& mask, int64_t keys) {
  Shape shape = mask.shape;
  int64_t& width = shape.size[static_cast<size_t>(shape.rank - 1)];
  const size_t own = static_cast<size_t>(width) * SizeOf(mask.dtype);
  const int64_t rows = width == 0 ? 0 : mask.shape.elements() / width, missing = keys - width;
  width = keys;
  OwnedTensor padded(mask.dtype, shape);
  padded.bytes.clear();
  const auto* data = static_cast<const std::byte*>(mask.data);
  for (int64_t row = 0; row < rows; ++row, data += own) {
    padded.bytes.insert(padded.bytes.end(), data, data + own);
    for (int64_t j = 0; j < missing; ++j) AppendBlocked(mask.dtype, padded.bytes);
  }
  return padded;
}

RowKind RowKindOf(int64_t qk_matmul_output_mode) {
  constexpr RowKind kKinds[] = {RowKind::kRawScores, RowKind::kSoftcappedScores, RowKind::kBiasedScores,
                                RowKind::kWeights};
  return kKinds[qk_matmul_output_mode];
}

// The arguments of a case as this library takes them. Holds what had to be made for it.
class Call {
 public:
  explicit Call(const OnnxCase& onnx_case) : case_(onnx_case) {
    const int64_t q_heads = case_.Attribute<int64_t>("q_num_heads", 1);
    const int64_t kv_heads = case_.Attribute<int64_t>("kv_num_heads", 1);
    q = SplitHeads(*case_.Input("Q"), q_heads);
    k = SplitHeads(*case_.Input("K"), kv_heads);
    v = SplitHeads(*case_.Input("V"), kv_heads);
    if (const auto past = case_.Input("past_key")) {
      present_key.emplace(Concatenate(*past, k));
      present_value.emplace(Concatenate(*case_.Input("past_value"), v));
      k = present_key->view();
      v = present_value->view();
    }
    SetPositions();
    SetMask();
    SetScores();
  }

  ConstTensor q, k, v;
  std::optional<OwnedTensor> present_key, present_value;
  AttentionOptions options;

 private:
  void SetPositions() {
    int64_t cached = 0;
    if (const auto past = case_.Input("past_key")) cached = past->size(2);
    options.offset = {cached};
    if (const auto valid = case_.Input("nonpad_kv_seqlen")) {
      const auto* lengths = static_cast<const int64_t*>(valid->data);
      options.kv_lengths.emplace(lengths, lengths + valid->size(0));
      options.offset = options.kv_lengths;
      for (int64_t& offset : *options.offset) offset -= q.size(2);
    }
    if (case_.Attribute<int64_t>("is_causal", 0) != 0) options.causal = Causal::kTopLeft;
    const int64_t left = case_.Attribute<int64_t>("left_window_size", -1);
    const int64_t right = case_.Attribute<int64_t>("right_window_size", -1);
    if (left >= 0) options.window.left = left;
    if (right >= 0) options.window.right = right;
  }

  void SetMask() {
    const auto mask = case_.Input("attn_mask");
    if (!mask) return;
    ConstTensor whole = *mask;
    if (mask->size(mask->rank() - 1) < k.size(2)) {
      padded_mask_.emplace(PadMask(*mask, k.size(2)));
      whole = padded_mask_->view();
    }
    if (whole.dtype == DType::kBool)
      options.mask = whole;
    else
      options.bias = whole;
  }

  void SetScores() {
    const float scale = case_.Attribute<float>("scale", 0), softcap = case_.Attribute<float>("softcap", 0);
    if (scale != 0) options.scale = scale;
    if (softcap != 0) options.softcap = softcap;
  }

  const OnnxCase& case_;
  std::optional<OwnedTensor> padded_mask_;
};

CaptureRequest AllRows(int64_t queries, RowKind kind) {
  CaptureRequest request;
  request.rows.emplace(static_cast<size_t>(queries));
  std::iota(request.rows->begin(), request.rows->end(), 0);
  request.row_kind = kind;
  return request;
}

// The captured rows in the type that ONNX gives them.
OwnedTensor Rows(const Capture& capture, DType dtype) {
  OwnedTensor rows(dtype, {capture.batch, capture.heads, capture.queries, capture.keys});
  for (size_t i = 0; i < capture.row_values.size(); ++i) {
    StoreDouble(capture.row_values[i], rows.bytes.data(), dtype, static_cast<int64_t>(i));
  }
  return rows;
}

void ExpectSameBytes(const OwnedTensor& got, const ConstTensor& expected) {
  EXPECT_EQ(ToString(got.shape), ToString(expected.shape));
  ASSERT_EQ(got.ByteCount(), static_cast<size_t>(expected.shape.elements()) * SizeOf(expected.dtype));
  EXPECT_EQ(std::memcmp(got.bytes.data(), expected.data, got.ByteCount()), 0);
}

class OnnxAttention : public testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxAttention, GivesItsOutput) {
  const OnnxCase& test = GetParam();
  const Call call(test);
  const ConstTensor expected = *test.Output("Y");
  OwnedTensor y(expected.dtype, expected.shape);
  const ConstTensor heads = SplitHeads(y.view(), call.q.size(1));
  const Tensor out(y.bytes.data(), heads.dtype, heads.shape, heads.stride);
  Attention(call.q, call.k, call.v, call.options, out);
  ExpectClose(test, y.view(), expected);
  if (const auto present = test.Output("present_key")) ExpectSameBytes(*call.present_key, *present);
  if (const auto present = test.Output("present_value")) ExpectSameBytes(*call.present_value, *present);
}

class OnnxScores : public testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxScores, AreCaptured) {
  const OnnxCase& test = GetParam();
  const ConstTensor expected = *test.Output("qk_matmul_output");
  const Call call(test);
  OwnedTensor out(call.q.dtype, {call.q.size(0), call.q.size(1), call.q.size(2), call.v.size(3)});
  const RowKind kind = RowKindOf(test.Attribute<int64_t>("qk_matmul_output_mode", 0));
  const Capture capture =
      AttentionWithCapture(call.q, call.k, call.v, call.options, AllRows(call.q.size(2), kind), out.view());
  ExpectClose(test, Rows(capture, expected.dtype).view(), expected);
}

std::vector<OnnxCase> CasesWithScores() {
  std::vector<OnnxCase> cases = OnnxCases("Attention");
  std::erase_if(cases, [](const OnnxCase& test) { return !test.Output("qk_matmul_output"); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, OnnxAttention, testing::ValuesIn(OnnxCases("Attention")), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Cases, OnnxScores, testing::ValuesIn(CasesWithScores()), NameOfCase);

TEST(OnnxCases, AttentionsAreAllThere) {
  EXPECT_EQ(OnnxCases("Attention").size(), 93u);
  EXPECT_EQ(CasesWithScores().size(), 18u);
}

}  // namespace
}  // namespace qkv::test
