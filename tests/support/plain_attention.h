// Attention as docs/semantics.md words it, in plain loops over whole rows of scores, sharing nothing with the
// library but Philox: in double it is what is right; in float32 with scores, weights and output rounded to a
// type it is the naive attention whose error bounds the library's. Faults can be planted, to see that the
// comparison finds them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "qkv/attention.h"

namespace qkv::test {

// An array that broadcasts over (B, Hq, Tq, Tk): strides of broadcast axes are 0.
struct Broadcast {
  std::vector<double> values;
  std::array<int64_t, 4> stride{};
  bool present = false;

  double At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return values[static_cast<size_t>(b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3])];
  }
};

// A call with all its numbers, exactly representable in their types. Keys are stored channel by channel.
struct PlainCall {
  int64_t batch = 0, q_heads = 0, kv_heads = 0, tq = 0, tk = 0, d = 0, dv = 0;
  std::vector<double> q, k, v;                  // (B, Hq, Tq, D), (B, Hkv, D, Tk), (B, Hkv, Tk, Dv)
  std::vector<int64_t> rows;                    // B: query rows that the output holds
  std::vector<int64_t> q_lengths, kv_lengths;   // B: what is real of them
  std::optional<std::vector<int64_t>> offsets;  // B
  Causal causal = Causal::kNone;
  Window window;
  double scale = 1;
  std::optional<double> softcap;
  Broadcast mask, bias;    // mask: 1 may attend
  Broadcast slopes, sink;  // over b and h
  double dropout_p = 0;
  uint64_t seed = 0;

  int64_t Row(int64_t b, int64_t h, int64_t i) const { return (b * q_heads + h) * tq + i; }
  int64_t Position(int64_t b, int64_t i) const;
  // The mask's, lengths', window's ... word on key j; false for rows that do not exist.
  bool IsVisible(int64_t b, int64_t h, int64_t i, int64_t j) const;
  bool IsKept(int64_t b, int64_t h, int64_t i, int64_t j) const;  // by dropout
  // Magnitudes of what is added to a score: ALiBi's and the bias.
  double Added(int64_t b, int64_t h, int64_t i, int64_t j) const;
};

struct PlainResult {
  std::vector<double> out, lse;     // (B, Hq, Tq, Dv), (B, Hq, Tq)
  std::vector<double> weights;      // (B, Hq, Tq, Tk), before dropout
  std::vector<double> score_error;  // (B, Hq, Tq): how far a float32 score of the row may be off
};

// Wrong attention, one mistake each.
enum class Fault {
  kNone,
  kWindowLeftOneMore,
  kWindowRightOneLess,
  kOtherAlignment,
  kOffsetIgnored,
  kHeadsTiled,  // query head h reads KV head h mod Hkv
  kScaleTwice,
  kSoftcapAfterBias,
  kSoftcapWithoutFactor,
  kMaskInverted,
  kMaskAsLargeNegative,
  kBiasBeforeScale,
  kAlibiSign,
  kAlibiFromQueryIndex,
  kSinkMissing,
  kSinkNotInMaximum,
  kQueryLengthIgnored,
  kKeyLengthIgnored,
  kDropoutScaleMissing,
  kDropoutByQueryIndex,
  kDropoutBeforeSoftmax,
  kRescaleLost,  // earlier keys keep the weight that they had under an earlier maximum
  kLastKeyLost,
  kCount,
};
const char* NameOf(Fault fault);

// Naive attention may multiply by the scale before or after the dot product, add ALiBi and bias
// one by one or as one mask, and sum in any order.
struct NaiveOrder {
  enum class Scale { kLast, kFirst } scale = Scale::kLast;
  enum class Added { kOneByOne, kTogether } added = Added::kOneByOne;
  enum class Sums { kAscending, kDescending } sums = Sums::kAscending;
  int64_t start = 0;  // sums begin at this element, modulo their length, and go round
};

// In double throughout.
PlainResult ExactAttention(const PlainCall& call);
// float32 multiply, scores rounded to the type, float32 softmax, weights rounded, float32 multiply, output
// rounded.
PlainResult NaiveAttention(const PlainCall& call, DType type, NaiveOrder order = {},
                           Fault fault = Fault::kNone);

}  // namespace qkv::test
