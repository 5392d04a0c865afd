// Wrong calls: each gives one typed error that names the argument, before anything is written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention_call.h"
#include "qkv/error.h"
#include "support/sanitized.h"

namespace qkv::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();

// A right call, for a case to spoil: B = 2, Hq = 4, Hkv = 2, Tq = 3, Tk = 5, D = 6, Dv = 7; or packed.
struct Call {
  Array<float> q_data, k_data, v_data, out_data, lse_data, bias_data, head_data;
  std::vector<uint8_t> mask_data;
  std::vector<uint8_t> sixteen_bit;  // elements for tensors of other types
  ConstTensor q, k, v;
  Tensor out, lse;
  AttentionOptions options;
  CaptureRequest capture;

  enum class Form { kBatched, kPacked };
  explicit Call(Form form)
      : q_data({144}, 1),
        k_data({120}, 1),
        v_data({140}, 1),
        out_data({400}, 7),
        lse_data({64}, 7),
        bias_data({120}, 0),
        head_data({8}, 1),
        mask_data(120, 1),
        sixteen_bit(4096) {
    if (form == Form::kBatched) {
      q = {q_data.values.data(), {2, 4, 3, 6}}, k = {k_data.values.data(), {2, 2, 5, 6}};
      v = {v_data.values.data(), {2, 2, 5, 7}}, out = {out_data.values.data(), {2, 4, 3, 7}};
      lse = {lse_data.values.data(), {2, 4, 3}};
      return;
    }
    q = {q_data.values.data(), {6, 4, 6}}, k = {k_data.values.data(), {10, 2, 6}};
    v = {v_data.values.data(), {10, 2, 7}}, out = {out_data.values.data(), {6, 4, 7}};
    lse = {lse_data.values.data(), {4, 6}};
    options.cu_q = std::vector<int64_t>{0, 2, 6};
    options.cu_kv = std::vector<int64_t>{0, 5, 10};
  }
  ConstTensor Mask(Shape shape) const { return {mask_data.data(), DType::kBool, shape}; }
  ConstTensor Bias(Shape shape) const { return {bias_data.values.data(), DType::kF32, shape}; }
  ConstTensor PerHead(Shape shape) const { return {head_data.values.data(), DType::kF32, shape}; }
  ConstTensor Other(DType dtype, Shape shape) const { return {sixteen_bit.data(), dtype, shape}; }
};

struct Wrong {
  const char* name;
  const char* where;
  std::function<void(Call&)> spoil;
  ErrorCode code = ErrorCode::kInvalidArgument;
  Call::Form form = Call::Form::kBatched;
};

constexpr ErrorCode kType = ErrorCode::kWrongType, kArgument = ErrorCode::kInvalidArgument;
constexpr Call::Form kPacked = Call::Form::kPacked;

using Values = std::vector<int64_t>;

std::vector<Wrong> WrongTensors() {
  return {
      {"q of rank 3", "q",
       [](Call& c) {
         c.q = {c.q.data, DType::kF32, {2, 4, 18}};
       }},
      {"q of rank 0", "q", [](Call& c) { c.q.shape = {}; }},
      {"q of rank 5", "q", [](Call& c) { c.q.shape.rank = 5; }},
      {"q of rank -1", "q", [](Call& c) { c.q.shape.rank = -1; }},
      {"k of rank 3", "k",
       [](Call& c) {
         c.k = {c.k.data, DType::kF32, {2, 2, 30}};
       }},
      {"v of rank 2", "v",
       [](Call& c) {
         c.v = {c.v.data, DType::kF32, {2, 70}};
       }},
      {"out of rank 3", "out",
       [](Call& c) {
         c.out.shape = {2, 4, 21};
       }},
      {"q with a negative size", "q", [](Call& c) { c.q.shape.size[2] = -3; }},
      {"k with a negative size", "k", [](Call& c) { c.k.shape.size[0] = -2; }},
      {"q too large to count", "q",
       [](Call& c) {
         c.q.shape = {kMax, 4, 3, 6};
       }},
      {"v too large to count", "v", [](Call& c) { c.v.shape.size[2] = kMax / 2; }},
      {"q without data", "q", [](Call& c) { c.q.data = nullptr; }},
      {"k without data", "k", [](Call& c) { c.k.data = nullptr; }},
      {"v without data", "v", [](Call& c) { c.v.data = nullptr; }},
      {"out without data", "out", [](Call& c) { c.out.data = nullptr; }},
      {"lse without data", "lse", [](Call& c) { c.lse.data = nullptr; }},
      {"k between two elements", "k", [](Call& c) { c.k.data = static_cast<const std::byte*>(c.k.data) + 2; }},
      {"out between two elements", "out", [](Call& c) { c.out.data = static_cast<const std::byte*>(c.out.data) + 1; }},
      {"q's stride past all memory", "q", [](Call& c) { c.q.stride[0] = kMax; }},
      {"k's stride past all memory", "k", [](Call& c) { c.k.stride[2] = kMin; }},
      {"out's stride past all memory", "out", [](Call& c) { c.out.stride[1] = kMax / 3; }},
      {"q of int32", "q", [](Call& c) { c.q.dtype = DType::kI32; }, kType},
      {"q of bool", "q", [](Call& c) { c.q.dtype = DType::kBool; }, kType},
      {"q of no type", "q", [](Call& c) { c.q.dtype = static_cast<DType>(99); }, kType},
      {"k of float64 beside float32", "k",
       [](Call& c) {
         c.k = c.Other(DType::kF64, {2, 2, 5, 6});
       },
       kType},
      {"k of int8", "k", [](Call& c) { c.k.dtype = DType::kI8; }, kType},
      {"v of float32 beside k of bfloat16", "v", [](Call& c) { c.k.dtype = DType::kBF16; }, kType},
      {"v of float16 beside float32", "v", [](Call& c) { c.v.dtype = DType::kF16; }, kType},
      {"k of float16 beside q of bfloat16", "k",
       [](Call& c) { c.q.dtype = c.out.dtype = DType::kBF16, c.k.dtype = c.v.dtype = DType::kF16; }, kType},
      {"out of another type", "out", [](Call& c) { c.out.dtype = DType::kF16; }, kType},
      {"lse of float64", "lse", [](Call& c) { c.lse.dtype = DType::kF64; }, kType},
      {"another batch in k", "k", [](Call& c) { c.k.shape.size[0] = 1; }},
      {"another batch in v", "v", [](Call& c) { c.v.shape.size[0] = 1; }},
      {"another head size in k", "k", [](Call& c) { c.k.shape.size[3] = 5; }},
      {"another length in v", "v", [](Call& c) { c.v.shape.size[2] = 4; }},
      {"other heads in v", "v", [](Call& c) { c.v.shape.size[1] = 1; }},
      {"query heads no multiple of key heads", "q",
       [](Call& c) { c.q.shape.size[1] = c.out.shape.size[1] = 3; }},
      {"more key heads than query heads", "q", [](Call& c) { c.q.shape.size[1] = c.out.shape.size[1] = 1; }},
      {"no key heads", "q", [](Call& c) { c.k.shape.size[1] = c.v.shape.size[1] = 0; }},
      {"head size 0", "q", [](Call& c) { c.q.shape.size[3] = c.k.shape.size[3] = 0; }},
      {"value size 0", "v", [](Call& c) { c.v.shape.size[3] = c.out.shape.size[3] = 0; }},
      {"out as wide as k", "out", [](Call& c) { c.out.shape.size[3] = 6; }},
      {"out too short", "out", [](Call& c) { c.out.shape.size[2] = 2; }},
      {"lse with a channel", "lse",
       [](Call& c) {
         c.lse.shape = {2, 4, 3, 1};
       }},
      {"lse of other heads", "lse",
       [](Call& c) {
         c.lse.shape = {2, 3, 3};
       }},
      {"out writes an element twice", "out", [](Call& c) { c.out.stride[2] = 0; }},
      {"out's rows overlap", "out", [](Call& c) { c.out.stride[2] = 6; }},
      {"lse writes an element twice", "lse", [](Call& c) { c.lse.stride[0] = 0; }},
      {"out over q", "out", [](Call& c) { c.out.data = c.q.data; }},
      {"out over the end of v", "out", [](Call& c) { c.v.data = c.out_data.values.data() + 100; }},
      {"lse over out", "lse", [](Call& c) { c.lse.data = c.out.data; }},
      {"lse over k", "lse", [](Call& c) { c.lse.data = c.k.data; }},
  };
}

std::vector<Wrong> WrongOptions() {
  return {
      {"no causal kind", "causal", [](Call& c) { c.options.causal = static_cast<Causal>(7); }},
      {"negative left", "window.left", [](Call& c) { c.options.window.left = -1; }},
      {"negative right", "window.right", [](Call& c) { c.options.window.right = kMin; }},
      {"scale NaN", "scale", [](Call& c) { c.options.scale = kNan; }},
      {"scale infinite", "scale", [](Call& c) { c.options.scale = -kInfinity; }},
      {"softcap 0", "softcap", [](Call& c) { c.options.softcap = 0.0f; }},
      {"softcap negative", "softcap", [](Call& c) { c.options.softcap = -30.0f; }},
      {"softcap NaN", "softcap", [](Call& c) { c.options.softcap = kNan; }},
      {"softcap infinite", "softcap", [](Call& c) { c.options.softcap = kInfinity; }},
      {"dropout 1", "dropout_p", [](Call& c) { c.options.dropout_p = 1, c.options.seed = 1; }},
      {"dropout negative", "dropout_p", [](Call& c) { c.options.dropout_p = -0.1f, c.options.seed = 1; }},
      {"dropout NaN", "dropout_p", [](Call& c) { c.options.dropout_p = kNan, c.options.seed = 1; }},
      {"dropout without a seed", "seed", [](Call& c) { c.options.dropout_p = 0.5f; }},
      {"mask of float32", "mask",
       [](Call& c) {
         c.options.mask = c.Bias({3, 5});
       },
       kType},
      {"mask of uint8", "mask",
       [](Call& c) {
         c.options.mask = c.Other(DType::kU8, {3, 5});
       },
       kType},
      {"mask of another length", "mask",
       [](Call& c) {
         c.options.mask = c.Mask({3, 4});
       }},
      {"mask over key heads", "mask",
       [](Call& c) {
         c.options.mask = c.Mask({2, 2, 3, 5});
       }},
      {"mask of rank 6", "mask",
       [](Call& c) {
         (c.options.mask = c.Mask({3, 5}))->shape.rank = 6;
       }},
      {"mask with a negative size", "mask",
       [](Call& c) {
         c.options.mask = c.Mask({-3, 5});
       }},
      {"mask without data", "mask",
       [](Call& c) {
         c.options.mask = ConstTensor(nullptr, DType::kBool, {3, 5});
       }},
      {"mask's stride past all memory", "mask",
       [](Call& c) {
         (c.options.mask = c.Mask({3, 5}))->stride[0] = kMax;
       }},
      {"mask under out", "out",
       [](Call& c) {
         c.options.mask = ConstTensor(c.out.data, DType::kBool, {3, 5});
       }},
      {"bias of another length", "bias",
       [](Call& c) {
         c.options.bias = c.Bias({4, 5});
       }},
      {"bias of float64", "bias",
       [](Call& c) {
         c.options.bias = c.Other(DType::kF64, {3, 5});
       },
       kType},
      {"bias of float16 beside float32", "bias",
       [](Call& c) {
         c.options.bias = c.Other(DType::kF16, {3, 5});
       },
       kType},
      {"bias of bool", "bias",
       [](Call& c) {
         c.options.bias = c.Mask({3, 5});
       },
       kType},
      {"bias under lse", "lse", [](Call& c) { c.options.bias = ConstTensor(c.lse.data, DType::kF32, {5}); }},
      {"slopes per key head", "alibi_slopes", [](Call& c) { c.options.alibi_slopes = c.PerHead({2}); }},
      {"slopes of rank 0", "alibi_slopes", [](Call& c) { c.options.alibi_slopes = c.PerHead({}); }},
      {"slopes of another batch", "alibi_slopes",
       [](Call& c) {
         c.options.alibi_slopes = c.PerHead({1, 4});
       }},
      {"slopes of bfloat16", "alibi_slopes",
       [](Call& c) { c.options.alibi_slopes = c.Other(DType::kBF16, {4}); }, kType},
      {"sink per key head", "sink", [](Call& c) { c.options.sink = c.PerHead({2}); }},
      {"sink per batch", "sink",
       [](Call& c) {
         c.options.sink = c.PerHead({2, 4});
       }},
      {"sink of float16", "sink", [](Call& c) { c.options.sink = c.Other(DType::kF16, {4}); }, kType},
      {"one query length for two", "q_lengths", [](Call& c) { c.options.q_lengths = Values{3}; }},
      {"query length too long", "q_lengths[1]",
       [](Call& c) {
         c.options.q_lengths = Values{3, 4};
       }},
      {"query length -1", "q_lengths[0]",
       [](Call& c) {
         c.options.q_lengths = Values{-1, 3};
       }},
      {"no key lengths", "kv_lengths", [](Call& c) { c.options.kv_lengths = Values{}; }},
      {"key length past the cache", "kv_lengths[0]",
       [](Call& c) {
         c.options.kv_lengths = Values{6, 5};
       }},
      {"key length -1", "kv_lengths[1]",
       [](Call& c) {
         c.options.kv_lengths = Values{5, -1};
       }},
      {"three offsets for two", "offset",
       [](Call& c) {
         c.options.offset = Values{0, 1, 2};
       }},
      {"no offset in the list", "offset", [](Call& c) { c.options.offset = Values{}; }},
      {"offset past all positions", "offset", [](Call& c) { c.options.offset = Values{kMax}; }},
      {"offset before all positions", "offset", [](Call& c) { c.options.offset = Values{kMin}; }},
  };
}

std::vector<Wrong> WrongPackings() {
  return {
      {"no cu_kv", "cu_kv", [](Call& c) { c.options.cu_kv.reset(); }, kArgument, kPacked},
      {"no cu_q", "cu_q", [](Call& c) { c.options.cu_q.reset(); }, kArgument, kPacked},
      {"cu_q with a batch", "q",
       [](Call& c) {
         c.options.cu_q = c.options.cu_kv = Values{0, 3};
       }},
      {"cu_q empty", "cu_q", [](Call& c) { c.options.cu_q = Values{}; }, kArgument, kPacked},
      {"cu_q begins at 1", "cu_q",
       [](Call& c) {
         c.options.cu_q = Values{1, 2, 6};
       },
       kArgument, kPacked},
      {"cu_q ends early", "cu_q",
       [](Call& c) {
         c.options.cu_q = Values{0, 2, 5};
       },
       kArgument, kPacked},
      {"cu_q ends late", "cu_q",
       [](Call& c) {
         c.options.cu_q = Values{0, 2, 7};
       },
       kArgument, kPacked},
      {"cu_kv descends", "cu_kv[2]",
       [](Call& c) {
         c.options.cu_kv = Values{0, 12, 10};
       },
       kArgument, kPacked},
      {"cu_kv of another batch", "cu_kv",
       [](Call& c) {
         c.options.cu_kv = Values{0, 10};
       },
       kArgument, kPacked},
      {"packed with a mask", "mask", [](Call& c) { c.options.mask = c.Mask({1}); }, kArgument, kPacked},
      {"packed with a bias", "bias", [](Call& c) { c.options.bias = c.Bias({1}); }, kArgument, kPacked},
      {"packed query length too long", "q_lengths[0]",
       [](Call& c) {
         c.options.q_lengths = Values{3, 4};
       },
       kArgument, kPacked},
      {"packed key length too long", "kv_lengths[1]",
       [](Call& c) {
         c.options.kv_lengths = Values{5, 6};
       },
       kArgument, kPacked},
      {"packed key length -1", "kv_lengths[0]",
       [](Call& c) {
         c.options.kv_lengths = Values{-1, 5};
       },
       kArgument, kPacked},
      {"packed lse as if batched", "lse",
       [](Call& c) {
         c.lse.shape = {6, 4};
       },
       kArgument, kPacked},
      {"packed slopes of another batch", "alibi_slopes",
       [](Call& c) {
         c.options.alibi_slopes = c.PerHead({3, 4});
       },
       kArgument, kPacked},
  };
}

std::vector<Wrong> WrongCaptures() {
  return {
      {"top_k negative", "capture.top_k", [](Call& c) { c.capture.top_k = -1; }},
      {"top_k past all memory", "capture.top_k", [](Call& c) { c.capture.top_k = kMax; }},
      {"row past the queries", "capture.rows",
       [](Call& c) {
         c.capture.rows = Values{0, 3};
       }},
      {"row negative", "capture.rows", [](Call& c) { c.capture.rows = Values{-1}; }},
      {"row twice", "capture.rows",
       [](Call& c) {
         c.capture.rows = Values{1, 1};
       }},
      {"no kind of row", "capture.row_kind",
       [](Call& c) { c.capture.rows = Values{0}, c.capture.row_kind = static_cast<RowKind>(9); }},
      {"row past the longest packed sequence", "capture.rows", [](Call& c) { c.capture.rows = Values{4}; },
       kArgument, kPacked},
  };
}

void ExpectRefused(const Wrong& wrong) {
  Call call(wrong.form);
  wrong.spoil(call);
  SCOPED_TRACE(wrong.name);
  const auto expect = [&](const auto& run) {
    try {
      run();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.where(), wrong.where) << error.what();
      EXPECT_EQ(error.code(), wrong.code) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  };
  const bool only_captured = std::string(wrong.where).find("capture.") == 0;
  if (!only_captured) expect([&] { Attention(call.q, call.k, call.v, call.options, call.out, &call.lse); });
  expect(
      [&] { AttentionWithCapture(call.q, call.k, call.v, call.options, call.capture, call.out, &call.lse); });
  for (float value : call.out_data.values) EXPECT_EQ(value, 7);
  for (float value : call.lse_data.values) EXPECT_EQ(value, 7);
}

TEST(BadInput, TheCallsToSpoilAreRight) {
  for (Call::Form form : {Call::Form::kBatched, Call::Form::kPacked}) {
    Call call(form);
    Attention(call.q, call.k, call.v, call.options, call.out, &call.lse);
    AttentionWithCapture(call.q, call.k, call.v, call.options, call.capture, call.out, &call.lse);
    EXPECT_NE(call.out_data[0], 7);
  }
}

TEST(BadInput, TensorsAreNamed) {
  for (const Wrong& wrong : WrongTensors()) ExpectRefused(wrong);
}
TEST(BadInput, OptionsAreNamed) {
  for (const Wrong& wrong : WrongOptions()) ExpectRefused(wrong);
}
TEST(BadInput, PackingIsNamed) {
  for (const Wrong& wrong : WrongPackings()) ExpectRefused(wrong);
}
TEST(BadInput, CapturesAreNamed) {
  for (const Wrong& wrong : WrongCaptures()) ExpectRefused(wrong);
}

TEST(BadInput, SlopesOfNoNumberOfHeads) {
  EXPECT_THROW(AlibiSlopes(-1), Error);
  for (int64_t n : {kMax, int64_t{1} << 62, int64_t{1} << 55}) {
    if (kSanitized && n == int64_t{1} << 55) continue;  // operator new is asked
    try {
      AlibiSlopes(n);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    }
  }
}

// What is empty is never looked at, so its strides may be anything.
TEST(BadInput, StridesOfEmptyTensorsDoNotMatter) {
  Array<float> q({2, 2, 3, 4}, 1.0f), out({2, 2, 3, 4}, 7);
  ConstTensor none(nullptr, DType::kF32, {2, 2, 0, 4}, {kMax, kMin, kMax, kMax});
  Attention(q.in(), none, none, {}, out.out());
  EXPECT_EQ(out.values, std::vector<float>(48, 0));
  none.data = q.values.data();
  AttentionOptions options;
  options.mask = ConstTensor(q.values.data(), DType::kBool, {2, 2, 3, 0}, {kMax, kMax, kMin, kMax});
  Attention(q.in(), none, none, options, out.out());
  EXPECT_EQ(out.values, std::vector<float>(48, 0));
}

}  // namespace
}  // namespace qkv::test
